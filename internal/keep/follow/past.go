package follow

import (
	"math"
	"time"

	"unbloat/unit"
)

// What it goes by; as those of the policy.
const (
	another   = 0.15                   // share by which the capacity of a line that has changed differs at least
	holdsMost = 100 * time.Minute      // that are remembered; so what failed is left alone for a quarter of an hour
	restless  = 10.0                   // s; a line that holds its capacity for less has dips upwards too
	riseSoon  = 0.06                   // s; the first rise is so much of the rate, by the time for which it holds
	retryIn   = 0.15                   // of the time for which the line holds its capacity: then what failed is tried again
	lossyFor  = 5 * time.Minute        // after a loss that was too much a line is taken for one that shows it so: each rise is watched
	dipMost   = 300 * time.Millisecond // a longer queue is of a line that fell
)

// past is what became of earlier rates: what was carried, what was too much, how long the
// line usually stays as it is, and how much of its rate it has again after a dip.
type past struct {
	safe   float64      // bit/s; carried lately without a queue
	failed float64      // bit/s; the capacity when it was too much; 0: never
	retry  unit.Instant // until then not above what failed
	lost   unit.Instant // when it was too much by what was lost; 0: never
	goal   float64      // bit/s; what was safe before the line fell; 0: it fell for good

	level   float64      // bit/s; the capacity that others are compared with
	since   unit.Instant // when it was last seen to be another
	holds   float64      // s; how long it stays as it is, usually
	share   float64      // of the rate before a dip, to which it goes back
	dipping unit.Instant // the end of the last dip; 0: it is judged
}

// queued learns from the queue that begins now how much of its rate the line had again
// after the last dip: radio links often all of it, others seldom.
func (p *past) queued(now unit.Instant, rate float64) {
	switch {
	case p.dipping == 0:
	case now.Sub(p.dipping) < time.Second:
		p.share = max(p.share-riseBack, guess)
	default:
		p.share = min(p.share+another, 1)
	}
	p.dipping = 0
	p.goal = max(p.goal, rate)
}

// dip returns the rate to go back to when a cut ends; 0: none. A queue that is gone so
// soon was from a dip, and the line is what it was. Up, where the shaper alone drains the
// queue, it soon is after a fall as well: there only a line that has changed often is
// taken to be back.
func (p *past) dip(s *Situation, c *cut) float64 {
	lasted := s.At.Sub(c.began)
	switch {
	case lasted >= dipMost || p.goal == 0 || s.Direction == Up && !(s.OneWay && p.holds < restless):
		return 0
	case s.OneWay:
		p.dipping = s.At
		return p.share * min(p.goal, c.from)
	}
	return guess * min(p.goal, c.from)
}

// settled notes at which capacity a queue was gone.
func (p *past) settled(now unit.Instant, capacity float64) {
	p.failed = capacity
	if p.goal < capacity || p.same(capacity) {
		p.goal = 0
	}
	p.compare(now, capacity)
	p.retry = now
	if p.goal == 0 {
		p.retry = now.Add(time.Duration(retryIn * max(p.holds, p.held(now)) * 1e9))
	}
}

// carried notes what was carried without a queue.
func (p *past) carried(now unit.Instant, bps float64) {
	p.safe = max(bps, 0)
	if p.level > 0 && bps > (1+another)*p.level {
		p.compare(now, bps)
	}
}

func (p *past) same(capacity float64) bool {
	return p.level > 0 && math.Abs(capacity-p.level) < another*p.level
}

// compare notes whether the line has changed, and how long it usually stays as it is.
func (p *past) compare(now unit.Instant, capacity float64) {
	if p.same(capacity) {
		return
	}
	if p.level > 0 {
		p.holds += (p.held(now) - p.holds) / 4
	}
	p.level, p.since = capacity, now
}

// held returns for how long the line has held its capacity, in seconds.
func (p *past) held(now unit.Instant) float64 { return min(now.Sub(p.since), holdsMost).Seconds() }

// firstStep is the first rise, of the rate: the more of it, the sooner the line changes.
func (p *past) firstStep() float64 {
	return min(max(riseFirst, riseSoon/max(p.holds, 0.01)), riseBack)
}
