package follow

import (
	"math"
	"time"

	"unbloat/unit"
)

// A Kind names the situation of a direction. The policy has a row or more for each.
type Kind uint8

// Kinds of situations, in the order in which they are looked for.
const (
	IsOutage    Kind = iota + 1 // outage: nothing arrives
	IsBack                      // something arrives again
	IsIdle                      // idle: no load for long
	IsBlind                     // blind: nobody tells the delay
	IsShaped                    // the delay is long, but the shaper is what limits: it is no queue
	IsMistaken                  // the way up was cut for a delay that is the way down's
	IsFloor                     // floor: a cut has not shortened the delay, or lessened the loss, which is the line's own
	IsQueueing                  // the line queues
	IsLosing                    // the line loses more than it does with less load, and hardly queues
	IsDraining                  // draining: there is a cut, and the queue has become short
	IsUnclear                   // there is a cut, and the other direction may have the queue, or it is too early to tell whether less is lost
	IsDrained                   // there is a cut, and the queue is gone
	IsRefilling                 // the line begins to queue at the rate at which it did before
	IsRoom                      // the shaper is full and the line does not queue
	IsTop                       // the same, at the most that the line has been seen to carry
	IsCalm                      // nothing of these
)

// String names the kind in a word.
func (k Kind) String() string {
	return [...]string{"", "outage", "back", "idle", "blind", "shaped", "mistaken", "floor", "queueing", "losing", "draining", "unclear", "drained", "refilling", "room", "top", "calm"}[k]
}

const (
	outageAfter = 250 * time.Millisecond // and two round trips without a packet: with load there is one each 120 ms
	idleAfter   = 10 * time.Second       // without load: pauses of what people do are shorter
)

// A Situation is one direction at one instant, with the figures that say so. It is all
// that the policy knows of the line.
type Situation struct {
	Is        Kind
	Direction Direction
	At        unit.Instant
	Carried   float64       // bit/s, over the last 200 ms
	Capacity  float64       // bit/s, measured at this instant; 0: it can't be
	Believed  float64       // bit/s, the mean of the last measurements; 0: none yet
	Low       float64       // bit/s, what it nearly always has; 0: not known
	Usual     float64       // bit/s, what it usually has at this hour, or the configuration says
	Raw       time.Duration // the delay, with the line's own
	Own       time.Duration // the line's own, which it adds under any load
	Delay     time.Duration // without: of the queue
	Doubt     time.Duration // what it may be, where the ways can't be told apart
	Loss      float64       // share that the line loses, if it loses more than its own
	Threshold time.Duration // beyond it a delay counts as a queue
	OneWay    bool          // the probes tell the ways apart
	Limits    bool          // the line passes on less than is sent: it is what limits
	RTT       time.Duration // the least round trip
	Asked     unit.Instant  // when the oldest of the probes was sent that tell the delay
	Unseen    time.Duration // for how long nobody has told the delay
	Busy      bool
	Call      bool // somebody talks
	Tries     bool // something is tried in the other direction
}

// situation finds out which one it is. cut is what is being done about a queue.
func (c *Controller) situation(w *way, now unit.Instant, v vote, theta time.Duration, mistaken bool) Situation {
	capacity, known := w.capacity.measure(&c.counters, w.is, w.policy.Bounds, now)
	q, l, cut, rate := &w.queue, &w.load, &w.policy.cut, w.policy.rate
	low, usual := c.lessons.rates(now, w)
	s := Situation{
		Direction: w.is, At: now, Carried: l.carried, Believed: w.capacity.mean, Low: low, Usual: usual,
		Raw: q.raw, Own: q.own.delay, Delay: q.delay, Doubt: q.doubt, Threshold: theta, OneWay: v.oneWay, RTT: c.rtt, Asked: v.oldest, Unseen: now.Sub(c.heard), Busy: l.busy, Call: c.counters.call(), Tries: c.ways[1-w.is].policy.steps,
	}
	if known {
		s.Capacity = capacity
		// Of round trips the way up is known less well.
		s.Limits = w.is == Down && capacity < (1-near)*rate || w.is == Up && v.oneWay && capacity < (1-near)*l.carried
	}
	if q.delay < theta {
		w.over = 0
	}
	out, back := c.outage(w, now)
	long := q.delay > theta
	switch {
	case out:
		s.Is = IsOutage
	case back:
		s.Is = IsBack
	case !l.lately && now.Sub(l.at) > idleAfter:
		s.Is = IsIdle
	case !v.known:
		s.Is = IsBlind
	case mistaken && w.is == Up:
		s.Is, s.Capacity = IsMistaken, c.suspicion.capacity
	case long && !cut.on && w.is == Down && l.holds && w.flat():
		s.Is = IsShaped
		if known && leastDown*capacity > rate {
			s.Is = IsDraining // an old queue arrives, and even with it there is more to carry
		}
	case long && (l.lately || cut.on):
		s.Is = IsQueueing
		if c.unhelped(w, &s, now) {
			s.Is = IsFloor
		}
	case l.lately && !cut.on && w.loss.losing():
		s.Is = IsLosing
	case cut.loss > 0:
		s.Is = w.relieved(now)
	case cut.on && q.delay > theta/2:
		s.Is = IsDraining
	case cut.on && q.doubt > theta:
		s.Is = IsUnclear
	case cut.on:
		s.Is = IsDrained
	case known && q.delay > theta/3 && rate > capacity && w.policy.past.failed > 0 && math.Abs(capacity-w.policy.past.failed) < near*w.policy.past.failed:
		s.Is = IsRefilling // no need to wait until the queue is long
	case l.full && q.doubt < max(theta/3, c.still(w, v)) && !w.loss.some():
		s.Is = IsRoom
		if w.policy.LearnMost && rate > 0.999*float64(w.policy.Most) {
			s.Is = IsTop
		}
	default:
		s.Is = IsCalm
	}
	if s.Is == IsLosing {
		s.Loss, s.Capacity = w.loss.all.share(), min(w.loss.carried(), rate)
	} else if cut.loss > 0 && s.Is != IsQueueing {
		s.Capacity = cut.capacity
	}
	return s
}

// relieved says what became of a cut for what was lost.
func (w *way) relieved(now unit.Instant) Kind {
	cut := &w.policy.cut
	known, still := w.loss.judge(cut.loss, now.Sub(cut.judge))
	switch {
	case !known:
		return IsUnclear
	case !still:
		return IsDrained
	case w.loss.all.share() > lossOwn || !cut.guessed:
		return IsLosing // one that is surely lower is to tell
	}
	return IsFloor
}

// flat says whether the delay has hardly grown since it became long.
func (w *way) flat() bool {
	if w.over == 0 {
		w.over = w.queue.raw
	}
	return !grown(w.queue.raw, w.over, 4)
}

// grown says whether a delay has grown, by a share of what it was at least.
func grown(is, was, share time.Duration) bool { return is >= was+max(was/share, alike) }

// unhelped says whether the delay is as it was, and as when it last grew, though the cut
// should have ended it. Then it is the line's own; a queue that has begun to drain is not.
func (c *Controller) unhelped(w *way, s *Situation, now unit.Instant) bool {
	cut, delay := &w.policy.cut, s.Raw-s.Own
	return cut.on && s.Asked >= cut.judge && !s.Limits && (s.OneWay || !c.ways[1-w.is].load.lately) &&
		!(s.Capacity == 0 && cut.waits(s)) &&
		delay >= max(cut.delay, cut.grown-s.Own)*6/10 && delay <= cut.delay*13/10 && s.Raw <= ownMost && now >= w.queue.own.none
}

// outage says whether nothing arrives, or something does again. It is told of the way up,
// which would fill the modem meanwhile.
func (c *Controller) outage(w *way, now unit.Instant) (out, back bool) {
	if w.is != Up {
		return false, false
	}
	silent, late := now.Sub(c.arrived), outageAfter+2*c.rtt
	if silent > late && c.sources.waiting(now, late) && now.Sub(w.load.at) < moment {
		w.out = true
		return true, false
	}
	if w.out && silent < outageAfter {
		w.out = false
		return false, true
	}
	return w.out, false
}

// threshold returns the added delay that counts as a queue: a full packet of the
// slower direction takes its time anyway.
func (c *Controller) threshold() time.Duration {
	slow := min(c.ways[Down].policy.rate, c.ways[Up].policy.rate)
	return max(c.p.Threshold, min(time.Duration(3*c.sources.spread), ownMost/2)) + time.Duration(float64(c.p.Packet)*8e9/max(slow, 1))
}

// still returns the added delay up to which nothing waits on the line. At low rates a
// probe waits in the shaper itself, while full packets are sent.
func (c *Controller) still(w *way, v vote) time.Duration {
	packets := 1.5 * float64(c.p.Packet) * 8
	wait := packets / max(w.policy.rate, 1)
	if !v.oneWay {
		wait += packets / max(c.ways[1-w.is].policy.rate, 1)
	}
	return max(time.Duration(wait*1e9)-c.p.Threshold, 0) + c.p.Threshold/3
}
