package follow

import (
	"time"

	"unbloat/unit"
)

// Estimator: what is carried. The interface's counters, kept for a few seconds, say what a
// direction carries, whether the shaper holds packets back, and so whether there is load.

const (
	counted = 64 // readings that are kept: at 50 ms three seconds, in which probes come back

	// window is the time over which rates are averaged, and in which what was changed
	// shows in them: four readings, and the packets of a round trip.
	window = 200 * time.Millisecond
	// moment is how long what was done may still show in delays: longer than a queue takes
	// to drain, and the news of it to arrive.
	moment = 2 * time.Second

	busyShare = 0.5 // of the rate: there is load, and a queue can be of this direction
	fullShare = 0.8 // of the rate: the load would take more
	used      = 0.9 // of the rate: more says that the shaper, less that something else is what limits
)

// counters are the last readings.
type counters struct {
	ring [counted]Counters
	n    uint64
}

// add takes a reading in. One that goes back in time, or whose counters did, is a
// new beginning.
func (h *counters) add(c Counters) {
	if h.n > 0 {
		last := h.last()
		if c.At == last.At {
			return
		}
		if c.At < last.At || c.Way[Down].Bytes < last.Way[Down].Bytes || c.Way[Up].Bytes < last.Way[Up].Bytes {
			h.n = 0
		}
	}
	h.ring[h.n%counted] = c
	h.n++
}

// call says whether somebody talks.
func (h *counters) call() bool { return h.n > 0 && h.last().Call }

func (h *counters) last() *Counters { return h.back(0) }

func (h *counters) back(k uint64) *Counters { return &h.ring[(h.n-1-k)%counted] }

func (h *counters) kept() uint64 { return min(h.n, counted) }

// at returns the bytes of a direction at an instant, interpolated.
func (h *counters) at(d Direction, at unit.Instant) float64 {
	if h.n == 0 {
		return 0
	}
	later := h.last()
	if at >= later.At {
		return float64(later.Way[d].Bytes)
	}
	for k := uint64(1); k < h.kept(); k++ {
		earlier := h.back(k)
		if earlier.At <= at {
			share := float64(at-earlier.At) / float64(later.At-earlier.At)
			return float64(earlier.Way[d].Bytes) + share*float64(later.Way[d].Bytes-earlier.Way[d].Bytes)
		}
		later = earlier
	}
	return float64(later.Way[d].Bytes)
}

// bits returns what a direction carried between two instants.
func (h *counters) bits(d Direction, from, to unit.Instant) float64 {
	return (h.at(d, to) - h.at(d, from)) * 8
}

// carried returns the mean rate of a direction in the time before the last reading,
// in bit/s; ok is false if there are no readings of that time.
func (h *counters) carried(d Direction, over time.Duration) (bps float64, ok bool) {
	if h.n < 2 {
		return 0, false
	}
	last := h.last()
	from := max(last.At.Add(-over), h.back(h.kept()-1).At)
	if last.At <= from {
		return 0, false
	}
	return h.bits(d, from, last.At) / (last.At - from).Seconds(), true
}

// backlog returns the least and the most that waited in the shaper at the readings within
// a time; ok is false without readings.
func (h *counters) backlog(d Direction, over time.Duration) (least, most unit.Size, ok bool) {
	for k := uint64(0); k < h.kept(); k++ {
		c := h.back(k)
		if h.last().At.Sub(c.At) > over {
			break
		}
		x := c.Way[d].Backlog
		if k == 0 {
			least = x
		}
		least, most = min(least, x), max(most, x)
	}
	return least, most, h.n > 0
}

// load is what one direction carries.
type load struct {
	carried float64 // bit/s
	holds   bool    // packets wait in the shaper
	busy    bool
	full    bool         // more could be used
	lately  bool         // busy now or a moment ago: a line that falls makes a load look light
	at      unit.Instant // the last time that it was busy
}

// look reads the counters of a direction whose shaper has a rate. queues says that its
// delay was long: while the line queues there is load, however little it carries.
func (l *load) look(now unit.Instant, h *counters, d Direction, rate float64, packet unit.Size, queues bool) {
	bps, ok := h.carried(d, window)
	least, _, _ := h.backlog(d, stepBusy)
	l.carried, l.holds = bps, least >= 2*packet
	l.busy = ok && (bps >= busyShare*rate || l.holds)
	l.full = ok && (bps >= fullShare*rate || l.holds)
	some := bps > rate/20
	if l.busy || queues && l.lately && some {
		l.at = now
	}
	l.lately = l.busy || now.Sub(l.at) < moment && some
}
