package follow

import (
	"math"
	"time"

	"unbloat/unit"
)

// past is what became of earlier rates: what was carried, what was too much, how long the
// line usually stays as it is, and how much of its rate it has again after a dip.
type past struct {
	safe   float64      // bit/s; carried lately without a queue
	failed float64      // bit/s; the capacity when it was too much; 0: never
	retry  unit.Instant // until then not above what failed
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
		p.share = max(p.share-dipLess, dipBack)
	default:
		p.share = min(p.share+dipMore, 1)
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
	case p.goal == 0 || s.Direction == Up && !(s.OneWay && p.holds < varying):
	case s.OneWay && lasted < dipMost:
		p.dipping = s.At
		return p.share * min(p.goal, c.from)
	case lasted < dipUnsure:
		return dipBack * min(p.goal, c.from)
	}
	return 0
}

// settled notes at which capacity a queue was gone.
func (p *past) settled(now unit.Instant, capacity float64) {
	p.failed = capacity
	if p.goal < capacity || p.same(capacity) {
		p.goal = 0
	}
	p.compare(now, capacity)
	wait := retryShare * max(p.holds, now.Sub(p.since).Seconds())
	if p.holds < volatile || p.goal > 0 {
		wait = 0
	}
	p.retry = now.Add(min(time.Duration(wait*1e9), retryMost))
}

// carried notes what was carried without a queue.
func (p *past) carried(now unit.Instant, bps float64) {
	p.safe = max(bps, 0)
	if p.level > 0 && bps > (1+steadyBand)*p.level {
		p.compare(now, bps)
	}
}

func (p *past) same(capacity float64) bool {
	return p.level > 0 && math.Abs(capacity-p.level) < steadyBand*p.level
}

// compare notes whether the line has changed, and how long it usually stays as it is.
func (p *past) compare(now unit.Instant, capacity float64) {
	if p.same(capacity) {
		return
	}
	if p.level > 0 {
		p.holds += holdsMean * (min(now.Sub(p.since).Seconds(), holdsMost.Seconds()) - p.holds)
	}
	p.level, p.since = capacity, now
}

// firstStep is the first rise, of the rate: the more of it, the sooner the line changes.
func (p *past) firstStep() float64 {
	return min(max(riseFirst, riseVolatile/max(p.holds, 0.01)), riseFirstMost)
}
