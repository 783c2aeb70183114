package follow

import (
	"math"
	"time"

	"unbloat/unit"
)

// Estimator: what the line carries. While it queues it is busy without a break: what was
// sent between two probes came out between their ends, and that is the line's rate. Nothing
// is known of a line that does not queue, but that it carries what it carries.

// markSpan is the time between two marks, if there are two so far apart: at 1 Mbit/s ten
// full packets. From less than half of it nothing is told.
const markSpan = 120 * time.Millisecond

// mark is a probe that went through the line's queue.
type mark struct {
	enter, exit unit.Instant
	queued      bool
}

// capacity is what a direction of the line carries.
type capacity struct {
	marks    [sampleSlots]mark
	n        uint64
	at       unit.Instant // the last measurement
	mean     float64      // bit/s; 0: none yet
	variance float64
	low      float64 // a low quantile
}

// mark keeps a probe.
func (c *capacity) mark(m mark) {
	c.marks[c.n%sampleSlots] = m
	c.n++
}

func (c *capacity) back(k uint64) mark { return c.marks[(c.n-1-k)%sampleSlots] }

// measure returns the rate at which the line served its queue between the last marks
// in it. ok is false if there were none.
func (c *capacity) measure(h *counters, d Direction, b Bounds, now unit.Instant) (bps float64, ok bool) {
	if c.n == 0 {
		return 0, false
	}
	last := c.back(0)
	if !last.queued || now.Sub(last.enter) > time.Second+2*last.exit.Sub(last.enter) {
		return 0, false
	}
	first := last
	for k := uint64(1); k < min(c.n, sampleSlots); k++ {
		m, span := c.back(k), last.exit.Sub(first.exit)
		if span >= markSpan || !m.queued && span >= markSpan/2 {
			break // what came before one that did not queue is a lower bound only
		}
		if m.enter <= first.enter && m.exit <= first.exit {
			first = m
		}
		if !m.queued {
			break
		}
	}
	span := last.exit.Sub(first.exit)
	if span < markSpan/2 {
		return 0, false
	}
	bps = min(max(h.bits(d, first.enter, last.enter)/span.Seconds(), float64(b.Least)/2), 2*float64(b.Most))
	if last.enter > c.at {
		c.take(last.enter, bps)
	}
	return bps, true
}

// take keeps the mean, the variance and a low quantile of the measurements.
func (c *capacity) take(at unit.Instant, bps float64) {
	c.at = at
	if c.mean == 0 {
		c.mean, c.low = bps, bps
		return
	}
	off := bps - c.mean
	c.mean += off / 2
	c.variance += (off*off - c.variance) / 8
	if bps < c.low {
		c.low -= min(0.09*c.low, c.low-bps)
	} else {
		c.low += min(0.01*c.low, bps-c.low)
	}
}

func (c *capacity) sigma() float64 { return math.Sqrt(c.variance) }

// forget drops what was measured of another line.
func (c *capacity) forget() { *c = capacity{low: c.low, at: c.at} }
