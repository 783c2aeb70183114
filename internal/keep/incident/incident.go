// Package incident finds what goes wrong on a line: when it began and ended, how bad
// it was, and which part is to blame. It is pure: seconds of what a router sees go in,
// incidents come out, the same for a line, a file of recorded seconds and a test.
package incident

import (
	"time"

	"unbloat/reason"
	"unbloat/unit"
)

// A Kind is what went wrong.
type Kind string

// Kinds, the strongest first: what a stronger one explains is not told beside it.
const (
	Outage Kind = "outage" // nothing arrives
	Loss   Kind = "loss"   // packets are lost
	Slow   Kind = "slow"   // the line carries less than was promised
	Path   Kind = "path"   // packets go another way, or the address is another one
	Bloat  Kind = "bloat"  // packets wait
)

// Kinds returns all kinds, the strongest first.
func Kinds() []Kind { return []Kind{Outage, Loss, Slow, Path, Bloat} }

// A Part is who is to blame.
type Part string

// Parts, from the home outwards.
const (
	Home     Part = "home"     // its cables, its Wi-Fi, the modem's power
	Router   Part = "router"   // this router: its processor, its shaper, its routes
	Line     Part = "line"     // up to the provider's first router
	Provider Part = "provider" // beyond that
	Far      Part = "far"      // one far end alone
	Unsure   Part = "unsure"   // what was seen does not decide
)

// Parts returns all parts.
func Parts() []Part { return []Part{Home, Router, Line, Provider, Far, Unsure} }

// A Severity is how bad it was.
type Severity string

// Severities.
const (
	Minor  Severity = "minor"  // few would notice
	Major  Severity = "major"  // calls and games suffer
	Severe Severity = "severe" // the line is of no use meanwhile
)

// Severities returns all of them, the mildest first.
func Severities() []Severity { return []Severity{Minor, Major, Severe} }

// A Second is what a router saw within a second.
type Second struct {
	At    time.Time // its begin
	Way   [2]Way    // down, up
	First Answers   // of the provider's first router
	Far   []Answers // of each far end, always in the same order; they have different operators
	WAN   Port      // towards the modem
	LAN   Port      // towards the home
	Route uint32    // another number says: another default route, or another address
	CPU   float64   // share of the time in which the processors were busy, 0–1; below 0: not known
}

// A Way is one direction of a Second.
type Way struct {
	Rate    unit.Rate // of the shaper; 0: none
	Carried unit.Rate // below 0: not known
}

// Answers are what became of the probes that were sent in a second.
type Answers struct {
	Asked, Answered int
	RTT             unit.Milliseconds // of the quickest that was answered
}

// Hear takes in an answer.
func (a *Answers) Hear(rtt time.Duration) {
	ms := unit.Milliseconds(rtt)
	if a.Answered++; a.Answered == 1 || ms < a.RTT {
		a.RTT = ms
	}
}

// A Hop is a router on the way to the first far end, beyond the provider's first, and what
// became of questions that ended there.
type Hop struct {
	Hop     int
	Address string
	Near    bool // it is in the far end's own network
	Answers
}

// A Port is one of the router's interfaces.
type Port struct {
	Known   bool
	Up      bool // it has a link
	Packets uint64
	Errors  uint64 // packets that were lost at it
}

// An Incident is something that went wrong.
type Incident struct {
	ID        string    `json:"id"`
	WAN       string    `json:"wan"`
	Router    string    `json:"router,omitempty"`
	Kind      Kind      `json:"kind"`
	Part      Part      `json:"part"`
	Severity  Severity  `json:"severity"`
	Direction string    `json:"direction,omitempty"` // down or up; missing: both, or not known
	Begin     time.Time `json:"begin"`
	End       time.Time `json:"end,omitzero"` // zero: it goes on
	Figures   Figures   `json:"figures"`
	// What it was and Why that part is to blame, as data that can be said in words.
	What reason.Reason `json:"what"`
	Why  reason.Reason `json:"why"`
	// Digest is the SHA-256 of the samples as CSV, in hexadecimal; "" while it goes on.
	Digest  string   `json:"sha256,omitempty"`
	Samples []Second `json:"-"`
	Far     []string `json:"far"` // names of the far ends
}

// Over reports whether it has ended.
func (x Incident) Over() bool { return !x.End.IsZero() }

// Lasted returns how long it lasted; until now, if it goes on.
func (x Incident) Lasted(now time.Time) time.Duration {
	if x.Over() {
		now = x.End
	}
	return max(now.Sub(x.Begin), 0)
}

// Figures are what was seen from begin to end.
type Figures struct {
	FirstAsked    int               `json:"first_asked"` // probes to the provider's first router
	FirstAnswered int               `json:"first_answered"`
	FarAsked      int               `json:"far_asked"` // to far ends
	FarAnswered   int               `json:"far_answered"`
	FirstRise     unit.Milliseconds `json:"first_rise_ms"` // median above what is usual
	FarRise       unit.Milliseconds `json:"far_rise_ms"`
	FarMost       unit.Milliseconds `json:"far_most_ms"` // the worst second's
	Carried       [2]unit.Rate      `json:"carried_bps"` // down, up: the mean
	Promised      [2]unit.Rate      `json:"promised_bps"`
	Shaper        [2]unit.Rate      `json:"shaper_bps"` // the mean; 0: none
	CPU           float64           `json:"cpu"`        // the mean; below 0: not known
}

// Params are what is known of a line.
type Params struct {
	WAN, Router string
	Promised    [2]unit.Rate      // down, up; 0: not known
	Far         []string          // names of the far ends
	Limit       unit.Milliseconds // more delay than this is bloat; 0: DefaultLimit
}

// DefaultLimit is the added delay from which calls stumble.
const DefaultLimit = unit.Milliseconds(50 * time.Millisecond)
