package plan

import (
	"unbloat/unit"
)

// A Share is what one class may have of one direction.
type Share struct {
	Class     Class     `json:"class"`
	Tin       Tin       `json:"tin,omitempty"`           // of CAKE's `precedence`; 0 behind HTB
	First     unit.Rate `json:"first_bps"`               // up to this it goes before the classes below
	Guarantee unit.Rate `json:"guarantee_bps,omitempty"` // HTB: what it has whatever the others want
	Limit     unit.Rate `json:"limit_bps,omitempty"`     // HTB: what it never exceeds; 0: the line
}

// Classes divide the traffic of a plan. A packet's class is decided by the
// first explicit rule that fits; else by its mark, where marks are trusted; else
// by how its flow behaves.
type Classes struct {
	Up        []Share        `json:"up,omitempty"` // first to last; nil: the direction has no classes
	Down      []Share        `json:"down,omitempty"`
	Behaviour Behaviour      `json:"behaviour"`
	Rules     []Rule         `json:"rules,omitempty"`
	DSCP      DSCPPreference `json:"dscp,omitzero"`
}

// A SharePreference bounds one class by hand.
type SharePreference struct {
	Class     Class          `json:"class" toml:"name"`
	Direction Direction      `json:"direction,omitempty" toml:"direction"` // "": both
	Guarantee RatePreference `json:"guarantee,omitzero" toml:"guarantee"`  // a rate, or a share of the shaped one
	Limit     RatePreference `json:"limit,omitzero" toml:"limit"`
}

// Values of ClassPreferences.Use. The zero value lets the plan decide: classes
// wherever the platform has them, but not under an article's own settings, nor
// where a queue discipline or its tins are wished for by name.
const (
	ClassesAuto = ""
	ClassesOn   = "on"
	ClassesOff  = "off"
)

// ClassPreferences are what somebody wants of the classes.
type ClassPreferences struct {
	Use        string            `json:"use,omitempty" toml:"use"`
	Rules      []Rule            `json:"rules,omitempty" toml:"rule"`
	Shares     []SharePreference `json:"shares,omitempty" toml:"class"`
	DSCP       DSCPPreference    `json:"dscp,omitzero" toml:"dscp"`
	FirstBytes unit.Size         `json:"first_bytes,omitempty" toml:"first_bytes"` // 0: by the line
}

// IsZero reports whether nothing is wished.
func (w ClassPreferences) IsZero() bool {
	return w.Use == "" && w.Rules == nil && w.Shares == nil && w.DSCP == DSCPPreference{} && w.FirstBytes == 0
}
