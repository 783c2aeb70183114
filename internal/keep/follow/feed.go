// This file has the way from what measures a line to the controller that follows
// it. The router and the simulator both go it: what differs between them is behind
// Sources. It is pure.

package follow

import (
	"cmp"
	"errors"
	"hash/fnv"
	"slices"

	"unbloat/internal/keep/delay"
	"unbloat/unit"
)

// Sources measure a line.
type Sources interface {
	// Ask sends a probe to a target. What cannot be sent now is lost.
	Ask(now unit.Instant, target int) error
	// Read hands over the samples that have come since it was last called.
	Read(now unit.Instant, receive func(delay.Sample)) error
	// Count reads the counters.
	Count(now unit.Instant) (Reading, error)
}

// A Reading is what the counters read, and what the shapers have.
type Reading struct {
	Counters
	Rates [2]unit.Rate // of the shapers, by Direction; 0: not known
}

// A Decider decides; *Controller is one.
type Decider interface {
	Ask(now unit.Instant) (reflector int, ok bool)
	Delay(d Delay)
	Count(c Counters)
	Applied(now unit.Instant, d Direction, rate unit.Rate)
	Step(now unit.Instant) Decision
}

// A Feed gives a controller what sources measure. It is for one goroutine.
type Feed struct {
	controller Decider
	delays     []Delay // of one round, kept to save memory
}

// NewFeed returns the feed of a controller.
func NewFeed(c Decider) *Feed { return &Feed{controller: c} }

// Round measures and decides once. The decision is valid whatever the error says:
// then a source failed, and its part is missing.
func (f *Feed) Round(now unit.Instant, s Sources) (Decision, error) {
	var why []error
	if i, due := f.controller.Ask(now); due {
		why = append(why, s.Ask(now, i))
	}
	f.delays = f.delays[:0]
	why = append(why, s.Read(now, func(x delay.Sample) { f.delays = append(f.delays, delayOf(x)) }))
	slices.SortStableFunc(f.delays, func(a, b Delay) int { return int(max(min(a.At-b.At, 1), -1)) })
	for _, d := range f.delays {
		f.controller.Delay(d)
	}
	k, err := s.Count(now)
	if why = append(why, err); err == nil {
		f.controller.Count(k.Counters)
		for d, rate := range k.Rates {
			if rate > 0 {
				f.controller.Applied(now, Direction(d), rate)
			}
		}
	}
	return f.controller.Step(now), errors.Join(why...)
}

// delayOf returns a sample as the controller takes it. What the two ways of
// connections to one network tell are two sources of one operator: they wait at
// different places, and so have different least round trips.
func delayOf(s delay.Sample) Delay {
	d := Delay{At: s.At, Source: uint32(s.Index), RTT: s.RTT, OneWay: s.OneWay, Up: s.Up, Down: s.Down}
	if s.Kind == delay.Passive {
		d.Passive, d.Operator = true, s.ID()
		d.Source = d.Operator
		if s.Way == delay.Down {
			d.Source = ^d.Operator
		}
	}
	return d
}

// ParamsOf completes a controller's parameters with what targets it has, and how often
// the budget allows to ask them.
func ParamsOf(p Params, targets []delay.Target) Params {
	busy, idle := delay.Pace(targets)
	p.ProbeBusy = cmp.Or(p.ProbeBusy, busy)
	p.ProbeIdle = cmp.Or(p.ProbeIdle, idle)
	p.Reflectors = nil
	for _, t := range targets {
		p.Reflectors = append(p.Reflectors, Reflector{Operator: number(t.Operator), Last: t.Kind == delay.Native})
	}
	return p
}

// number returns a number for an operator's name; 0 for none.
func number(name string) uint32 {
	if name == "" {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // never fails
	return max(h.Sum32(), 1)
}
