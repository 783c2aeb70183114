package follow

import (
	"math"
	"time"

	"unbloat/unit"
)

// The policy: which rate a situation asks for, and why. It sees no sample, and remembers
// only what it has done about earlier situations and what became of it (past.go).

// What it goes by. Shares are of the capacity, or of the rate where it is not known. Where
// no arithmetic is given the value was found by trying, on the lines of
// scenarios/follow-*.toml.
const (
	below = 0.95 // share that the shaper takes: a queue that comes by chance is gone within some seconds
	near  = 0.03 // share by which two measurements of one capacity differ; less is the same rate
	guess = 0.70 // share that is taken for carried while it can't be measured, and that is left after a dip

	// A queue is let drain to 1/e in so many seconds, with at least so much left to the
	// load. Downwards it drains only as senders slow down, and what the shaper drops for
	// it is dear; upwards it drains at once.
	drainDown, leastDown = 0.5, 0.30
	drainUp, leastUp     = 0.25, 0.20

	riseFirst  = 0.01 // share of the first rise, and for each second without load: less than a probe can tell from a queue
	riseFaster = 1.28 // of the rise before: from 1 % to the most in 13 rises, within 3 s
	riseMost   = 0.25 // share of a rise: what is too much of it drains within half a second
	riseBack   = 0.10 // share of the rises to what was safe before the line fell, and of the first one on the most restless line

	// patience is how long what nobody can know is left as it is: a rate while nobody
	// tells the delay, which then glides for as long; a delay that was no floor.
	patience = 30 * time.Second
)

// policy is that of one direction.
type policy struct {
	reach
	rate     float64 // bit/s, of the shaper
	target   float64 // bit/s, what it is to be
	changed  unit.Instant
	cut      cut
	past     past
	rises    float64 // in a row
	moved    unit.Instant
	out      bool // the rate is that of an outage
	before   float64
	returned unit.Instant // the end of the last outage
	after    float64      // bit/s; the rate of after a cut in which nobody answered any more
	why      Why
	whyAt    unit.Instant
}

// decide is the whole policy, a line for each situation. A rate of 0 leaves the shaper as
// it is. All draw on the same figures, whichever direction it is.
func (p *policy) decide(s *Situation) (rate float64, why Cause) {
	switch s.Is {
	case IsOutage: // as little as of the longest queue, so that the modem is not filled meanwhile
		return p.trickle(s), Outage
	case IsBack: // half of the rate before
		return p.half(s), Returned
	case IsIdle: // by 1 % a second towards the usual rate of this hour
		return p.rest(s), Idle
	case IsBlind: // at first what the line carried when it was last seen; later slowly to what nearly always fits
		return p.hold(s)
	case IsMistaken: // the rate before the cut
		return p.restore(min(p.cut.from, below*s.Capacity), s.At), OtherWay
	case IsFloor: // the same, and none higher until it is certain
		cause := p.noHelp()
		return p.restore(p.cut.from, s.At.Add(moment)), cause
	case IsQueueing: // so far below the capacity that the queue drains
		return p.lower(s)
	case IsLosing: // just below what comes through
		return p.relieve(s), Loss
	case IsDraining: // nearer to the capacity, the less there is to drain
		return p.law(p.capacity(s), s), Draining
	case IsDrained, IsRefilling: // 95 % of the capacity; after a dip most of the rate before
		return p.settle(s), Drained
	case IsRoom: // more, in growing steps; near what failed lately no more for a while
		return p.rise(s)
	case IsTop: // where the most is learnt: a small step beyond, which is watched
		return p.reach.step(s, p.rate, s.At.Sub(p.moved))
	}
	return 0, Holding // IsShaped, IsUnclear, IsCalm
}

// step decides, and says whether the shaper is to be given another rate now.
func (p *policy) step(s *Situation, every time.Duration) (change bool) {
	p.learn(s, p.rate)
	if rate, why := p.decide(s); rate > 0 {
		p.target = rate
		p.say(s, why)
	}
	p.target = p.clamp(p.target)
	if s.At.Sub(p.changed) >= every && p.worth() {
		p.rate, p.changed, change = p.target, s.At, true
	}
	return change
}

// A cut is what is done about a queue, from the first lower rate until the queue is gone.
type cut struct {
	on       bool
	began    unit.Instant
	at       unit.Instant  // when the rate was last set for it
	from     float64       // the rate before it
	capacity float64       // what the line carried when the queue last grew
	guessed  bool          // that is no measurement
	grown    time.Duration // the delay then
	delay    time.Duration // when the rate was set whose effect is waited for
	judge    unit.Instant  // when that is to show
	loss     float64       // share that was lost; 0: it is for a delay
}

const notYet = unit.Instant(math.MaxInt64)

// waits says that it is too early for the next guess of what the line carries.
func (c *cut) waits(s *Situation) bool { return s.At.Sub(c.at) < s.RTT+window }

// noHelp is the cause of taking a cut back. Loss that is the line's own does not tell what is
// too much, so rises are no longer watched for it.
func (p *policy) noHelp() Cause {
	if p.cut.loss == 0 {
		return NoHelp
	}
	p.past.lost = 0
	return OwnLoss
}

// relieve sets the rate below what came through a line that drops the rest. If that does
// not help, it may have been too much still. What is sent again shows a round trip later.
func (p *policy) relieve(s *Situation) float64 {
	c, next := &p.cut, below*s.Capacity
	if c.on {
		next, c.guessed = guess*p.rate, true
	} else {
		p.past.queued(s.At, min(p.rate, p.past.safe))
		*c = cut{on: true, began: s.At, from: p.rate}
	}
	c.at, c.capacity, c.loss, c.judge = s.At, s.Capacity, s.Loss, s.At.Add(2*s.RTT+window)
	p.past.failed, p.past.lost, p.rises = max(c.capacity, 1), s.At, 0
	return next
}

// lower sets the rate so that the queue drains.
func (p *policy) lower(s *Situation) (float64, Cause) {
	c, capacity, known := &p.cut, s.Capacity, s.Capacity > 0
	if !known {
		if c.on && c.waits(s) {
			return 0, Holding
		}
		capacity = min(max(s.Carried, guess*p.rate), p.rate)
	}
	switch {
	case !c.on:
		p.past.queued(s.At, min(p.rate, p.past.safe))
		*c = cut{on: true, began: s.At, from: p.rate, capacity: capacity, grown: s.Raw, guessed: !known, judge: notYet}
	case known && c.guessed:
		c.capacity, c.grown, c.guessed = capacity, s.Raw, false
	case capacity > c.capacity, s.Limits, grown(s.Raw, c.grown, 8):
		// What is carried at the shaper's own rate says something of the line only
		// while the queue grows.
		c.capacity, c.grown = capacity, s.Raw
	}
	c.at, c.loss = s.At, 0
	if s.Asked >= c.judge {
		c.judge = notYet
	}
	p.past.failed, p.rises = max(c.capacity, 1), 0
	next, cause := p.law(c.capacity, s), Queue
	if !known {
		next = max(next, guess*p.rate)
	}
	if next > p.target {
		cause = Draining
	}
	if c.judge == notYet {
		c.delay = s.Raw - s.Own
		drains := float64(s.Delay) / max(1-next/p.past.failed, 0.05)
		c.judge = s.At.Add(min(time.Duration(drains), time.Second) + s.RTT)
	}
	return next, cause
}

// law returns the rate that drains the excess of the delay in the time it may take.
// Downwards the queue drains only as senders slow down, and what the shaper drops for it
// is dear; upwards it drains at once.
func (p *policy) law(capacity float64, s *Situation) float64 {
	within, least := drainDown, leastDown
	if s.Direction == Up {
		within, least = drainUp, leastUp
	}
	excess := max(s.Delay-s.Threshold/2, 0).Seconds()
	return capacity * max(below-excess/within, least)
}

// capacity returns what is measured, or what is believed.
func (p *policy) capacity(s *Situation) float64 {
	if s.Capacity > 0 {
		return s.Capacity
	}
	return s.Believed
}

// settle ends a cut.
func (p *policy) settle(s *Situation) float64 {
	capacity, next := p.capacity(s), p.target
	if capacity > 0 {
		next = below * capacity
	}
	failed := max(capacity, next)
	if p.cut.on {
		next = max(next, p.past.dip(s, &p.cut))
	}
	p.past.settled(s.At, failed)
	p.cut, p.moved, p.rises = cut{}, s.At, 0
	return next
}

// restore takes a cut back.
func (p *policy) restore(rate float64, until unit.Instant) float64 {
	p.cut, p.rises, p.moved = cut{}, 0, until
	return max(p.target, rate)
}

// rise takes more.
func (p *policy) rise(s *Situation) (float64, Cause) {
	every := max(window, s.RTT)
	if p.past.lost > 0 && s.At.Sub(p.past.lost) < lossyFor {
		every = lossShows + s.RTT
	}
	if s.At.Sub(p.moved) < every || s.At.Sub(p.changed) < every/2 {
		return 0, Holding
	}
	p.past.carried(s.At, s.Carried)
	by := min(p.past.firstStep()*math.Pow(riseFaster, p.rises), riseMost)
	if goal := p.past.goal; goal > p.rate {
		by = max(by, min(riseBack, goal/p.rate-1))
	}
	next, cause := p.rate*(1+by), Room
	if failed := (1 - near) * p.past.failed; s.At < p.past.retry && failed > 0 && next > failed {
		if next, cause = failed, NearFailed; next < 1.01*p.rate {
			p.rises = 0
			return 0, Holding
		}
	}
	p.rises++
	p.moved = s.At
	return next, cause
}

// rest goes to the usual rate.
func (p *policy) rest(s *Situation) float64 {
	if s.At.Sub(p.moved) < time.Second {
		return 0
	}
	p.moved, p.rises, p.cut = s.At, 0, cut{}
	by := riseFirst * p.rate
	switch {
	case p.rate < s.Usual:
		return min(p.rate+by, s.Usual)
	case p.rate > s.Usual:
		return max(p.rate-by, s.Usual)
	}
	return 0
}

// hold keeps the rate while nobody tells the delay.
func (p *policy) hold(s *Situation) (float64, Cause) {
	switch {
	case s.Unseen < answerWithin || !s.Busy:
	case p.why.Cause == Blind && p.after > p.rate && s.Unseen > idleAfter:
		return p.after, Blind // by now the queue is gone, unseen
	case s.Unseen < patience && p.why.Cause != Blind:
		next := p.rate
		p.after = min(p.cut.from, below*p.cut.capacity) // 0 without a cut
		if !p.cut.on && math.Abs(s.Believed-p.rate) < another*p.rate {
			next = min(next, below*s.Believed)
		}
		p.cut, p.rises = cut{}, 0
		return next, Blind
	case s.Unseen < patience:
	case s.Low < p.rate && s.At.Sub(p.moved) >= time.Second:
		p.moved = s.At
		return p.rate - (p.rate-s.Low)/max((2*patience-s.Unseen).Seconds(), 1), Gliding
	}
	return 0, Holding
}

// trickle keeps the modem from filling. Outages one after the other are one: between them
// the rate had no time to rise again.
func (p *policy) trickle(s *Situation) float64 {
	if !p.out && (p.rate > p.before || s.At.Sub(p.returned) > idleAfter) {
		p.before = p.rate
	}
	p.out = true
	return leastUp * p.before
}

func (p *policy) half(s *Situation) float64 {
	p.out, p.returned = false, s.At
	return max(p.target, p.before/2)
}

func (p *policy) clamp(bps float64) float64 {
	if !(bps > float64(p.Least)) { // NaN too
		return float64(p.Least)
	}
	return math.Round(min(bps, float64(p.Most)))
}

// worth says whether the target differs enough from the rate to trouble the router.
func (p *policy) worth() bool {
	off := math.Abs(p.target - p.rate)
	end := p.target == float64(p.Least) || p.target == float64(p.Most) || p.target == float64(p.Usual)
	return off > 0.005*p.rate || end && off > 0.0005*p.rate
}

func (p *policy) say(s *Situation, cause Cause) {
	p.whyAt = s.At
	p.why = Why{Cause: cause, Direction: s.Direction, From: unit.Rate(p.rate), To: unit.Rate(p.clamp(p.target)), Capacity: unit.Rate(s.Believed), Delay: s.Delay}
}
