package follow

import (
	"math"
	"time"

	"unbloat/unit"
)

// never is before all instants that callers give.
const never = unit.Instant(math.MinInt64)

// How sources are judged.
const (
	answerWithin = time.Second            // a probe without an answer by then is a miss, and who has heard nobody for so long is blind
	voters       = 3                      // that are heard: one may be wrong; and so many misses in a row, or answers, are no chance
	voteWindow   = 700 * time.Millisecond // in which they must have answered: five probes
	deadEvery    = 5                      // in each so many rounds those are asked that tell little, so that most probes go to the others
	sampleSlots  = 16                     // samples that are kept: those of a voteWindow with a queue

	baseWindow = 40 * time.Second // of a least round trip, without load: longer than a round of probes
	baseLoaded = 5 * time.Minute  // the same under load, which may hide it

	alike       = 3 * time.Millisecond // by so much answers of a alike line differ, and delays that are the same
	oddLimit    = 20                   // samples in a row away from the others: it has moved, and no queue lasts so long
	noisyLine   = 0.007                // of the samples long without others: one voter more has to agree
	noisySource = 0.08                 // of its samples long without others: it does not vote, until it is half of it
	lossySource = 0.25                 // of the probes to it lost, beyond what all lose: the same
)

// source is a reflector or a flow.
type source struct {
	used, passive bool
	last          bool // asked only while nobody else tells anything
	id, operator  uint32
	// Least round trips of this window and the one before.
	least     [2]time.Duration
	samples   int
	began     unit.Instant
	recent    time.Duration // about the least of the last samples
	baseUp    time.Duration // what one-way delays up are without a queue, with the clocks' offset
	oneWay    bool          // baseUp is known
	tells     bool          // it tells the ways apart
	untold    int           // samples in a row that told round trips only
	asked     unit.Instant  // the oldest probe without an answer; never: none
	heard     unit.Instant  // never: not yet
	misses    int
	hits      int
	dead      bool
	odd       int     // samples in a row that lie away from the others
	alone     float64 // share of its samples that were long without others
	lost      float64 // share of the probes to it
	noisy     bool    // more than others of them: it does not vote
	sent, got uint64
}

// base returns the least round trip lately.
func (s *source) base() time.Duration { return min(s.least[0], s.least[1]) }

// sample is one delay, less what it is without queues.
type sample struct {
	at, sent unit.Instant
	operator uint32
	source   int
	oneWay   bool
	rtt      time.Duration
	way      [2]time.Duration // by Direction
}

// added returns a sample's delay in one direction; a round trip counts for both.
func added(x sample, d Direction) time.Duration {
	if x.oneWay {
		return x.way[d]
	}
	return x.rtt
}

// sources are all sources, and the samples of the last moments.
type sources struct {
	reflectors int
	all        [MostReflectors + MostReflectors]source
	ring       [sampleSlots]sample
	flows      [sampleSlots]sample // the same of flows
	nFlows     uint64
	n          uint64              // samples so far
	judged     uint64              // of them that have been compared with the others
	latest     unit.Instant        // when the newest was heard
	order      [MostReflectors]int // reflectors, so that operators take turns
	turn       int                 // place in order
	rounds     int
	lastAsk    unit.Instant // never: none yet
	noise      float64      // share of samples that stood out alone
	spread     float64      // ns; mean of what samples without load exceed their least by
}

func (s *sources) start(p Params, now unit.Instant) {
	s.reflectors = len(p.Reflectors)
	for i, r := range p.Reflectors {
		op := r.Operator
		if op == 0 {
			op = ^uint32(i)
		}
		s.all[i] = source{used: true, last: r.Last, id: uint32(i), operator: op}
	}
	s.lastAsk = never
	s.takeTurns()
	s.forget()
}

// takeTurns puts the reflectors into an order in which neighbours are of different
// operators, as far as there are any.
func (s *sources) takeTurns() {
	var taken [MostReflectors]bool
	for n := 0; n < s.reflectors; {
		for i := range s.reflectors {
			if taken[i] {
				continue
			}
			// The first of an operator that has had no turn in this round.
			first := true
			for j := range i {
				first = first && (taken[j] || s.all[j].operator != s.all[i].operator)
			}
			if first {
				s.order[n] = i
				n++
			}
		}
		for _, i := range s.order[:n] {
			taken[i] = true
		}
	}
}

// forget drops what was learnt of the line behind the sources.
func (s *sources) forget() {
	for i := range s.all {
		x := &s.all[i]
		x.least = [2]time.Duration{math.MaxInt64, math.MaxInt64}
		x.samples, x.oneWay, x.tells, x.asked, x.heard, x.odd = 0, false, false, never, never, 0
	}
	s.n, s.judged, s.nFlows = 0, 0, 0
}

// due returns when the next probe is to be sent.
func (s *sources) due(every time.Duration) unit.Instant {
	if s.lastAsk == never {
		return never
	}
	return s.lastAsk.Add(every)
}

// ask returns the reflector that is to be asked now, if one is due. resort says that
// those of last resort may be.
func (s *sources) ask(now unit.Instant, every time.Duration, resort bool) (int, bool) {
	if s.reflectors == 0 || now < s.due(every) {
		return 0, false
	}
	s.lastAsk = now
	for range 2 * s.reflectors {
		i := s.order[s.turn]
		if s.turn++; s.turn >= s.reflectors {
			s.turn = 0
			s.rounds++
		}
		x := &s.all[i]
		tellsLittle := x.dead && s.alive(true) || !x.tells && x.heard != never && s.tellWays(now) >= voters
		if x.last && !resort || tellsLittle && (s.rounds+i)%deadEvery != 0 {
			continue
		}
		x.sent++
		if x.asked == never {
			x.asked = now
		}
		return i, true
	}
	return 0, false
}

// distinct returns how many operators have reflectors that are so.
func (s *sources) distinct(is func(*source) bool) (n int) {
	for i := range s.reflectors {
		first := is(&s.all[i])
		for j := range i {
			first = first && (s.all[j].operator != s.all[i].operator || !is(&s.all[j]))
		}
		if first {
			n++
		}
	}
	return n
}

// lately says whether a source that is alive has been heard in the last round of probes.
func (f *source) lately(now unit.Instant) bool {
	return f.used && !f.dead && f.heard != never && now.Sub(f.heard) <= baseWindow
}

// tellWays returns how many operators have reflectors that answer lately, and tell the
// ways apart.
func (s *sources) tellWays(now unit.Instant) int {
	return s.distinct(func(f *source) bool { return f.tells && f.lately(now) })
}

// operators returns how many operators' reflectors have been heard lately, with noisy
// ones or without.
func (s *sources) operators(now unit.Instant, noisy bool) int {
	return s.distinct(func(f *source) bool { return (noisy || !f.noisy) && f.lately(now) })
}

// alive says whether a reflector is believed to answer, those of last resort aside or not.
func (s *sources) alive(last bool) bool {
	return s.distinct(func(f *source) bool { return !f.dead && (last || !f.last) }) > 0
}

// waiting says whether a probe to a reflector that has answered lately waits for longer than a time.
func (s *sources) waiting(now unit.Instant, most time.Duration) bool {
	for i := range s.reflectors {
		if f := &s.all[i]; f.asked != never && f.heard != never && !f.dead && now.Sub(f.asked) > most {
			return true
		}
	}
	return false
}

// rtt returns the least round trip of the sources lately; 0: not known.
func (s *sources) rtt() time.Duration {
	least := time.Duration(math.MaxInt64)
	for i := range s.all {
		if f := &s.all[i]; f.used && !f.dead && f.heard != never {
			least = min(least, f.base())
		}
	}
	if least == math.MaxInt64 {
		return 0
	}
	return least
}

// expire counts probes without an answer.
func (s *sources) expire(now unit.Instant, most time.Duration) {
	for i := range s.reflectors {
		x := &s.all[i]
		if x.asked == never || now.Sub(x.asked) < max(most, answerWithin) {
			continue
		}
		x.asked, x.hits = never, 0
		x.lost += (1 - x.lost) / 16
		if x.misses++; x.misses >= voters {
			x.dead = true
		}
	}
}

// find returns the place of a delay's source, making room for a new flow.
func (s *sources) find(d Delay) int {
	if !d.Passive {
		if int(d.Source) >= s.reflectors {
			return -1
		}
		return int(d.Source)
	}
	free, oldest := MostReflectors, unit.Instant(math.MaxInt64)
	for i := MostReflectors; i < len(s.all); i++ {
		x := &s.all[i]
		if x.used && x.id == d.Source {
			return i
		}
		if !x.used {
			free, oldest = i, never
		} else if x.heard < oldest {
			free, oldest = i, x.heard
		}
	}
	s.all[free] = source{used: true, passive: true, id: d.Source, operator: d.Operator, asked: never, heard: never,
		least: [2]time.Duration{math.MaxInt64, math.MaxInt64}}
	return free
}

// hear takes a delay in, and returns its sample; ok is false if it says nothing.
func (s *sources) hear(d Delay, busy bool) (x sample, ok bool) {
	i := s.find(d)
	if i < 0 || d.RTT <= 0 || d.RTT > time.Minute || d.At < s.latest {
		return x, false
	}
	s.latest = d.At
	f := &s.all[i]
	f.got++
	f.heard, f.misses = d.At, 0
	f.lost -= f.lost / 16
	if sent := d.At.Add(-d.RTT); f.asked != never && sent >= f.asked-unit.Instant(time.Millisecond) {
		f.asked = never
	}
	if f.hits++; f.dead && f.hits >= voters {
		f.dead = false
	}
	f.lower(d, busy)
	x = sample{at: d.At, sent: d.At.Add(-d.RTT), operator: f.operator, source: i, rtt: d.RTT - f.base()}
	if d.OneWay {
		x.oneWay, f.tells, f.untold = true, true, 0
		x.way = f.split(d, x.rtt)
	} else if f.untold++; f.untold >= voters {
		f.tells = false
	}
	if !busy && !d.Passive && f.got > voters {
		s.spread += (min(float64(x.rtt), 4*s.spread+1e6) - s.spread) / 32
	}
	if d.Passive {
		s.flows[s.nFlows%sampleSlots] = x
		s.nFlows++
		return x, true
	}
	s.ring[s.n%sampleSlots] = x
	s.n++
	return x, !f.dead
}

// lower keeps the least round trip. It rises when two windows had none as short.
func (f *source) lower(d Delay, busy bool) {
	window := baseWindow
	if busy {
		window = baseLoaded
	}
	if f.samples == 0 {
		f.began = d.At
	}
	if d.At.Sub(f.began) > window && f.samples >= voters {
		f.least[1], f.least[0] = f.least[0], math.MaxInt64
		f.began, f.samples = d.At, 0
	}
	f.samples++
	f.recent = min(d.RTT, max(f.recent, d.RTT-d.RTT/8))
	f.least[0] = min(f.least[0], d.RTT)
}

// split parts the added round trip into the two ways. The clocks' offset is what
// makes neither negative; where there is no queue it is set anew, so that clocks
// which run apart do no harm.
func (f *source) split(d Delay, added time.Duration) [2]time.Duration {
	if !f.oneWay {
		f.oneWay, f.baseUp = true, d.Up-added/2
	}
	if added < alike {
		f.baseUp += (d.Up - added/2 - f.baseUp) / 4
	}
	up := d.Up - f.baseUp
	if up < 0 {
		f.baseUp, up = d.Up, 0
	}
	if up > added {
		f.baseUp += up - added
		up = added
	}
	return [2]time.Duration{Down: added - up, Up: up}
}

// vote is what the sources say together.
type vote struct {
	known  bool
	oneWay bool // way is known; else only rtt
	rtt    time.Duration
	median time.Duration // of the round trips
	way    [2]time.Duration
	newest sample       // of the voters
	oldest unit.Instant // when the probe of the oldest voter was sent
}

// decide returns the median of the newest samples of different operators. Flows, which know round
// trips only, vote when no reflector has answered lately.
func (s *sources) decide(now unit.Instant, threshold time.Duration) vote {
	v := s.elect(now, threshold)
	if v.known && !v.oneWay {
		s.partByFlows(now, &v)
	}
	if v.known || s.nFlows == 0 {
		return v
	}
	// A queue of the line delays all flows, and whatever else delays one only adds to
	// it: the least of several is the line's.
	var seen [voters]int
	n := 0
	for k := uint64(0); k < min(s.nFlows, sampleSlots) && n < voters; k++ {
		x := s.flows[(s.nFlows-1-k)%sampleSlots]
		if now.Sub(x.at) > voteWindow {
			break
		}
		again := false
		for _, i := range seen[:n] {
			again = again || i == x.source
		}
		if again && (s.manyFlows(now) || n > 1) {
			continue
		}
		if n == 0 {
			v.newest, v.oldest, v.rtt = x, x.sent, x.rtt
		}
		seen[n] = x.source
		n++
		v.oldest, v.rtt = min(v.oldest, x.sent), min(v.rtt, x.rtt)
	}
	if n < 2 {
		return vote{}
	}
	v.known, v.oneWay, v.median = true, false, v.rtt
	v.way = [2]time.Duration{v.rtt, v.rtt}
	return v
}

// partByFlows tells the ways of a round trip apart as the stamps of the connection do that
// was heard last, if that was a moment ago and it waited too.
func (s *sources) partByFlows(now unit.Instant, v *vote) {
	for k := uint64(0); k < min(s.nFlows, sampleSlots); k++ {
		x := &s.flows[(s.nFlows-1-k)%sampleSlots]
		if now.Sub(x.at) > window {
			return
		}
		if x.oneWay && x.rtt >= alike {
			down := time.Duration(float64(v.rtt) * float64(x.way[Down]) / float64(x.rtt))
			v.oneWay, v.way = true, [2]time.Duration{Down: down, Up: v.rtt - down}
			v.newest.way = v.way
			return
		}
	}
}

// manyFlows says whether there is more than one flow.
func (s *sources) manyFlows(now unit.Instant) bool {
	n := 0
	for i := MostReflectors; i < len(s.all); i++ {
		if f := &s.all[i]; f.used && f.heard != never && now.Sub(f.heard) < voteWindow {
			n++
		}
	}
	return n > 1
}

// elect is decide with the reflectors alone. Noisy ones are better than nobody: they
// are heard where the others are of one operator, or have not answered lately.
func (s *sources) elect(now unit.Instant, threshold time.Duration) vote {
	if s.operators(now, false) > 1 {
		if v := s.poll(now, threshold, false); v.known {
			return v
		}
	}
	return s.poll(now, threshold, true)
}

// poll is elect with noisy reflectors or without.
func (s *sources) poll(now unit.Instant, threshold time.Duration, noisy bool) vote {
	var of [voters + 1]sample
	operators, want := s.operators(now, noisy), voters
	if s.noise > noisyLine {
		want++
	}
	tell := s.tellWays(now)
	ways := tell > 1 // then nobody is heard who tells round trips only
	if tell == 2 {
		operators = 2
	}
	// Where there is no noise, two operators are enough; else samples of one do.
	distinct := operators >= want || want == voters && operators > 1
	n := 0
	fresh := func(x *sample) bool {
		for i := range of[:n] {
			if distinct && of[i].operator == x.operator || operators > 1 && of[i].source == x.source {
				return false
			}
		}
		return true
	}
	v := vote{oneWay: true}
	for k := uint64(0); k < min(s.n, sampleSlots) && n < want; k++ {
		x := s.ring[(s.n-1-k)%sampleSlots]
		if now.Sub(x.at) > voteWindow {
			break
		}
		if f := &s.all[x.source]; !f.dead && (noisy || !f.noisy) && (x.oneWay || !ways) && fresh(&x) {
			if n == 0 {
				v.newest, v.oldest = x, x.sent
			}
			of[n] = x
			n++
			v.oneWay = v.oneWay && x.oneWay
			v.oldest = min(v.oldest, x.sent)
		}
	}
	if n == 0 || n == 1 && operators > 1 {
		return vote{}
	}
	v.known = true
	// A probe that is late already says the same as a long answer.
	late := s.overdue(now, v.newest.sent, threshold)
	seconded := func(d Direction) {
		for i := n - 1; i > 0 && i >= n-late; i-- {
			if x := added(v.newest, d); x > threshold {
				of[i].way[d], of[i].rtt = max(of[i].way[d], x), max(of[i].rtt, v.newest.rtt)
			}
		}
	}
	seconded(Down)
	seconded(Up)
	at := (n - 1) / 2 // of two the smaller
	v.median = middle(of[:n], at, func(x *sample) time.Duration { return x.rtt })
	v.rtt = trust(v.median, v.newest.rtt, threshold)
	for d := Down; d <= Up; d++ {
		way := func(x *sample) time.Duration { return added(*x, d) }
		v.way[d] = trust(middle(of[:n], at, way), added(v.newest, d), threshold)
	}
	return v
}

// overdue returns how many probes sent after an instant should have been answered by now.
func (s *sources) overdue(now, after unit.Instant, threshold time.Duration) int {
	n := 0
	for i := range s.reflectors {
		if f := &s.all[i]; !f.dead && !f.noisy && f.asked != never && f.asked > after && f.heard != never && now.Sub(f.asked) > f.base()+threshold {
			n++
		}
	}
	return n
}

// judge compares the newest sample with the vote, which it may have been part of:
// who is often long alone is noisy, and who always differs has moved.
func (s *sources) judge(v vote, threshold time.Duration) {
	if !v.known || s.n == s.judged {
		return
	}
	common := s.lostByAll()
	for ; s.judged < s.n; s.judged++ {
		if s.n-s.judged > sampleSlots {
			continue
		}
		x := &s.ring[s.judged%sampleSlots]
		f := &s.all[x.source]
		alone := 0.0
		if x.rtt > threshold && v.median < threshold/2 {
			alone = 1
			f.odd++
		} else {
			f.odd = 0
		}
		f.alone += (alone - f.alone) / 64
		switch {
		case f.alone > noisySource || f.lost-common > lossySource:
			f.noisy = true
		case f.alone < noisySource/2 && f.lost-common < lossySource/2:
			f.noisy = false
		}
		if !f.noisy {
			s.noise += (alone - s.noise) / 512
		}
		if f.odd >= oddLimit {
			f.least = [2]time.Duration{f.recent, f.recent}
			f.odd, f.oneWay, f.alone, f.noisy = 0, false, 0, false
		}
	}
}

// lostByAll returns the share of probes that every reflector loses: the line loses
// them, and no reflector is worse than another for it.
func (s *sources) lostByAll() float64 {
	common := 1.0
	for i := range s.reflectors {
		if f := &s.all[i]; f.sent > 0 && !f.last {
			common = min(common, f.lost)
		}
	}
	if common == 1 { // none was asked
		return 0
	}
	return common
}

// trust returns the delay to go by. Noise only ever adds to a delay, so a short newest
// sample proves that the queue is short; a long one counts when most others are long.
func trust(median, newest, threshold time.Duration) time.Duration {
	if median > threshold {
		return min(newest, 4*median)
	}
	return min(median, newest)
}

// middle returns the value at a place of the sorted order. The voters are few.
func middle(of []sample, at int, value func(*sample) time.Duration) time.Duration {
	var sorted [voters + 1]time.Duration
	for i := range of {
		x := value(&of[i])
		j := i
		for ; j > 0 && sorted[j-1] > x; j-- {
			sorted[j] = sorted[j-1]
		}
		sorted[j] = x
	}
	return sorted[at]
}
