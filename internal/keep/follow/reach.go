package follow

import (
	"time"

	"unbloat/unit"
)

// Bounds that nobody has given are learnt. The most is what the line has been seen to
// carry: at it, while the load would take more, a small step beyond is watched, and holds
// if nothing queues meanwhile. The least is halved while the line queues at it.

const (
	leastOfAll = 100 * unit.KbitPerSecond // with less nothing goes on
	leastShare = 10                       // the least at first is so much less than the usual rate

	beyond      = 0.02             // share of a step: what is too much by it adds 20 ms in a second, in which it is seen
	watched     = 4 * time.Second  // a step is: 0.3 % too much are a threshold's 12 ms by then
	countsFirst = 15 * time.Minute // a failed step is not tried again; twice as long each time
	countsMost  = 24 * time.Hour
)

// BoundsOf returns the bounds of a shaper that begins with a rate on a line that usually
// carries so much. A bound of 0 is learnt.
func BoundsOf(least, line, most, rate unit.Rate) Bounds {
	b := Bounds{Least: least, Usual: rate, Most: most, LearnLeast: least == 0, LearnMost: most == 0}
	if b.LearnLeast {
		b.Least = max(rate/leastShare, min(leastOfAll, rate))
	}
	if b.LearnMost {
		b.Most = max(line, rate)
	}
	b.Usual = min(max(b.Usual, b.Least), b.Most)
	return b
}

// reach is how far a rate may go: the policy's bounds, as they are learnt.
type reach struct {
	Bounds
	steps  bool          // Most is a step beyond what has been seen, since then
	since  unit.Instant  // or since its rate is used
	proven unit.Rate     // what has been seen
	counts time.Duration // how long the last failed step does; 0: none failed
	until  unit.Instant  // when it does no longer
	low    unit.Instant  // since when the line queues at the least; 0: it does not
}

// start takes over what was learnt before.
func (r *reach) start(now unit.Instant, known learnedMost) {
	if r.LearnMost && known.bps > 0 {
		r.Most = max(r.Most, unit.Rate(known.bps))
		r.counts, r.until = known.counts, now.Add(known.counts)
	}
	r.proven = r.Most
}

// learn judges what is tried. A call that comes ends it, as whatever else hides what
// becomes of it.
func (r *reach) learn(s *Situation, rate float64) {
	switch {
	case !r.steps:
	case s.Is == IsRefilling || s.Is == IsLosing || s.Doubt > s.Threshold:
		// A line that falls meanwhile says nothing of the step.
		if s.Capacity == 0 || s.Capacity > (1-another)*float64(r.proven) {
			r.counts = min(max(2*r.counts, countsFirst), countsMost)
			r.until = s.At.Add(r.counts)
		}
		r.back()
	case s.Call || s.Is != IsTop && s.Is != IsCalm:
		r.back()
	}
	switch {
	case !r.LearnLeast || s.Is != IsQueueing || rate > float64(r.Least) || s.Capacity == 0 || below*s.Capacity >= rate:
		r.low = 0
	case r.low == 0:
		r.low = s.At
	case s.At.Sub(r.low) > time.Second+s.RTT:
		r.Least, r.low = max(r.Least/2, min(r.Least, leastOfAll)), 0
	}
}

// back ends a step without success.
func (r *reach) back() { r.steps, r.Most = false, r.proven }

// step takes the next one, or watches one that is taken.
func (r *reach) step(s *Situation, rate float64, still time.Duration) (next float64, cause Cause) {
	switch {
	case r.steps && s.Carried < used*rate:
		r.since = s.At
		return 0, Holding
	case r.steps && s.At.Sub(r.since) < watched:
		return 0, Holding
	case r.steps:
		r.steps, r.counts, r.proven = false, 0, r.Most
	}
	if s.Call || s.Tries || s.At < r.until || still < watched {
		return 0, Holding
	}
	r.steps, r.since = true, s.At
	r.Most = unit.Rate((1 + beyond) * float64(r.proven))
	return float64(r.Most), Trying
}
