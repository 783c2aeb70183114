package follow

import (
	"time"

	"unbloat/unit"
)

// historySlots readings at 50 ms are three seconds.
const historySlots = 64

// history are the last readings of the counters.
type history struct {
	ring [historySlots]Counters
	n    uint64
}

// add takes a reading in. One that goes back in time, or whose counters did, is a
// new beginning.
func (h *history) add(c Counters) {
	if h.n > 0 {
		last := h.last()
		if c.At == last.At {
			return
		}
		if c.At < last.At || c.Way[Down].Bytes < last.Way[Down].Bytes || c.Way[Up].Bytes < last.Way[Up].Bytes {
			h.n = 0
		}
	}
	h.ring[h.n%historySlots] = c
	h.n++
}

func (h *history) last() *Counters { return &h.ring[(h.n-1)%historySlots] }

func (h *history) back(k uint64) *Counters { return &h.ring[(h.n-1-k)%historySlots] }

// at returns the bytes of a direction at an instant, interpolated.
func (h *history) at(d Direction, at unit.Instant) float64 {
	if h.n == 0 {
		return 0
	}
	later := h.last()
	if at >= later.At {
		return float64(later.Way[d].Bytes)
	}
	for k := uint64(1); k < min(h.n, historySlots); k++ {
		earlier := h.back(k)
		if earlier.At <= at {
			share := float64(at-earlier.At) / float64(later.At-earlier.At)
			return float64(earlier.Way[d].Bytes) + share*float64(later.Way[d].Bytes-earlier.Way[d].Bytes)
		}
		later = earlier
	}
	return float64(later.Way[d].Bytes)
}

// carried returns the mean rate of a direction in the time before the last reading,
// in bit/s; ok is false if there are no readings of that time.
func (h *history) carried(d Direction, over time.Duration) (bps float64, ok bool) {
	if h.n < 2 {
		return 0, false
	}
	last := h.last()
	oldest := h.back(min(h.n, historySlots) - 1)
	from := max(last.At.Add(-over), oldest.At)
	if last.At <= from {
		return 0, false
	}
	return (float64(last.Way[d].Bytes) - h.at(d, from)) * 8 / (last.At - from).Seconds(), true
}

// waited says whether so much waited in the shaper at each of the readings within a time.
func (h *history) waited(d Direction, over time.Duration, least unit.Size) bool {
	return h.all(over, func(c *Counters) bool { return c.Way[d].Backlog >= least })
}

// flowed says whether less waited at each of them.
func (h *history) flowed(d Direction, over time.Duration, most unit.Size) bool {
	return h.all(over, func(c *Counters) bool { return c.Way[d].Backlog < most })
}

func (h *history) all(over time.Duration, is func(*Counters) bool) bool {
	for k := uint64(0); k < min(h.n, historySlots); k++ {
		c := h.back(k)
		if h.last().At.Sub(c.At) > over {
			break
		}
		if !is(c) {
			return false
		}
	}
	return h.n > 0
}
