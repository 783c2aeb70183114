// Package follow finds the rates of a line that varies: delays and counters go in,
// rates with reasons come out. It is pure: `now` comes with every call, nothing is
// read, sent or started, and a Step allocates nothing. The simulator, the lab and the
// router run the same code.
//
// The caller's loop, at the times that Decision.Next names:
//
//	if i, ok := c.Ask(now); ok { send a probe to reflector i }
//	for each answer that came      { c.Delay(…) }
//	for each delay of a TCP flow   { c.Delay(…) } // optional, costs no bytes
//	c.Count(counters read just now)
//	d := c.Step(now)
//	if d.Change[follow.Down] { set d.Rate[follow.Down]; c.Applied(now, follow.Down, what is there now) }
package follow

import (
	"errors"
	"fmt"
	"time"

	"unbloat/unit"
)

// A Direction is a way through the line, seen from the home. It indexes arrays.
type Direction uint8

// Directions.
const (
	Down Direction = iota
	Up
)

// String names the direction as reasons and metrics do: "down" or "up".
func (d Direction) String() string {
	if d == Up {
		return "up"
	}
	return "down"
}

// Bounds are the rates of the shaper in one direction. 0 < Least ≤ Usual ≤ Most. BoundsOf
// makes them.
type Bounds struct {
	Least unit.Rate // never below
	Usual unit.Rate // where it starts, and what an idle line goes back to
	Most  unit.Rate // never above
	// What is learnt begins with the bound that is given. The most is, only if Counters say
	// whether somebody talks.
	LearnLeast, LearnMost bool
}

// A Reflector answers probes. Reflectors of one operator vote as one, because they
// tend to fail together.
type Reflector struct {
	Operator uint32 // a number for each operator; 0: one of its own
	// Last is set for one that is asked only while neither other reflectors nor flows
	// tell the delay, such as the user's own server.
	Last bool
}

// MostReflectors is how many reflectors there may be.
const MostReflectors = 32

// Params say what to follow. Times that are 0 take the default that is named.
type Params struct {
	Rates      [2]Bounds // by Direction
	Reflectors []Reflector
	// Every is the least time between two changes of one direction's rate; 50 ms.
	// Routers that reload rules for a new rate need more.
	Every time.Duration
	// ProbeBusy and ProbeIdle are the times between two probes, to whichever reflector,
	// with load and without; 120 ms and 5 s.
	ProbeBusy, ProbeIdle time.Duration
	// Threshold is the least added delay that is taken for a queue; 12 ms.
	Threshold time.Duration
	// Packet is the size of a full packet on the wire; 1514 bytes.
	Packet unit.Size
	// Learned is what is known of the line from before, and learns more; nil: nothing is
	// learnt. It belongs to the controller until nobody uses that any more.
	Learned *Learned
}

// Defaults of Params.
const (
	DefaultEvery     = 50 * time.Millisecond
	DefaultProbeBusy = 120 * time.Millisecond
	DefaultProbeIdle = 5 * time.Second
	DefaultThreshold = 12 * time.Millisecond
	DefaultPacket    = 1514
)

// check completes the parameters, and names what is wrong with them.
func (p Params) check() (Params, error) {
	for d := Down; d <= Up; d++ {
		b := p.Rates[d]
		if b.Least <= 0 || b.Least > b.Usual || b.Usual > b.Most || b.Most > 1e12 {
			return p, fmt.Errorf("follow the line %s: least %v, usual %v and most %v must be above zero and in this order", d, b.Least, b.Usual, b.Most)
		}
	}
	if len(p.Reflectors) > MostReflectors {
		return p, fmt.Errorf("follow the line: %d reflectors; at most %d are possible", len(p.Reflectors), MostReflectors)
	}
	for _, t := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{
		{&p.Every, DefaultEvery}, {&p.ProbeBusy, DefaultProbeBusy},
		{&p.ProbeIdle, DefaultProbeIdle}, {&p.Threshold, DefaultThreshold},
	} {
		if *t.value < 0 || *t.value > time.Minute {
			return p, errors.New("follow the line: a time must be from 0 to a minute")
		}
		if *t.value == 0 {
			*t.value = t.fallback
		}
	}
	if p.Packet == 0 {
		p.Packet = DefaultPacket
	}
	if p.Packet < 64 || p.Packet > 64<<10 {
		return p, fmt.Errorf("follow the line: a packet of %v; 64 B to 64 KiB are possible", p.Packet)
	}
	return p, nil
}

// A Delay is one answer to a probe, or one round trip of a TCP flow that was seen
// on the WAN.
type Delay struct {
	At unit.Instant // when the answer came in on the WAN
	// Source is the reflector's index; for a flow any number that tells it from others.
	Source uint32
	// Operator of a flow's far end, such as a hash of its network. Ignored for reflectors.
	Operator uint32
	Passive  bool // of a flow
	RTT      time.Duration
	// Up and Down are one-way times, if OneWay, or by how much they exceed any fixed
	// value. The clocks at both ends need not agree, nor run at quite the same speed.
	OneWay   bool
	Up, Down time.Duration
}

// A Count is what the counters of one direction read.
type Count struct {
	// Bytes that crossed the WAN since some origin: sent to the line by the shaper, or
	// arrived from the line before the shaper.
	Bytes unit.Size
	// Backlog is what waits in the shaper now.
	Backlog unit.Size
	// Drops of the shaper, in packets, since some origin.
	Drops uint64
	// Acked bytes of uploads, where somebody counts them; 0: not known.
	Acked unit.Size
	// Of TCP's data that crossed the WAN: KiB that were followed, and of them those that
	// the line lost, since some origin; 0: nobody looks.
	Seen, Lost uint64
}

// Counters are both directions' counts at one time.
type Counters struct {
	At  unit.Instant
	Way [2]Count // by Direction
	// Call says that a call is on board: nothing is tried beside it.
	Call bool
}

// A Decision is what Step found.
type Decision struct {
	Rate   [2]unit.Rate // what the shapers are to have
	Change [2]bool      // the rate differs from what the shaper has
	Why    [2]Why       // why the rate is what it is
	// Next is when the next Step is due at the latest.
	Next unit.Instant
}

// A Belief is what the controller takes the line for, in one direction. It goes up as it
// is, to whoever shows it; the JSON of `unbloat status` has what has a name there.
type Belief struct {
	Rate     unit.Rate         `json:"rate_bps"`           // the shaper's
	Capacity unit.Rate         `json:"capacity_bps"`       // that the line is believed to have; 0: not seen yet
	Carried  unit.Rate         `json:"carried_bps"`        // over the last 200 ms
	Delay    unit.Milliseconds `json:"delay_ms"`           // added by this direction's queue on the line
	Floor    unit.Milliseconds `json:"floor_ms"`           // of it, what the line adds under any load
	Most     unit.Rate         `json:"most_bps,omitempty"` // where it is learnt: what the line has been seen to carry
	Why      Why               `json:"why"`                // the last change

	Sigma      unit.Rate     `json:"-"` // standard deviation of Capacity over the last measurements
	Threshold  time.Duration `json:"-"` // Delay beyond it counts as a queue
	LastSafe   unit.Rate     `json:"-"` // highest rate that was carried lately without a queue
	LastFailed unit.Rate     `json:"-"` // lowest rate that was too much lately; 0: none
	Busy       bool          `json:"-"` // there is load
	Holds      time.Duration `json:"-"` // how long the line usually holds its capacity
	WhyAt      unit.Instant  `json:"-"`
}

// Health is what is known of a reflector.
type Health struct {
	Answers  bool              `json:"answers"`
	Asked    uint64            `json:"asked"` // probes sent to it
	Answered uint64            `json:"answered"`
	Base     unit.Milliseconds `json:"base_ms,omitempty"` // its least round trip lately; 0: none yet
}
