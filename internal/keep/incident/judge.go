package incident

import (
	"cmp"
	"math"
	"slices"
	"time"

	"unbloat/unit"
)

// A Judge finds the incidents of one line. It is for one goroutine.
type Judge struct {
	p      Params
	first  source
	far    []source
	recent []Second // the last lookback, oldest first
	wan    [5]detector
	lan    [2]detector // its link, its errors
	route  uint32
	began  bool
	all    []*detector // the strongest first
}

// Times and bounds of the judge.
const (
	lookback    = 120              // seconds before an incident that are kept, of which lead are its samples
	lead        = 60               //
	mostSamples = 600              // of an incident by the second; then one each coarse
	coarse      = 60               // seconds
	mostWhole   = 1500             // samples in all
	mostPath    = 6 * time.Hour    // then another way is the usual one
	mostIdle    = 30 * time.Minute // without load a slow line is not seen any more
	alive       = 0.02             // Mbit/s that arrive only from a line that works
)

// A detector adds up what speaks for an incident, and takes off what speaks against it: a
// CUSUM. The last time that the sum was nothing is when it began.
type detector struct {
	kind        Kind
	part        Part // Home or Far: it is about nothing else
	sum         float64
	raise, most float64
	wait        time.Duration // from its begin until it is told
	begin, last time.Time     // of what spoke for it
	well        time.Time     // the last time that something spoke against it
	gap         float64       // seconds between two such times, usually
	routed      bool          // of Path: the route or the address was another one
	open        *finding
}

// take takes in a second's evidence. It began after the last time that all was well, half
// of the usual time between two such times.
func (d *detector) take(at time.Time, x float64) {
	switch {
	case x > 0:
		if d.sum == 0 {
			d.begin = at
			if since := at.Sub(d.well); since <= time.Minute {
				d.begin = d.well.Add((min(since, time.Duration(d.gap*float64(time.Second))) + time.Second) / 2).Round(time.Second)
			}
		}
		d.last = at
	case x < 0:
		if gap := at.Sub(d.well).Seconds(); gap < 60 {
			d.gap += (gap - d.gap) / 10
		}
		d.well = at
	}
	d.sum = min(max(d.sum+x, 0), d.most)
}

func (d *detector) reset() { d.sum, d.open = 0, nil }

// A finding is an incident that goes on.
type finding struct {
	Incident
	told    bool
	unsure  bool
	said    string    // what of it was told last
	firsts  []float64 // rises, for the medians
	fars    []float64
	seconds int
	cpu     float64
	cpuN    int
	cpuBusy int      // seconds
	late    []Second // since it was seen last: it may be over
	lanLost uint64
	wanDown int // seconds without a link
	byFar   [][2]int
	walk    []Hop
}

// A source is a far end or the first hop, and its usual round trip.
type source struct {
	minutes [30]float64 // the least of each minute; 0: none
	minute  int64
	usual   float64   // the least of them
	recent  []float64 // rises of the last answers
	times   []time.Time
	varies  float64 // the usual rise
	rise    float64
	at      time.Time // of the last answer
	answers int
	one     detector // of far ends: this one alone
}

const riseAnswers = 20 // that a source's way is judged by

// known reports whether the source has answered often enough to be missed.
func (s *source) known() bool { return s.answers >= 10 }

// take takes in answers. While something is wrong, what is usual stays.
func (s *source) take(at time.Time, a Answers, frozen bool) {
	if a.Answered == 0 {
		return
	}
	rtt := a.RTT.Ms()
	if minute := at.Unix() / 60; !frozen || s.answers == 0 {
		if minute != s.minute {
			s.minute = minute
			s.minutes[minute%int64(len(s.minutes))] = 0
		}
		m := &s.minutes[minute%int64(len(s.minutes))]
		if *m == 0 || rtt < *m {
			*m = rtt
			s.usual = math.Inf(1)
			for _, least := range s.minutes {
				if least > 0 {
					s.usual = min(s.usual, least)
				}
			}
		}
	}
	s.answers++
	s.at, s.rise = at, max(rtt-s.usual, 0)
	const slowly = 50 // answers
	s.varies += (s.rise - s.varies) / slowly
	if s.recent, s.times = append(s.recent, s.rise), append(s.times, at); len(s.recent) > riseAnswers {
		s.recent, s.times = slices.Delete(s.recent, 0, 1), slices.Delete(s.times, 0, 1)
	}
}

func (s *source) forget() { *s = source{one: s.one} }

// New returns a Judge.
func New(p Params) *Judge {
	p.Limit = cmp.Or(p.Limit, DefaultLimit)
	j := &Judge{p: p, far: make([]source, len(p.Far))}
	for i, k := range Kinds() {
		j.wan[i] = map[Kind]detector{
			Outage: {raise: 5, most: 10, wait: 7 * time.Second},
			Loss:   {raise: 18, most: 24},
			Slow:   {raise: 120, most: 180},
			Path:   {raise: 20, most: 60, wait: 75 * time.Second},
			Bloat:  {raise: 10, most: 30, wait: time.Minute},
		}[k]
		j.wan[i].kind = k
		j.all = append(j.all, &j.wan[i])
	}
	j.lan = [2]detector{{kind: Outage, part: Home, raise: 3, most: 5, wait: 10 * time.Second}, {kind: Loss, part: Home, raise: 10, most: 30, wait: 30 * time.Second}}
	for i := range j.far {
		j.far[i].one = detector{kind: Loss, part: Far, raise: 15, most: 20, wait: time.Minute}
		j.all = append(j.all, &j.far[i].one)
	}
	j.all = append(j.all, &j.lan[0], &j.lan[1])
	return j
}

// Take takes in the next second, and returns the incidents that are new or have changed:
// to be told, and to be kept under their IDs. Those that have ended have their samples.
func (j *Judge) Take(s Second) (out []Incident) {
	trouble := slices.ContainsFunc(j.wan[:], func(d detector) bool { return d.open != nil })
	j.first.take(s.At, s.First, trouble)
	for i := range min(len(s.Far), len(j.far)) {
		j.far[i].take(s.At, s.Far[i], trouble || j.far[i].one.open != nil)
	}
	first, far := j.rises(s)
	j.weigh(s, first, far)
	if j.recent = append(j.recent, s); len(j.recent) > 2*lookback {
		j.recent = slices.Delete(j.recent, 0, lookback)
	}
	j.route, j.began = s.Route, true
	for _, d := range j.all {
		j.step(d, s)
		if x, is := j.tell(d, s.At); is {
			out = append(out, x)
		}
	}
	return out
}

// rises returns by how much the round trips to the first hop and to the far ends exceed
// what is usual; below 0: not known.
func (j *Judge) rises(s Second) (first, far float64) {
	const fresh = 10 * time.Second
	first = -1
	if j.first.known() && s.At.Sub(j.first.at) < fresh {
		first = j.first.rise
	}
	var all []float64
	for i := range j.far {
		if f := &j.far[i]; f.one.open == nil && f.known() && s.At.Sub(f.at) < fresh {
			all = append(all, f.rise)
		}
	}
	if len(all) == 0 {
		return first, -1
	}
	slices.Sort(all)
	return first, all[(len(all)-1)/2]
}

// weigh gives each detector its evidence.
func (j *Judge) weigh(s Second, first, far float64) {
	asked, answered := 0, 0
	for i := range min(len(s.Far), len(j.far)) {
		a := s.Far[i]
		j.one(i, s.At, a)
		if j.far[i].one.open == nil {
			asked, answered = asked+a.Asked, answered+a.Answered
		}
	}
	arrives := s.Way[0].Carried.Mbit() > alive
	down := s.WAN.Known && !s.WAN.Up
	outage, loss, slow, way, bloat := &j.wan[0], &j.wan[1], &j.wan[2], &j.wan[3], &j.wan[4]

	// What some answers come through was a loss that began with a few seconds of silence.
	const enough, some = 12, 0.2
	if f := outage.open; f != nil && f.Figures.FarAsked >= enough && float64(f.Figures.FarAnswered) > some*float64(f.Figures.FarAsked) {
		f.Kind, f.said = Loss, ""
		outage.reset()
		loss.open, loss.sum, loss.last = f, loss.most, s.At
	}
	// Of a line that loses much, some seconds are silent by chance.
	if outage.raise = 5; loss.open != nil || loss.sum-lossWorth*outage.sum > 5 {
		outage.raise = 20
	}
	switch {
	case answered > 0 || arrives && !down:
		if outage.open == nil {
			outage.sum = 0
		}
		outage.take(s.At, -1)
	case asked > 0 || down:
		outage.take(s.At, 1)
	}
	loss.take(s.At, lossWorth*float64(asked-answered)-answerWorth*float64(answered))
	if far >= 0 && answered > 0 {
		x := -1.0
		if far > j.p.Limit.Ms() {
			x = 1
		}
		bloat.take(s.At, x)
	}
	j.weighSlow(slow, s, far)
	j.weighPath(way, s, first)

	if s.LAN.Known {
		x := -1.0
		if !s.LAN.Up {
			x = 1
		}
		j.lan[0].take(s.At, x)
		const least, share = 20, 0.05 // packets
		switch e := float64(s.LAN.Errors); {
		case s.LAN.Up && s.LAN.Packets+s.LAN.Errors >= least && e > share*(e+float64(s.LAN.Packets)):
			j.lan[1].take(s.At, 1)
		case s.LAN.Packets >= least:
			j.lan[1].take(s.At, -1)
		}
	}
	for i := range j.wan { // what a stronger one explains
		if j.wan[i].open == nil {
			continue
		}
		for k := i + 1; k < len(j.wan); k++ {
			if j.wan[k].open == nil {
				j.wan[k].sum = 0
			}
		}
		break
	}
}

// What a probe is worth as evidence of loss: the logarithm of how much more likely its
// fate is on a line that loses 15 % of the packets than on one that loses 1 %.
const (
	lossWorth   = 2.71
	answerWorth = 0.152
)

// one weighs whether one far end alone is away or loses.
func (j *Judge) one(i int, at time.Time, a Answers) {
	others := false
	for k := range j.far {
		others = others || k != i && at.Sub(j.far[k].at) < 10*time.Second
	}
	f := &j.far[i]
	lost := a.Asked - a.Answered
	// What others lose too is not this one's, but the way's.
	if lost > 0 && (!others || j.lossOfOthers(i) > 0.03) {
		return
	}
	f.one.take(at, lossWorth*float64(lost)-answerWorth*float64(a.Answered)*3)
}

// lossOfOthers is the share that the other far ends lost lately.
func (j *Judge) lossOfOthers(i int) float64 {
	asked, lost := 0, 0
	for _, s := range j.recent[max(0, len(j.recent)-30):] {
		for k, a := range s.Far {
			if k != i && k < len(j.far) && j.far[k].one.open == nil {
				asked, lost = asked+a.Asked, lost+a.Asked-a.Answered
			}
		}
	}
	return float64(lost) / float64(max(asked, 1))
}

// weighSlow weighs whether the line carries less than was promised while it is asked for
// more: it queues, or the shaper that follows it is full and far below.
func (j *Judge) weighSlow(d *detector, s Second, far float64) {
	const enough, less, some, full = 0.75, 0.7, 0.25, 0.8
	x := 0.0
	for i, w := range s.Way {
		p := float64(j.p.Promised[i])
		if p == 0 || w.Carried < 0 {
			continue
		}
		c, r := float64(w.Carried), float64(w.Rate)
		switch queues := far > j.p.Limit.Ms(); {
		case c >= enough*p:
			x = -2
		case x == 0 && c < less*p && (queues && c >= some*p || r > 0 && r < less*p && c >= full*r):
			x = 1
		}
		if x < 0 {
			break
		}
	}
	d.take(s.At, x)
	if d.sum > 0 && s.At.Sub(d.last) > mostIdle {
		d.sum = 0
	}
}

// weighPath weighs whether packets go another way: the default route or the address is
// another, or all far ends are further away, the first hop is not, and it does not vary.
func (j *Judge) weighPath(d *detector, s Second, first float64) {
	const window = time.Minute
	if j.began && s.Route != j.route {
		j.first.forget()
		for i := range j.far {
			j.far[i].forget()
		}
		d.take(s.At, d.most)
		d.routed = true
		return
	}
	shifted := first >= 0 && first < 5
	n, since := 0, s.At
	for i := range j.far {
		f := &j.far[i]
		if f.one.open != nil {
			continue
		}
		n++
		if len(f.recent) < riseAnswers || s.At.Sub(f.at) > window/6 {
			shifted = false
			break
		}
		if since.After(f.times[0]) {
			since = f.times[0]
		}
		least, sum := math.Inf(1), 0.0
		for _, r := range f.recent {
			least, sum = min(least, r), sum+r
		}
		shifted = shifted && least >= max(15, 0.2*f.usual) && sum/riseAnswers < 1.3*least+5
	}
	switch {
	case shifted && n > 1 && d.sum == 0:
		d.take(s.At, 1)
		d.routed = false
		d.begin = since
	case shifted && n > 1:
		d.take(s.At, 1)
	default:
		d.take(s.At, -1)
	}
}

// step opens and closes the incident of a detector.
func (j *Judge) step(d *detector, s Second) {
	if d.open == nil && d.sum >= d.raise && !j.explained(d) {
		j.begin(d)
	} else if d.open != nil {
		if d.open.late = append(d.open.late, s); len(d.open.late) > mostSamples {
			d.open.late = slices.Delete(d.open.late, 0, 1)
		}
		if d.last.Equal(s.At) {
			d.open.addLate(j)
		}
	}
	if d.open == nil {
		return
	}
	switch {
	case d.sum == 0:
		d.open.End = d.last.Add(time.Second)
	case d.kind == Path && s.At.Sub(d.open.Begin) > mostPath:
		d.open.End, d.sum = s.At.Add(time.Second), 0
		for i := range j.far {
			j.far[i].forget()
		}
	}
}

// explained reports whether a stronger incident of the line has begun, in this second even.
func (j *Judge) explained(d *detector) bool {
	for i := range j.wan {
		if &j.wan[i] == d {
			return false
		}
		if j.wan[i].open != nil && d.part == "" {
			return true
		}
	}
	return false
}

// begin opens an incident. What is weaker and began no earlier was its consequence, and
// becomes it; what began before ends.
func (j *Judge) begin(d *detector) {
	f := &finding{byFar: make([][2]int, len(j.far))}
	f.WAN, f.Router, f.Far, f.Kind, f.Begin = j.p.WAN, j.p.Router, j.p.Far, d.kind, d.begin
	f.ID = f.Begin.UTC().Format("20060102T150405Z-") + string(d.kind)
	if d.part != "" {
		f.ID += "-" + string(d.part)
	}
	if d.part == "" {
		for i := range j.wan {
			w := &j.wan[i]
			if w == d || w.open == nil || slices.Index(Kinds(), w.kind) < slices.Index(Kinds(), d.kind) {
				continue
			}
			const near = 30 * time.Second
			if !w.open.Begin.Before(d.begin.Add(-near)) || !w.open.told {
				if w.open.told {
					f.ID, f.told = w.open.ID, true
				}
				if w.open.Begin.Before(f.Begin) && !w.open.Begin.Before(d.begin.Add(-near)) {
					f.Begin = w.open.Begin
				}
				w.reset()
			} else {
				w.open.End, w.sum = d.begin, 0
			}
		}
	}
	if loss := &j.wan[1]; d.part == Far && loss.open != nil { // it was this one's
		if i, is := loss.open.alone(); is && d == &j.far[i].one {
			f.ID, f.told, f.Begin = loss.open.ID, loss.open.told, loss.open.Begin
			loss.reset()
		}
	}
	for _, s := range j.recent {
		switch ago := f.Begin.Sub(s.At); {
		case ago > 0 && ago <= lead*time.Second:
			f.Samples = append(f.Samples, s)
		case ago <= 0:
			f.add(j, s)
		}
	}
	d.open = f
}

// alone returns the far end that lost nearly all that was lost, while the others lost
// next to nothing.
func (f *finding) alone() (far int, is bool) {
	const most, others = 0.8, 0.05
	asked, lost := 0, 0
	for i, a := range f.byFar {
		asked, lost = asked+a[0], lost+a[0]-a[1]
		if a[0]-a[1] > f.byFar[far][0]-f.byFar[far][1] {
			far = i
		}
	}
	if len(f.byFar) < 2 || lost == 0 {
		return far, false
	}
	mine := f.byFar[far][0] - f.byFar[far][1]
	return far, float64(mine) >= most*float64(lost) && float64(lost-mine) <= others*float64(asked-f.byFar[far][0])
}

// addLate takes in the seconds that turned out to be of the incident.
func (f *finding) addLate(j *Judge) {
	for _, s := range f.late {
		f.add(j, s)
	}
	f.late = f.late[:0]
}

// add takes in a second of the incident.
func (f *finding) add(j *Judge, s Second) {
	if n := len(f.Samples); n < mostSamples || f.seconds%coarse == 0 && n < mostWhole {
		f.Samples = append(f.Samples, s)
	}
	g := &f.Figures
	f.seconds++
	g.FirstAsked, g.FirstAnswered = g.FirstAsked+s.First.Asked, g.FirstAnswered+s.First.Answered
	if s.First.Answered > 0 && len(f.firsts) < mostWhole {
		f.firsts = append(f.firsts, max(s.First.RTT.Ms()-j.first.usual, 0))
	}
	for i := range min(len(s.Far), len(j.far)) {
		a := s.Far[i]
		f.byFar[i][0], f.byFar[i][1] = f.byFar[i][0]+a.Asked, f.byFar[i][1]+a.Answered
		g.FarAsked, g.FarAnswered = g.FarAsked+a.Asked, g.FarAnswered+a.Answered
		if a.Answered > 0 && len(f.fars) < mostWhole {
			f.fars = append(f.fars, max(a.RTT.Ms()-j.far[i].usual, 0))
		}
	}
	n := float64(f.seconds)
	for i, w := range s.Way {
		g.Carried[i] += unit.Rate((float64(max(w.Carried, 0)) - float64(g.Carried[i])) / n)
		g.Shaper[i] += unit.Rate((float64(w.Rate) - float64(g.Shaper[i])) / n)
	}
	if s.CPU >= 0 {
		f.cpuN++
		f.cpu += s.CPU
		if s.CPU >= busyCPU {
			f.cpuBusy++
		}
	}
	if s.WAN.Known && !s.WAN.Up {
		f.wanDown++
	}
	f.lanLost += s.LAN.Errors
}

// tell returns the incident of a detector, if it is new or has changed. One that ends
// before it was to be told is forgotten.
func (j *Judge) tell(d *detector, now time.Time) (Incident, bool) {
	f := d.open
	if f == nil {
		return Incident{}, false
	}
	if !f.told && !f.Over() && d.last.Sub(f.Begin) < d.wait {
		return Incident{}, false
	}
	if f.Over() {
		d.open = nil
		if !f.told && f.End.Sub(f.Begin) < d.wait && d.kind != Path {
			return Incident{}, false
		}
		for _, s := range j.recent { // what came after it
			if n := len(f.Samples); n > 0 && n < mostWhole && s.At.After(f.Samples[n-1].At) {
				f.Samples = append(f.Samples, s)
			}
		}
	} else if f.told && f.said != "" && f.seconds%60 != 0 && !(f.unsure && f.seconds < 90) {
		return Incident{}, false
	}
	x := f.judged(j, d, now)
	f.unsure = x.Part == Unsure
	if f.Over() {
		x.Digest = Digest(CSV(x.Samples, x.Far))
	}
	if said := string(x.Kind) + string(x.Part) + string(x.Severity); f.Over() || said != f.said {
		f.told, f.said = true, said
		return x, true
	}
	return Incident{}, false
}

// Close ends what goes on: nobody looks any more.
func (j *Judge) Close(now time.Time) (out []Incident) {
	for _, d := range j.all {
		if d.open != nil {
			d.open.End = now
			if x, is := j.tell(d, now); is {
				out = append(out, x)
			}
		}
	}
	return out
}

// Walked takes in what routers on the way answered soon after an incident had begun.
func (j *Judge) Walked(hops []Hop) {
	for i := range j.wan {
		if f := j.wan[i].open; f != nil {
			f.walk, f.unsure = hops, true
		}
	}
}

// median returns the median of values; below 0 if there are none.
func median(v []float64) float64 {
	if len(v) == 0 {
		return -1
	}
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}
