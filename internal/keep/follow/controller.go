package follow

import (
	"math"
	"time"

	"unbloat/unit"
)

// How the line is followed. Shares are of the capacity or the rate.
const (
	below     = 0.95 // of the capacity that the shaper takes
	busyShare = 0.5  // of the rate: there is load
	fullShare = 0.8  // of the rate: more can be used
	bound     = 0.97 // of the rate; where less is carried the line is what limits

	rounded = 0.01 // of a rate: the router's rounding

	ratesOver = 200 * time.Millisecond // the time over which rates are averaged
	hungryFor = 150 * time.Millisecond // the same, to see that less arrives
	openFor   = 100 * time.Millisecond // nothing waited in the shaper for so long: it does not limit
	blameFor  = 2 * time.Second        // cuts of the way up that changed nothing for so long were of the wrong way
	loadedFor = 2 * time.Second        // a load that got light may be a line that fell
	growth    = 5 * time.Millisecond   // of the delay at least: the queue grows

	// Where the capacity is not known.
	blindCut   = 150 * time.Millisecond // between cuts, beside a round trip
	blindShare = 0.7                    // of the rate at least is taken for the capacity

	// Rising, for each riseEvery.
	riseEvery     = 200 * time.Millisecond
	riseFirst     = 0.01 // of the rate, at first
	riseFaster    = 1.28 // times the last
	riseMost      = 0.25 // of the rate
	riseVolatile  = 0.06 // of the rate at first, on a line that holds its capacity for a second
	riseFirstMost = 0.10 // of the rate at first, on the most volatile line
	riseBack      = 0.10 // of the rate, towards what was safe before the line fell

	stillPackets = 1.5 // that a probe waits for in the shaper

	// What failed.
	nearFailed   = 0.97 // of the last failed capacity: up to it without waiting
	sameCapacity = 0.03 // of it: the line fills as it did
	retryShare   = 0.15 // of the time for which the line holds its capacity
	retryMost    = 15 * time.Minute
	steadyBand   = 0.15             // of the capacity: the line has changed if it differs by more
	holdsFirst   = 20 * time.Second // how long a line holds its capacity, before anything is known
	holdsMost    = 10 * time.Hour
	holdsMean    = 0.3 // weight of the last time
	volatile     = 2.0 // s; a line that holds its capacity for less is tried again at once

	// Measuring the capacity between marks in the queue.
	markQueued = 3 * time.Millisecond   // of delay: the line is busy without a break
	markSpan   = 120 * time.Millisecond // between two marks, if there are two so far apart
	markLeast  = 60 * time.Millisecond  // nearer ones tell too little

	// Delay that is the line's own under load.
	spreadMost = 60 * time.Millisecond  // of a noisy idle line
	floorMost  = 120 * time.Millisecond // more is a queue, whatever it looks like
	floorTrial = 2 * time.Second        // for which it is held against what is heard at the former rate
	floorAgain = 30 * time.Second       // after one that was none
	floorFor   = 10 * time.Minute       // then it is looked for anew

	// Nothing arrives.
	outageAfter = 250 * time.Millisecond // and two round trips
	outageShare = 0.1                    // of the rate before
	outageAgain = 5 * time.Second        // after the last: the same outage, with a moment's break

	// Nobody answers.
	blindAfter = time.Second
	blindMost  = 0.9              // of the rate; lower it is not set at once
	blindHold  = 30 * time.Second // then it glides
	glideIn    = 30 * time.Second // to what nearly always fits

	// No load.
	idleAfter  = 10 * time.Second
	idleShare  = 0.01 // of the rate, each second, towards the usual one
	sleepAfter = 10 * time.Second
	restAfter  = 2 * time.Second // what is measured from now on is the line alone

	alertFor = 3 * time.Second // after a queue more is asked
	stepBusy = 50 * time.Millisecond
	stepIdle = 200 * time.Millisecond
)

// A drainage says how a queue is let drain: its excess falls to 1/e in so many seconds,
// with at least so much of the capacity left to the load.
type drainage struct{ within, least float64 }

// drains returns both directions' drainage. Downwards the queue drains only as senders
// slow down, and what the shaper drops for it is dear; upwards it drains at once.
func drains() [2]drainage {
	return [2]drainage{Down: {within: 0.5, least: 0.30}, Up: {within: 0.25, least: 0.20}}
}

// A Controller follows one line. It is not safe for concurrent use.
type Controller struct {
	p          Params
	sources    sources
	history    history
	ways       [2]way
	now        unit.Instant
	rtt        time.Duration // least round trip of the sources, lately
	heard      unit.Instant  // the last sample that could vote
	others     unit.Instant  // the same of all but last resorts
	busyAt     unit.Instant  // the last time with load
	arrived    unit.Instant  // the last time that something arrived
	alertAt    unit.Instant  // the last time with a queue
	reflected  unit.Instant  // the last answer of a reflector
	starved    bool          // less arrives than the shaper would let through
	downBlamed bool          // a round trip's delay is taken for the way down's
	trial      trial         // whether the way up is rightly blamed
	cleared    unit.Instant  // until then it is not
	clearedBy  float64       // bit/s that arrived then
	since      unit.Instant  // the line is this one since then
	monday     unit.Instant  // at which a Monday began; if wall
	wall       bool
	studied    unit.Instant // the last time that something was learnt
	learned    uint64
	starlink   starlink
}

// trial holds the delay of round trips against what is sent up: if the queue is there,
// it gets shorter as less is sent.
type trial struct {
	on       bool
	at       unit.Instant  // when the probe was sent that began it
	delay    time.Duration // then
	capacity float64       // bit/s, that the way up was taken to have
}

// way is one direction.
type way struct {
	Bounds
	is        Direction
	rate      float64 // bit/s, of the shaper
	target    float64 // bit/s, what it is to be
	changed   unit.Instant
	capacity  float64 // 0: not known
	variance  float64
	measured  unit.Instant
	different unit.Instant // when the capacity was last seen to be another
	holds     float64      // s; how long it stays as it is, usually
	goal      float64      // what was safe before the line fell; 0: it fell for good
	dipShare  float64      // of the rate before a dip, to which it goes back
	dipped    unit.Instant // the end of the last dip; 0: it is judged
	settled   float64      // the capacity that it was compared with
	marks     [sampleSlots]mark
	nMarks    uint64
	delay     time.Duration // added, without the floor
	raw       time.Duration // with it
	doubt     time.Duration // what it may be, where the ways can't be told apart
	over      time.Duration // raw when it became longer than the threshold; 0: it is not
	floor     time.Duration
	floorEnd  unit.Instant
	floorAt   unit.Instant
	floorRate float64      // at which it is tried
	noFloor   unit.Instant // until then no delay is taken for a floor
	carried   float64
	busy      bool
	full      bool
	loaded    bool // busy now or a moment ago: a line that falls makes a load look light
	busyAt    unit.Instant
	step      float64 // exponent of the rise
	risen     unit.Instant
	safe      float64
	failed    float64
	retry     unit.Instant // until then not above what failed
	episode   episode
	low       float64 // a low quantile of the capacity; 0: not known
	outage    bool
	before    float64      // rate before the outage
	returned  unit.Instant // the end of the last outage
	proven    float64      // what the line was seen to carry since c.studied; 0: nothing
	why       Why
	whyAt     unit.Instant
}

// mark is a sample that went through the line's queue.
type mark struct {
	enter, exit unit.Instant
	queued      bool
}

// episode is a time with a queue, from the first cut until it is gone.
type episode struct {
	on       bool
	from     float64       // the rate before it
	capacity float64       // what the line carried when the queue last grew
	grown    time.Duration // the delay then
	guessed  bool          // capacity is no measurement
	delay    time.Duration // at the last cut that was to be judged
	judge    unit.Instant
	began    unit.Instant
	cutAt    unit.Instant // the last cut
}

// New returns a controller whose shapers have the usual rates, or an error that names
// the bad parameter.
func New(p Params, now unit.Instant) (*Controller, error) {
	p, err := p.check()
	if err != nil {
		return nil, err
	}
	c := &Controller{p: p, now: now, heard: now, others: now, busyAt: now, arrived: now, studied: now}
	c.sources.start(p, now)
	for d := Down; d <= Up; d++ {
		w := &c.ways[d]
		w.Bounds, w.is = p.Rates[d], d
		w.rate, w.target = float64(w.Usual), float64(w.Usual)
		w.changed, w.different, w.busyAt, w.risen = now, now, now, now
		w.holds, w.dipShare = holdsFirst.Seconds(), dipBack
		w.say(now, Started, w.rate)
	}
	return c, nil
}

// Ask returns the reflector to which a probe is to be sent now; ok is false while none
// is due. The caller sends it at once.
func (c *Controller) Ask(now unit.Instant) (reflector int, ok bool) {
	resort := now.Sub(c.others) >= blindAfter && (!c.asleep(now) || c.sources.deadButLast())
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

func (c *Controller) asleep(now unit.Instant) bool { return now.Sub(c.busyAt) > sleepAfter }

// Delay takes an answer or a flow's round trip in. Delays come in the order of At;
// what cannot be is left out.
func (c *Controller) Delay(d Delay) {
	if d.At < 0 || d.RTT <= 0 || d.At.Add(-d.RTT) < c.since {
		return
	}
	if c.quiet(d.At) {
		c.starlink.look(d.At, c.sources.late(d, c.p.Threshold))
		return
	}
	x, ok := c.sources.hear(d, d.At.Sub(c.busyAt) < restAfter)
	if !ok {
		return
	}
	c.heard, c.arrived = max(c.heard, d.At), max(c.arrived, d.At)
	if !c.sources.all[x.source].last {
		c.others = max(c.others, d.At)
	}
	if d.Passive && d.At.Sub(c.reflected) < blindAfter {
		return
	}
	if !d.Passive {
		c.reflected = d.At
	}
	down, up := queued(x, Down), queued(x, Up)
	if !x.oneWay {
		blamed := c.starved || !c.ways[Up].loaded
		down, up = down && blamed, up && !blamed
	}
	c.ways[Down].mark(mark{x.at, x.at, down})
	c.ways[Up].mark(mark{x.sent, x.sent.Add(added(x, Up)), up})
}

// added returns a sample's delay in one direction; a round trip counts for both.
func added(x sample, d Direction) time.Duration {
	if x.oneWay {
		return x.way[d]
	}
	return x.rtt
}

func queued(x sample, d Direction) bool { return added(x, d) > markQueued }

// Count takes the counters that were read at k.At.
func (c *Controller) Count(k Counters) {
	if k.At < 0 {
		return
	}
	if c.history.n == 0 || k.Way[Down].Bytes != c.history.last().Way[Down].Bytes {
		c.arrived = k.At
	}
	c.history.add(k)
}

// Applied says what rate the shaper of a direction really has. Without it the
// controller goes on from the rate that it has asked for. Routers round rates, so a
// difference of a percent is taken over without a word.
func (c *Controller) Applied(now unit.Instant, d Direction, rate unit.Rate) {
	w := &c.ways[d]
	if rate <= 0 {
		return
	}
	off := math.Abs(float64(rate) - w.rate)
	w.rate = float64(rate)
	if off <= rounded*w.rate {
		return
	}
	w.target = w.clamp(w.rate)
	w.changed = now
	w.episode, w.step, w.risen = episode{}, 0, now
	w.say(now, Set, w.rate)
}

// NewLine forgets what was measured: the route, the address or the link is another.
func (c *Controller) NewLine(now unit.Instant) {
	c.sources.forget()
	c.history.n = 0
	c.starlink, c.trial, c.cleared = starlink{}, trial{}, 0
	c.heard, c.others, c.arrived, c.since = now, now, now, now
	for d := Down; d <= Up; d++ {
		w := &c.ways[d]
		w.nMarks, w.capacity, w.variance, w.failed, w.floor, w.step = 0, 0, 0, 0, 0, 0
		w.episode, w.outage, w.different = episode{}, false, now
	}
}

// Step decides. now must not go backwards.
func (c *Controller) Step(now unit.Instant) Decision {
	now = max(now, c.now)
	c.now = now
	c.observe(now)
	theta := c.threshold()
	v := c.sources.decide(now, theta)
	c.sources.judge(v, theta)
	c.starlink.look(now, v.known && v.newest.rtt > theta)
	c.sources.expire(now, 3*c.rtt+answerWithin)
	c.blame(now, v)
	out := Decision{Next: now.Add(stepIdle)}
	if !c.asleep(now) {
		out.Next = now.Add(stepBusy)
	}
	if due := c.sources.due(c.every(now)); due > now {
		out.Next = min(out.Next, due)
	}
	for d := Down; d <= Up; d++ {
		w := &c.ways[d]
		c.follow(w, now, v, theta)
		w.target = w.clamp(w.target)
		out.Rate[d] = unit.Rate(w.rate)
		if now.Sub(w.changed) >= c.p.Every && w.worth() {
			w.rate, w.changed = w.target, now
			out.Change[d], out.Rate[d] = true, unit.Rate(w.rate)
		}
		out.Why[d] = w.why
		w.prove(now)
	}
	c.study(now)
	return out
}

// observe looks at the counters.
func (c *Controller) observe(now unit.Instant) {
	c.rtt = math.MaxInt64
	for i := range c.sources.all {
		if f := &c.sources.all[i]; f.used && !f.dead && f.heard != never {
			c.rtt = min(c.rtt, f.base())
		}
	}
	if c.rtt == math.MaxInt64 {
		c.rtt = 0
	}
	for d := Down; d <= Up; d++ {
		w := &c.ways[d]
		bps, ok := c.history.carried(d, ratesOver)
		waits := c.history.waited(d, stepBusy, 2*c.p.Packet)
		w.carried = bps
		w.busy = ok && (bps >= busyShare*w.rate || waits)
		w.full = ok && (bps >= fullShare*w.rate || waits)
		if w.doubt > c.p.Threshold && w.loaded && w.carried > w.rate/20 {
			w.busyAt, c.busyAt = now, now // while the line queues it has load, however little it carries
		}
		if w.busy {
			if c.asleep(now) {
				c.alertAt = now
			}
			w.busyAt, c.busyAt = now, now
		}
		w.loaded = w.busy || now.Sub(w.busyAt) < loadedFor && w.carried > w.rate/20
	}
}

// threshold returns the added delay that counts as a queue: a full packet of the
// slower direction takes its time anyway.
func (c *Controller) threshold() time.Duration {
	slow := min(c.ways[Down].rate, c.ways[Up].rate)
	return max(c.p.Threshold, min(time.Duration(3*c.sources.spread), spreadMost)) + time.Duration(float64(c.p.Packet)*8e9/max(slow, 1))
}

// still returns the added delay up to which nothing waits on the line. At low rates a
// probe waits in the shaper itself, while full packets are sent.
func (c *Controller) still(w *way, v vote) time.Duration {
	packets := stillPackets * float64(c.p.Packet) * 8
	wait := packets / max(w.rate, 1)
	if !v.oneWay {
		wait += packets / max(c.ways[1-w.is].rate, 1)
	}
	return max(time.Duration(wait*1e9)-c.p.Threshold, 0) + c.p.Threshold/3
}

// blame parts the delay between the directions. Where only round trips are known, the
// direction with load has the queue; of two the way down, if less arrives than its
// shaper would let through, and else the way up.
func (c *Controller) blame(now unit.Instant, v vote) {
	var share [2]time.Duration
	down, up := &c.ways[Down], &c.ways[Up]
	c.starved = c.hungry()
	c.try(now, v)
	c.downBlamed = down.loaded && (c.starved || !up.loaded || c.open() || now < c.cleared)
	if v.known && !v.oneWay && !c.downBlamed && up.episode.on && now.Sub(up.episode.began) > blameFor && down.carried > down.rate/20 {
		// The cuts of the way up have changed nothing.
		c.downBlamed, down.loaded, down.busyAt = true, true, now
	}
	switch {
	case !v.known:
	case v.oneWay:
		share = v.way
		if c.starved {
			// One long delay is enough, since less arrives as well.
			share[Down] = max(share[Down], min(v.newest.way[Down], time.Second))
		}
	case c.downBlamed:
		share[Down] = v.rtt
	case up.loaded:
		share[Up] = v.rtt
	}
	for d := Down; d <= Up; d++ {
		w := &c.ways[d]
		if w.floor > 0 && now > w.floorEnd {
			w.floor = 0
		}
		w.raw = share[d]
		if d == Up && share[d] > 0 && w.capacity > 0 && now.Sub(w.measured) < time.Second {
			// What has been sent since the probe is known, and so what has drained.
			sent := (c.history.at(Up, now) - c.history.at(Up, v.newest.sent)) * 8
			share[d] = max(share[d]+min(time.Duration(sent/w.capacity*1e9)-now.Sub(v.newest.sent), 0), 0)
		}
		if w.floor > 0 && v.known && (w.busy || w.episode.on) {
			w.trial(now, v, c.p.Threshold)
		}
		w.delay = max(share[d]-w.floor, 0)
		w.doubt = w.delay
		if v.known && !v.oneWay {
			w.doubt = max(v.rtt-w.floor, w.delay)
		}
	}
}

// try finds out whether the way up was blamed wrongly for the delay of round trips.
func (c *Controller) try(now unit.Instant, v vote) {
	const (
		clearFor   = 1500 * time.Millisecond // if the delay has not become as much shorter as it should
		clearWhile = 0.75                    // of what arrived then at least arrives now
		tryFor     = 2 * time.Second         // the counters' history is not much longer
	)
	t, up := &c.trial, &c.ways[Up]
	if c.ways[Down].carried < clearWhile*c.clearedBy {
		c.cleared = 0 // less arrives than a line that queues passes on: it does not queue
	}
	if !v.known || v.oneWay || c.downBlamed || !c.ways[Down].loaded || !up.episode.on || up.episode.guessed || v.newest.rtt < c.p.Threshold/2 {
		t.on = false
		return
	}
	if !t.on || v.newest.sent.Sub(t.at) > tryFor {
		*t = trial{true, v.newest.sent, v.newest.rtt, max(up.episode.capacity, 1)}
		return
	}
	sent := (c.history.at(Up, v.newest.sent) - c.history.at(Up, t.at)) * 8
	due := v.newest.sent.Sub(t.at) - time.Duration(sent/t.capacity*1e9)
	if due > max(c.p.Threshold/2, t.delay/4) && t.delay-v.newest.rtt < due/3 {
		t.on = false
		c.cleared = now.Add(clearFor)
		c.clearedBy = c.ways[Down].carried
		up.target = max(up.target, min(up.episode.from, below*t.capacity))
		up.episode = episode{}
		up.step, up.risen = 0, now
		up.say(now, OtherWay, up.target)
	}
}

// hungry says whether the shaper down holds nothing back though there is load: then the
// line is what limits it.
func (c *Controller) hungry() bool {
	w := &c.ways[Down]
	bps, ok := c.history.carried(Down, hungryFor)
	if !ok || !w.loaded {
		return false
	}
	return bps < 0.9*w.rate && !c.history.waited(Down, 0, c.p.Packet)
}

// open says whether the shaper down has held nothing back for some readings: then it is
// not what limits the load.
func (c *Controller) open() bool {
	return c.ways[Down].loaded && c.history.flowed(Down, openFor, 2*c.p.Packet)
}

// trial holds a floor against what has been heard since. With the rate of before the
// cut a real queue grows, and on a line with less load it is shorter: in both cases it
// was no floor.
func (w *way) trial(now unit.Instant, v vote, threshold time.Duration) {
	switch {
	case w.raw < w.floor-threshold/2:
		w.floor -= (w.floor - w.raw) / 4
	case now.Sub(w.floorAt) < floorTrial && v.oldest > w.floorAt && w.rate <= w.floorRate && w.raw > w.floor+threshold:
		w.floor, w.noFloor = 0, now.Add(floorAgain)
	}
}

// follow is one direction's step.
func (c *Controller) follow(w *way, now unit.Instant, v vote, theta time.Duration) {
	capacity, known := w.measure(&c.history, now)
	if w.delay < theta {
		w.over = 0
	}
	switch {
	case c.out(w, now):
	case !w.loaded && now.Sub(w.busyAt) > idleAfter:
		w.idle(now, c.learntUsual(w, now))
	case !v.known:
		c.blind(w, now)
	case w.delay > theta && !w.episode.on && w.is == Down && c.history.waited(Down, stepBusy, 2*c.p.Packet) && w.flat():
		// The shaper holds packets back, so the line carries more than its rate: the
		// delay is not a queue.
	case w.delay > theta && (w.loaded || w.episode.on):
		c.cut(w, now, v, capacity, known, theta)
	case w.episode.on && w.delay > theta/2:
		c.drain(w, now, capacity, known, theta)
	case w.episode.on && w.doubt > theta:
		// The other direction has the blame now. Before more is tried the delay is to be gone.
	case w.episode.on:
		w.drained(now, capacity, known, v.oneWay)
	case known && w.delay > theta/3 && w.rate > capacity && w.failed > 0 && math.Abs(capacity-w.failed) < sameCapacity*w.failed:
		// The line fills at the rate at which it did before: no need to wait until
		// the queue is long.
		c.alertAt = now
		w.drained(now, capacity, known, v.oneWay)
	case w.full && w.doubt < max(theta/3, c.still(w, v)):
		c.rise(w, now)
	}
}

// flat says whether the delay has hardly grown since it became long.
func (w *way) flat() bool {
	if w.over == 0 {
		w.over = w.raw
	}
	return w.raw < w.over+max(w.over/4, growth)
}

// cut lowers the rate so far that the queue drains.
func (c *Controller) cut(w *way, now unit.Instant, v vote, capacity float64, known bool, theta time.Duration) {
	c.alertAt = now
	if !known {
		// Not knowing what the line carries, wait for what the last cut brought.
		if w.episode.on && now.Sub(w.episode.cutAt) < c.rtt+blindCut {
			return
		}
		capacity = min(max(w.carried, blindShare*w.rate), w.rate)
	}
	// The line is what limits if it passes on less than is sent, or than the shaper down
	// would let through. Of round trips the way up is known less well.
	limits := known && (w.is == Down && capacity < bound*w.rate || w.is == Up && v.oneWay && capacity < bound*w.carried)
	e := &w.episode
	switch {
	case !e.on:
		w.judgeDip(now)
		w.goal = max(w.goal, min(w.rate, w.safe))
		*e = episode{on: true, began: now, from: w.rate, capacity: capacity, grown: w.raw, guessed: !known, judge: math.MaxInt64}
	case known && e.guessed:
		e.capacity, e.grown, e.guessed = capacity, w.raw, false
	case capacity > e.capacity, limits, w.raw > e.grown+max(e.grown/8, growth):
		// What is carried at the shaper's own rate says something of the line only
		// while the queue grows.
		e.capacity, e.grown = capacity, w.raw
	}
	e.cutAt = now
	if v.oldest >= e.judge {
		if !limits && (v.oneWay || !c.ways[1-w.is].loaded) && c.noHelp(w, now) {
			return
		}
		e.judge = math.MaxInt64
	}
	w.failed = max(e.capacity, 1)
	next, cause := w.law(e.capacity, theta), Queue
	if !known {
		next = max(next, blindShare*w.rate)
	}
	if next > w.target {
		cause = Draining
	}
	w.target = next
	w.say(now, cause, next)
	if e.judge == math.MaxInt64 {
		e.delay = w.raw - w.floor
		drain := float64(w.delay) / max(1-w.target/w.failed, 0.05)
		e.judge = now.Add(min(time.Duration(drain), time.Second) + c.rtt)
	}
	w.step = 0
}

// noHelp says whether the delay is as it was, though the cut should have ended it. Then
// it is the line's own, and the cut is taken back.
func (c *Controller) noHelp(w *way, now unit.Instant) bool {
	e := &w.episode
	delay := w.raw - w.floor
	if delay < e.delay*6/10 || delay > e.delay*13/10 || w.raw > floorMost || now < w.noFloor {
		return false
	}
	w.floor, w.floorAt, w.floorEnd, w.floorRate = w.raw, now, now.Add(floorFor), e.from
	w.target = max(w.target, e.from)
	w.episode = episode{}
	w.step, w.risen = 0, now.Add(floorTrial)
	w.say(now, NoHelp, w.target)
	return true
}

// law returns the rate that drains the excess of the delay in the time it may take.
func (w *way) law(capacity float64, theta time.Duration) float64 {
	excess := max(w.delay-theta/2, 0).Seconds()
	drain := drains()[w.is]
	return capacity * max(below-excess/drain.within, drain.least)
}

// drain goes on with a queue that has become short.
func (c *Controller) drain(w *way, now unit.Instant, capacity float64, known bool, theta time.Duration) {
	if !known {
		capacity = w.capacity
	}
	if capacity > 0 {
		w.target = w.law(capacity, theta)
		w.say(now, Draining, w.target)
	}
}

// rise takes more, because the shaper is full and the line does not queue.
func (c *Controller) rise(w *way, now unit.Instant) {
	every := max(riseEvery, c.rtt)
	if now.Sub(w.risen) < every || now.Sub(w.changed) < every/2 {
		return
	}
	w.safe = max(w.carried, 0)
	if w.carried > (1+steadyBand)*w.settled && w.settled > 0 {
		w.compare(now, w.carried)
	}
	first := min(max(riseFirst, riseVolatile/max(w.holds, 0.01)), riseFirstMost)
	by := min(first*math.Pow(riseFaster, w.step), riseMost)
	if w.goal > w.rate {
		by = max(by, min(riseBack, w.goal/w.rate-1))
	}
	next := w.rate * (1 + by)
	cause := Room
	if w.failed > 0 && now < w.retry && next > nearFailed*w.failed {
		next, cause = nearFailed*w.failed, NearFailed
		if next < 1.01*w.rate {
			w.step = 0
			return
		}
	}
	w.step++
	w.risen = now
	w.target = next
	w.say(now, cause, next)
}

// idle goes to the usual rate of this hour.
func (w *way) idle(now unit.Instant, usual float64) {
	if now.Sub(w.risen) < time.Second {
		return
	}
	w.risen, w.step, w.episode = now, 0, episode{}
	by := idleShare * w.rate
	switch {
	case w.rate < usual:
		w.target = min(w.rate+by, usual)
	case w.rate > usual:
		w.target = max(w.rate-by, usual)
	default:
		return
	}
	w.say(now, Idle, w.target)
}

// blind holds the rate while nobody answers, and later goes slowly to what nearly
// always fits.
func (c *Controller) blind(w *way, now unit.Instant) {
	since := now.Sub(c.heard)
	if since < blindAfter || !w.busy {
		return
	}
	if since < blindHold {
		if w.why.Cause != Blind {
			if w.capacity > 0 {
				w.target = min(w.rate, max(below*w.capacity, blindMost*w.rate))
			}
			w.episode, w.step = episode{}, 0
			w.say(now, Blind, w.target)
		}
		return
	}
	low := c.learntLow(w, now)
	switch {
	case low > 0:
	case w.low > 0:
		low = below * w.low
	default:
		low = float64(w.Usual)
	}
	goal := min(w.rate, low)
	if goal < w.rate && now.Sub(w.risen) >= time.Second {
		left := max((blindHold + glideIn - since).Seconds(), 1)
		w.risen = now
		w.target = w.rate - (w.rate-goal)/left
		w.say(now, Gliding, w.target)
	}
}

// out deals with a line from which nothing arrives. It says whether that is so.
func (c *Controller) out(w *way, now unit.Instant) bool {
	if w.is != Up {
		return false
	}
	silent := now.Sub(c.arrived)
	waiting := false
	for i := range c.sources.reflectors {
		f := &c.sources.all[i]
		waiting = waiting || f.asked != never && !f.dead && now.Sub(f.asked) > outageAfter+2*c.rtt
	}
	if silent > outageAfter+2*c.rtt && waiting && now.Sub(w.busyAt) < 2*time.Second {
		if !w.outage {
			w.outage = true
			if w.rate > w.before || now.Sub(w.returned) > outageAgain {
				w.before = w.rate
			} // else it had no time to rise again
		}
		w.target = outageShare * w.before
		w.say(now, Outage, w.target)
		return true
	}
	if w.outage && silent < outageAfter {
		w.outage, w.returned = false, now
		w.target = max(w.target, w.before/2)
		w.say(now, Returned, w.target)
		return true
	}
	return w.outage
}

// mark keeps a sample as a mark in the line's queue.
func (w *way) mark(m mark) {
	w.marks[w.nMarks%sampleSlots] = m
	w.nMarks++
}

// measure returns the rate at which the line served its queue between the last marks
// in it. ok is false if there were none.
func (w *way) measure(h *history, now unit.Instant) (bps float64, ok bool) {
	if w.nMarks == 0 {
		return 0, false
	}
	last := w.marks[(w.nMarks-1)%sampleSlots]
	if !last.queued || now.Sub(last.enter) > time.Second+2*last.exit.Sub(last.enter) {
		return 0, false
	}
	first := last
	for k := uint64(1); k < min(w.nMarks, sampleSlots); k++ {
		m := w.marks[(w.nMarks-1-k)%sampleSlots]
		if last.exit.Sub(first.exit) >= markSpan {
			break
		}
		if !m.queued && last.exit.Sub(first.exit) >= markLeast {
			break // what came before it is a lower bound only
		}
		if m.enter <= first.enter && m.exit <= first.exit {
			first = m
		}
		if !m.queued {
			break
		}
	}
	span := last.exit.Sub(first.exit)
	if span < markLeast {
		return 0, false
	}
	bps = (h.at(w.is, last.enter) - h.at(w.is, first.enter)) * 8 / span.Seconds()
	bps = min(max(bps, float64(w.Least)/2), 2*float64(w.Most))
	if last.enter > w.measured {
		w.learn(last.enter, bps)
	}
	return bps, true
}

// learn keeps the capacity's mean, its variance and a low quantile.
func (w *way) learn(at unit.Instant, bps float64) {
	w.measured = at
	if w.capacity == 0 {
		w.capacity, w.low = bps, bps
		return
	}
	off := bps - w.capacity
	w.capacity += off / 2
	w.variance += (off*off - w.variance) / 8
	if bps < w.low {
		w.low -= min(0.09*w.low, w.low-bps)
	} else {
		w.low += min(0.01*w.low, bps-w.low)
	}
}

func (w *way) clamp(bps float64) float64 {
	if !(bps > float64(w.Least)) { // NaN too
		return float64(w.Least)
	}
	return math.Round(min(bps, float64(w.Most)))
}

// worth says whether the target differs enough from the rate to trouble the router.
func (w *way) worth() bool {
	off := math.Abs(w.target - w.rate)
	end := w.target == float64(w.Least) || w.target == float64(w.Most) || w.target == float64(w.Usual)
	return off > 0.005*w.rate || end && off > 0.0005*w.rate
}

func (w *way) say(now unit.Instant, cause Cause, to float64) {
	w.whyAt = now
	w.why = Why{Cause: cause, Direction: w.is, From: unit.Rate(w.rate), To: unit.Rate(w.clamp(to)), Capacity: unit.Rate(w.capacity), Delay: w.delay}
}

// Belief returns what the controller takes one direction of the line for.
func (c *Controller) Belief(d Direction) Belief {
	w := &c.ways[d]
	return Belief{
		Rate: unit.Rate(w.rate), Carried: unit.Rate(w.carried), Capacity: unit.Rate(w.capacity), Sigma: unit.Rate(math.Sqrt(w.variance)),
		Delay: unit.Milliseconds(w.delay), Floor: unit.Milliseconds(w.floor), Threshold: c.threshold(), LastSafe: unit.Rate(w.safe), LastFailed: unit.Rate(w.failed),
		Busy: w.busy, Holds: time.Duration(w.holds * 1e9), Why: w.why, WhyAt: w.whyAt,
	}
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
