package follow

import (
	"math"
	"time"

	"unbloat/unit"
)

const (
	stepBusy = DefaultEvery    // between two steps with load
	alertFor = 3 * time.Second // after a queue probes are twice as frequent: until it is gone, and has not come again
)

// A Controller follows one line. It is not safe for concurrent use.
type Controller struct {
	p         Params
	now       unit.Instant
	since     unit.Instant // the line is this one since then
	heard     unit.Instant // the last sample that could vote
	others    unit.Instant // the same of all but last resorts
	reflected unit.Instant // the last answer of a reflector
	arrived   unit.Instant // the last time that something arrived
	alertAt   unit.Instant // the last time with a queue
	rtt       time.Duration
	sources   sources
	counters  counters
	suspicion suspicion
	lessons   lessons
	ways      [2]way
}

// way is one direction: what is estimated of it, its situation, and the policy's memory.
type way struct {
	is        Direction
	load      load
	queue     queue
	capacity  capacity
	loss      loss
	full      unit.Instant  // when it last was as of a full buffer; 0: never
	over      time.Duration // the delay when it became long; 0: it is not
	out       bool          // there is an outage
	situation Situation
	policy    policy
}

// New returns a controller whose shapers have the usual rates, or an error that names
// the bad parameter.
func New(p Params, now unit.Instant) (*Controller, error) {
	p, err := p.check()
	if err != nil {
		return nil, err
	}
	c := &Controller{p: p, now: now, heard: now, others: now, arrived: now, lessons: lessons{learned: p.Learned, at: now}}
	c.sources.start(p, now)
	for d := range c.ways {
		w, usual := &c.ways[d], float64(p.Rates[d].Usual)
		w.is = Direction(d)
		w.load.at = now
		w.policy = policy{reach: reach{Bounds: p.Rates[d]}, rate: usual, target: usual, changed: now, moved: now, past: past{since: now, holds: 2 * restless, share: guess}}
		w.policy.reach.start(now, c.lessons.most(w.is))
		w.policy.say(&Situation{At: now, Direction: w.is}, Started)
	}
	return c, nil
}

// Ask returns the reflector to which a probe is to be sent now; ok is false while none
// is due. The caller sends it at once.
func (c *Controller) Ask(now unit.Instant) (reflector int, ok bool) {
	resort := now.Sub(c.others) >= answerWithin && (!c.asleep(now) || !c.sources.alive(false))
	return c.sources.ask(now, c.every(now), resort)
}

// every returns the time between two probes.
func (c *Controller) every(now unit.Instant) time.Duration {
	switch {
	case c.asleep(now):
		return c.p.ProbeIdle
	case now.Sub(c.alertAt) < alertFor:
		return c.p.ProbeBusy / 2
	}
	return c.p.ProbeBusy
}

// busyAt returns the last time with load.
func (c *Controller) busyAt() unit.Instant { return max(c.ways[Down].load.at, c.ways[Up].load.at) }

func (c *Controller) asleep(now unit.Instant) bool { return now.Sub(c.busyAt()) > idleAfter }

// Delay takes an answer or a flow's round trip in. Delays come in the order of At;
// what cannot be is left out.
func (c *Controller) Delay(d Delay) {
	if d.At < 0 || d.RTT <= 0 || d.At.Add(-d.RTT) < c.since {
		return
	}
	x, ok := c.sources.hear(d, d.At.Sub(c.busyAt()) < moment)
	if !ok {
		return
	}
	c.heard, c.arrived = max(c.heard, d.At), max(c.arrived, d.At)
	if !c.sources.all[x.source].last {
		c.others = max(c.others, d.At)
	}
	if d.Passive && d.At.Sub(c.reflected) < answerWithin {
		return
	}
	if !d.Passive {
		c.reflected = d.At
	}
	down, up := added(x, Down) > alike, added(x, Up) > alike
	if !x.oneWay {
		blamed := c.suspicion.starved || !c.ways[Up].load.lately
		down, up = down && blamed, up && !blamed
	}
	c.ways[Down].capacity.mark(mark{x.at, x.at, down})
	c.ways[Up].capacity.mark(mark{x.sent, x.sent.Add(added(x, Up)), up})
}

// Count takes the counters that were read at k.At.
func (c *Controller) Count(k Counters) {
	if k.At < 0 {
		return
	}
	if c.counters.n == 0 || k.Way[Down].Bytes != c.counters.last().Way[Down].Bytes {
		c.arrived = k.At
	}
	c.counters.add(k)
}

// Applied says what rate the shaper of a direction really has. Without it the
// controller goes on from the rate that it has asked for. Routers round rates, so a
// difference of some percent is taken over without a word.
func (c *Controller) Applied(now unit.Instant, d Direction, rate unit.Rate) {
	if rate <= 0 {
		return
	}
	p := &c.ways[d].policy
	off := math.Abs(float64(rate) - p.rate)
	p.rate = float64(rate)
	if off <= near*p.rate {
		return
	}
	p.target, p.changed, p.moved = p.clamp(p.rate), now, now
	p.cut, p.rises = cut{}, 0
	p.say(&Situation{At: now, Direction: d, Believed: c.ways[d].capacity.mean, Delay: c.ways[d].queue.delay}, Set)
}

// NewLine forgets what was measured: the route, the address or the link is another.
func (c *Controller) NewLine(now unit.Instant) {
	c.sources.forget()
	c.counters.n = 0
	c.suspicion = suspicion{}
	c.heard, c.others, c.arrived, c.since = now, now, now, now
	for d := range c.ways {
		w := &c.ways[d]
		w.capacity.forget()
		w.loss.forget()
		w.queue.own.delay, w.out = 0, false
		w.policy.cut, w.policy.rises, w.policy.out = cut{}, 0, false
		w.policy.past.failed, w.policy.past.since = 0, now
	}
}

// Step decides. now must not go backwards.
func (c *Controller) Step(now unit.Instant) Decision {
	now = max(now, c.now)
	c.now = now
	wakes := c.asleep(now)
	c.rtt = c.sources.rtt()
	for d := range c.ways {
		w := &c.ways[d]
		w.load.look(now, &c.counters, w.is, w.policy.rate, c.p.Packet, w.queue.doubt > c.p.Threshold)
	}
	if wakes && !c.asleep(now) {
		c.alertAt = now
	}
	theta := c.threshold()
	v := c.sources.decide(now, theta)
	c.sources.judge(v, theta)
	c.sources.expire(now, 3*c.rtt+answerWithin)
	mistaken := c.part(now, v)

	out := Decision{Next: now.Add(window)}
	if !c.asleep(now) {
		out.Next = now.Add(stepBusy)
	}
	if due := c.sources.due(c.every(now)); due > now {
		out.Next = min(out.Next, due)
	}
	for d := range c.ways {
		w, p := &c.ways[d], &c.ways[d].policy
		if w.queue.delay > ownMost {
			w.full = now
		}
		w.loss.look(&c.counters, w.is, w.lossUnclear(now), p.cut.loss > 0)
		w.situation = c.situation(w, now, v, theta, mistaken)
		switch w.situation.Is {
		case IsFloor:
			if p.cut.loss > 0 {
				w.loss.found(p.cut.loss)
				break
			}
			w.queue.own.found(now, w.queue.raw, p.cut.from)
			c.alertAt = now
		case IsQueueing, IsRefilling:
			c.alertAt = now
		}
		out.Change[d] = p.step(&w.situation, c.p.Every)
		out.Rate[d], out.Why[d] = unit.Rate(p.rate), p.why
		c.lessons.prove(now, w)
		c.lessons.reached(w)
	}
	c.lessons.study(now, &c.ways)
	return out
}

// Situation returns a direction's at the last Step.
func (c *Controller) Situation(d Direction) Situation { return c.ways[d].situation }

// Belief returns what the controller takes one direction of the line for.
func (c *Controller) Belief(d Direction) Belief {
	w := &c.ways[d]
	p := &w.policy
	b := Belief{
		Rate: unit.Rate(p.rate), Carried: unit.Rate(w.load.carried), Capacity: unit.Rate(w.capacity.mean), Sigma: unit.Rate(w.capacity.sigma()),
		Delay: unit.Milliseconds(w.queue.delay), Floor: unit.Milliseconds(w.queue.own.delay), Threshold: c.threshold(), LastSafe: unit.Rate(p.past.safe), LastFailed: unit.Rate(p.past.failed),
		Busy: w.load.busy, Holds: time.Duration(p.past.holds * 1e9), Why: p.why, WhyAt: p.whyAt,
	}
	if p.LearnMost {
		b.Most = p.proven
	}
	return b
}

// Health returns what is known of a reflector, by its index in Params.Reflectors.
func (c *Controller) Health(reflector int) Health {
	if reflector < 0 || reflector >= c.sources.reflectors {
		return Health{}
	}
	f := &c.sources.all[reflector]
	h := Health{Answers: !f.dead, Asked: f.sent, Answered: f.got}
	if f.heard != never {
		h.Base = unit.Milliseconds(f.base())
	}
	return h
}
