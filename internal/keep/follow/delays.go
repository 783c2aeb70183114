package follow

import (
	"time"

	"unbloat/unit"
)

// Estimator: whose delay it is. The sources' vote says how much longer than usual packets
// take. Probes that tell the ways apart say in which direction; of round trips it is found
// by what is carried. What the line adds under any load is its own, and no queue.

const (
	ownMost = 120 * time.Millisecond // more than any radio's own is a queue, whatever it looks like
)

// queue is the delay of one direction.
type queue struct {
	raw   time.Duration // with the line's own
	delay time.Duration // without
	doubt time.Duration // what it may be, where the ways can't be told apart
	own   own
}

// own is delay that the line itself adds under load, as some radios do.
type own struct {
	delay time.Duration
	at    unit.Instant // when it was found
	rate  float64      // of the shaper, to which it is put back: a real queue would grow with it
	none  unit.Instant // until then no delay is taken for it
}

// found notes that a cut has not shortened a delay.
func (o *own) found(now unit.Instant, delay time.Duration, rate float64) {
	o.delay, o.at, o.rate = delay, now, rate
}

// look holds it against what has been heard since. With the rate of before the cut a
// real queue grows, and on a line with less load it is shorter: in both cases it was
// none of the line's own.
func (o *own) look(now unit.Instant, raw time.Duration, heard unit.Instant, rate float64, threshold time.Duration) {
	switch {
	case raw < o.delay-threshold/2:
		o.delay -= (o.delay - raw) / 4
	case now.Sub(o.at) < moment && heard > o.at && rate <= o.rate && raw > o.delay+threshold:
		o.delay, o.none = 0, now.Add(patience)
	}
}

// suspicion is what round trips leave open: which direction they wait in.
type suspicion struct {
	starved bool // less arrives than the shaper down would let through
	down    bool // it is the way down's
	// A cut of the way up is held against it: if the queue is there, it gets shorter as
	// less is sent.
	tried    bool
	at       unit.Instant  // when the probe was sent that it began with
	delay    time.Duration // then
	capacity float64       // bit/s, that the way up was taken to have
	cleared  unit.Instant  // until then it is not the way up's
	arrived  float64       // bit/s down when that was found
}

// part parts the delay between the directions. Where only round trips are known, the
// direction with load has the queue; of two the way down, if less arrives than its
// shaper would let through, and else the way up. It says whether the way up turns out
// to have been cut for a delay that was not its.
func (c *Controller) part(now unit.Instant, v vote) (wronged bool) {
	var share [2]time.Duration
	down, up, s := &c.ways[Down], &c.ways[Up], &c.suspicion
	s.starved = c.starved()
	wronged = c.try(now, v)
	_, most, _ := c.counters.backlog(Down, window)
	open := down.load.lately && most < 2*c.p.Packet // the shaper is not what limits
	s.down = down.load.lately && (s.starved || !up.load.lately || open || now < s.cleared)
	if cut := &up.policy.cut; v.known && !v.oneWay && !s.down && !wronged && cut.on && cut.loss == 0 && now.Sub(cut.began) > moment && down.load.carried > down.policy.rate/20 {
		// The cuts of the way up have changed nothing.
		s.down, down.load.lately, down.load.at = true, true, now
	}
	switch {
	case !v.known:
	case v.oneWay:
		share = v.way
		if s.starved {
			// One long delay is enough, since less arrives as well.
			share[Down] = max(share[Down], min(v.newest.way[Down], time.Second))
		}
	case s.down:
		share[Down] = v.rtt
	case up.load.lately:
		share[Up] = v.rtt
	}
	for d := Down; d <= Up; d++ {
		w, q := &c.ways[d], &c.ways[d].queue
		q.raw = share[d]
		if d == Up && share[d] > 0 && w.capacity.mean > 0 && now.Sub(w.capacity.at) < time.Second {
			// What has been sent since the probe is known, and so what has drained.
			sent := c.counters.bits(Up, v.newest.sent, now)
			share[d] = max(share[d]+min(time.Duration(sent/w.capacity.mean*1e9)-now.Sub(v.newest.sent), 0), 0)
		}
		if q.own.delay > 0 && now.Sub(q.own.at) > 2*baseLoaded {
			q.own.delay = 0
		}
		if q.own.delay > 0 && v.known && (w.load.busy || w.policy.cut.on) {
			q.own.look(now, q.raw, v.oldest, w.policy.rate, c.p.Threshold)
		}
		q.delay = max(share[d]-q.own.delay, 0)
		q.doubt = q.delay
		if v.known && !v.oneWay {
			q.doubt = max(v.rtt-q.own.delay, q.delay)
		}
	}
	return wronged
}

// starved says whether the shaper down holds nothing back though there is load: then the
// line is what limits it.
func (c *Controller) starved() bool {
	w := &c.ways[Down]
	waits, _, _ := c.counters.backlog(Down, 0)
	return w.load.lately && w.load.carried < used*w.policy.rate && waits < c.p.Packet
}

// try finds out whether the way up was blamed wrongly for the delay of round trips: it
// was if the delay has not become a third as much shorter as it should.
func (c *Controller) try(now unit.Instant, v vote) (wronged bool) {
	s, up, arrives := &c.suspicion, &c.ways[Up].policy.cut, c.ways[Down].load.carried
	if arrives < 0.75*s.arrived {
		s.cleared = 0 // less arrives than a line that queues passes on: it does not queue
	}
	x := &v.newest
	if !v.known || v.oneWay || s.down || !c.ways[Down].load.lately || !up.on || up.guessed || up.loss > 0 || x.rtt < c.p.Threshold/2 {
		s.tried = false
		return false
	}
	if !s.tried || x.sent.Sub(s.at) > moment {
		s.tried, s.at, s.delay, s.capacity = true, x.sent, x.rtt, max(up.capacity, 1)
		return false
	}
	due := x.sent.Sub(s.at) - time.Duration(c.counters.bits(Up, s.at, x.sent)/s.capacity*1e9)
	if due <= max(c.p.Threshold/2, s.delay/4) || s.delay-x.rtt >= due/3 {
		return false
	}
	s.tried, s.cleared, s.arrived = false, now.Add(moment), arrives
	return true
}
