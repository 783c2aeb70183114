package plan

import (
	"unbloat/unit"
)

// A Share is what one class gets of one direction.
type Share struct {
	Class     Class     `json:"class"`
	Tin       Tin       `json:"tin,omitempty"`           // of CAKE's `precedence`; 0 behind HTB
	First     unit.Rate `json:"first_bps"`               // up to this rate it has priority over the classes below
	Guarantee unit.Rate `json:"guarantee_bps,omitempty"` // HTB: its guaranteed rate
	Limit     unit.Rate `json:"limit_bps,omitempty"`     // HTB: its ceiling; 0: the line
}

// Classes divide the traffic of a plan. The first explicit rule that matches a
// packet decides its class. Without one it is the packet's DSCP, where that is
// trusted, and else the behaviour of its flow.
type Classes struct {
	Up        []Share        `json:"up,omitempty"` // first to last; nil: the direction has no classes
	Down      []Share        `json:"down,omitempty"`
	Behaviour Behaviour      `json:"behaviour"`
	Rules     []Rule         `json:"rules,omitempty"`
	DSCP      DSCPPreference `json:"dscp,omitzero"`
	// Classifier is what judges how flows behave; "": nothing does, and the rules are
	// applied in the platform's own way, on Linux by nftables.
	Classifier Classifier `json:"classifier,omitempty"`
	// Varies says that the line's rates do: a call above its bound is then out as others are.
	Varies bool `json:"varies,omitempty"`
	// LAN is the interface by which the home's packets enter, where the BPF program
	// numbers the machines; "" with any other classifier.
	LAN string `json:"lan,omitempty"`
}

// A Classifier is what judges how flows behave.
type Classifier string

// Classifiers. The BPF program is a filter of the shaper's own, with state of its own.
// ByNFT means the default: nftables has only rules.
const (
	ByNFT Classifier = "nft"
	ByBPF Classifier = "bpf"
)

// ByBPF reports whether a BPF program judges how flows behave.
func (c *Classes) ByBPF() bool { return c != nil && c.Classifier == ByBPF }

// A SharePreference sets the guarantee and limit of one class by hand.
type SharePreference struct {
	Class     Class          `json:"class" toml:"name"`
	Direction Direction      `json:"direction,omitempty" toml:"direction"` // "": both
	Guarantee RatePreference `json:"guarantee,omitzero" toml:"guarantee"`  // a rate, or a share of the shaped rate
	Limit     RatePreference `json:"limit,omitzero" toml:"limit"`
}

// Values of ClassPreferences.Use. With the zero value the plan has classes where
// the platform supports them, but not in the article's style, nor with tins or
// fq_codel chosen by hand.
const (
	ClassesAuto = ""
	ClassesOn   = "on"
	ClassesOff  = "off"
)

// ClassPreferences are the user's choices for the classes.
type ClassPreferences struct {
	Use        string            `json:"use,omitempty" toml:"use"`
	Rules      []Rule            `json:"rules,omitempty" toml:"rule"`
	Shares     []SharePreference `json:"shares,omitempty" toml:"class"`
	DSCP       DSCPPreference    `json:"dscp,omitzero" toml:"dscp"`
	FirstBytes unit.Size         `json:"first_bytes,omitempty" toml:"first_bytes"` // 0: by the line
	Classifier Classifier        `json:"classifier,omitempty" toml:"classifier"`   // "": a BPF program where it costs little; ByBPF: where it can be
}

// IsZero reports whether everything is left to the plan.
func (w ClassPreferences) IsZero() bool {
	return w.Use == "" && w.Rules == nil && w.Shares == nil && w.DSCP == DSCPPreference{} && w.FirstBytes == 0 && w.Classifier == ""
}
