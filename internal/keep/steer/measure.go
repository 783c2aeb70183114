package steer

import (
	"context"
	"slices"
	"time"

	"unbloat/internal/keep/delay"
	"unbloat/internal/keep/follow"
	"unbloat/unit"
)

// Measure returns what measures a line whose rates are held. It changes nothing, and its
// probes stay within what a day without load may cost, whatever the line carries: too few
// for a controller, enough to tell the delay.
func Measure(c Config) (*Follower, error) { return Follow(measuring(c)) }

// measuring completes a line's configuration for that. A controller that is alert asks twice
// as often as when the line is busy.
func measuring(c Config) Config {
	idle := time.Duration(0)
	for _, t := range delay.WithFirstHop(delay.Resolvers()) {
		_, apart := delay.Pace([]delay.Target{t})
		idle = max(idle, apart)
	}
	c.Params.ProbeBusy, c.Params.ProbeIdle = 2*idle, idle
	c.Set = func(context.Context, [2]unit.Rate) error { return nil }
	c.heard = &hearing{least: map[uint32][2]time.Duration{}, patience: 3 * idle}
	return c
}

// A hearing is what was heard lately of the delay of a line that nobody follows.
type hearing struct {
	least    map[uint32][2]time.Duration // round trip of each source: now, and in the time before
	turned   unit.Instant                // when that began anew
	at       unit.Instant                // of the last
	last     [][2]time.Duration          // by direction
	patience time.Duration               // then nothing is known
}

// What a hearing remembers.
const (
	leastFor    = 10 * time.Minute
	mostSources = 1000
	lastHeard   = 3 // the median of which is the delay
)

// hear takes a sample in. A round trip that says nothing of the two ways is put down to the
// direction that is fuller.
func (h *hearing) hear(x delay.Sample, fuller follow.Direction) {
	if x.At.Sub(h.turned) >= leastFor || len(h.least) > mostSources {
		for id, l := range h.least {
			if h.least[id] = [2]time.Duration{0, l[0]}; l[0] == 0 || len(h.least) > mostSources {
				delete(h.least, id)
			}
		}
		h.turned = x.At
	}
	id := x.ID() ^ uint32(x.Kind)<<8 ^ uint32(x.Way)
	l := h.least[id]
	if l[0] == 0 || x.RTT < l[0] {
		l[0] = x.RTT
	}
	h.least[id] = l
	if base := l[1]; base != 0 {
		l[0] = min(l[0], base)
	}
	var added [2]time.Duration
	if added[fuller] = x.RTT - l[0]; x.OneWay {
		added = [2]time.Duration{follow.Down: x.Down, follow.Up: x.Up}
	}
	h.at = x.At
	if h.last = append(h.last, added); len(h.last) > lastHeard {
		h.last = h.last[1:]
	}
}

// delay is what the line adds in a direction; known is false if nothing was heard lately.
func (h *hearing) delay(now unit.Instant, d follow.Direction) (added time.Duration, known bool) {
	if len(h.last) == 0 || now.Sub(h.at) > h.patience {
		return 0, false
	}
	var of []time.Duration
	for _, x := range h.last {
		of = append(of, x[d])
	}
	slices.Sort(of)
	return of[len(of)/2], true
}
