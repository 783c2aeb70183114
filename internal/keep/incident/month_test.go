package incident_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"unbloat/internal/keep/delay"
	"unbloat/internal/keep/incident"
	"unbloat/testkit/await"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// A trouble is something that happens on one of four hops, or in the router.
type trouble struct {
	name  string
	part  incident.Part
	sharp bool                // nothing comes through: its begin is known to 2 s
	loads bool                // it shows only under load
	does  func(n *now, s int) // what it does to a second; s is how far it goes, 0–99
}

// now is the state of the four hops in one second.
type now struct {
	lanUp, wanUp, first, beyond bool       // what still works
	lossLine, lossBeyond        float64    // shares
	waitLine, waitBeyond        float64    // ms
	lanErrors                   float64    // share
	cpu                         float64    // 0: as usual
	capacity                    float64    // share of what was promised
	unshaped                    bool       // the shaper lets more through
	route                       uint32     //
	farLoss                     [3]float64 // of each far end
	shift                       float64    // ms: another way beyond the first hop
}

// between is a value from a to b.
func between(a, b float64, s int) float64 { return a + (b-a)*float64(s)/99 }

func troubles() []trouble {
	return []trouble{
		{"the port towards the home is down", incident.Home, true, false, func(n *now, _ int) { n.lanUp = false }},
		{"the modem's cable is out", incident.Home, true, false, func(n *now, _ int) { n.wanUp = false }},
		{"errors towards the home", incident.Home, false, false, func(n *now, s int) { n.lanErrors = between(0.1, 0.4, s) }},
		{"the router's processor is full", incident.Router, false, false, func(n *now, s int) {
			n.cpu, n.waitLine, n.lossLine = 1, between(80, 300, s), between(0.05, 0.3, s)
		}},
		{"the shaper is above the line", incident.Router, false, true, func(n *now, s int) { n.unshaped, n.waitLine = true, between(80, 400, s) }},
		{"the route is another one", incident.Router, false, false, func(n *now, s int) { n.route, n.shift = 1, between(0, 40, s) }},
		{"the line is out", incident.Line, true, false, func(n *now, _ int) { n.first, n.beyond = false, false }},
		{"the line loses", incident.Line, false, false, func(n *now, s int) { n.lossLine = between(0.25, 0.6, s) }},
		{"the line carries less", incident.Line, false, true, func(n *now, s int) { n.capacity, n.waitLine = between(0.3, 0.6, s), between(80, 400, s) }},
		{"the provider is out", incident.Provider, true, false, func(n *now, _ int) { n.beyond = false }},
		{"the provider loses", incident.Provider, false, false, func(n *now, s int) { n.lossBeyond = between(0.25, 0.6, s) }},
		{"the provider queues", incident.Provider, false, false, func(n *now, s int) { n.waitBeyond = between(70, 250, s) }},
		{"the provider's way is longer", incident.Provider, false, false, func(n *now, s int) { n.shift = between(25, 45, s) }},
		{"the provider carries less", incident.Provider, false, true, func(n *now, s int) { n.capacity, n.waitBeyond = between(0.3, 0.6, s), between(80, 250, s) }},
		{"a far end is away", incident.Far, false, false, func(n *now, s int) { n.farLoss[s%3] = 1 }},
		{"a far end loses", incident.Far, false, false, func(n *now, s int) { n.farLoss[s%3] = between(0.6, 0.9, s) }},
	}
}

// A fault is a trouble at an instant.
type fault struct {
	trouble
	begin, end time.Time
	size       int
}

// A world is a home of 50 / 10 Mbit/s behind four hops, by the second: the home's network,
// this router, the line, the provider's network, and three far ends. It is a model: what
// everyday life does is drawn by chance from a seed.
type world struct {
	r      *rand.Rand
	at     time.Time
	faults []fault
	// everyday life
	load   [2]float64 // share of what was promised, until loadTo
	loadTo time.Time
	hiccup int // seconds
	spike  int
	lazy   [3]int // seconds that a far end does not answer
}

const (
	promisedDown = 50e6
	promisedUp   = 10e6
)

func params() incident.Params {
	return incident.Params{WAN: "eth0", Promised: [2]unit.Rate{promisedDown, promisedUp}, Far: []string{"a", "b", "c"}}
}

func start() time.Time { return time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC) }

// spread places faults over days: two a day, of each part as many as of the others.
func spread(r *rand.Rand, days, n int) (out []fault) {
	byPart := map[incident.Part][]trouble{}
	for _, t := range troubles() {
		byPart[t.part] = append(byPart[t.part], t)
	}
	parts := incident.Parts()[:5]
	order := r.Perm(n)
	slot := time.Duration(days) * 24 * time.Hour / time.Duration(n)
	for i, k := range order {
		of := byPart[parts[k%len(parts)]]
		f := fault{trouble: of[k/len(parts)%len(of)], size: r.IntN(100)}
		f.begin = start().Add(time.Duration(i)*slot + 90*time.Minute + time.Duration(r.Int64N(int64(slot-4*time.Hour)))).Truncate(time.Second)
		f.end = f.begin.Add(4*time.Minute + time.Duration(r.IntN(20*60))*time.Second)
		out = append(out, f)
	}
	return out
}

func newWorld(seed uint64, faults []fault) *world {
	return &world{r: rand.New(rand.NewPCG(seed, 1)), at: start(), faults: faults}
}

// second lives through the next second.
func (w *world) second(ask func(incident.Second, bool) (far int, first bool)) incident.Second {
	n := now{lanUp: true, wanUp: true, first: true, beyond: true, capacity: 1}
	forced := false
	for _, f := range w.faults {
		lead := time.Duration(0)
		if f.loads {
			lead = 10 * time.Minute
		}
		if !w.at.Before(f.begin.Add(-lead)) && w.at.Before(f.end) {
			forced = forced || f.loads
		}
		if !w.at.Before(f.begin) && w.at.Before(f.end) {
			f.does(&n, f.size)
		}
	}
	w.live(forced)
	s := incident.Second{At: w.at, Far: make([]incident.Answers, 3), Route: n.route}
	s.WAN, s.LAN = incident.Port{Known: true, Up: n.wanUp}, incident.Port{Known: true, Up: n.lanUp}
	through := n.wanUp && n.first && n.beyond && w.hiccup == 0
	rates := [2]float64{promisedDown, promisedUp}
	for i, p := range rates {
		shaper := 0.95 * p
		c := min(w.load[i]*p, shaper)
		if n.unshaped {
			shaper, c = 2*p, min(w.load[i]*p*1.05, 0.99*p)
		}
		c = min(c, n.capacity*p)
		if !n.lanUp {
			c = 0
		}
		loss := n.lossLine + n.lossBeyond
		c *= math.Max(0.02, 1-3*loss) * (0.97 + 0.03*w.r.Float64())
		if !through {
			c = 0
		}
		s.Way[i] = incident.Way{Rate: unit.Rate(shaper), Carried: unit.Rate(c)}
	}
	s.CPU = 0.05 + 0.4*w.load[0] + 0.1*w.r.Float64()
	if n.cpu > 0 {
		s.CPU = n.cpu
	}
	if n.lanUp {
		s.LAN.Packets = uint64((s.Way[0].Carried + s.Way[1].Carried) / 8000)
		if w.at.Minute()%7 == 0 && w.r.IntN(10) == 0 {
			s.LAN.Errors = 1
		}
		s.LAN.Errors += uint64(n.lanErrors * float64(s.LAN.Packets+50))
	}
	waits := n.waitLine * (0.7 + 0.6*w.r.Float64())
	if w.load[0] > 0.8 || w.load[1] > 0.8 {
		waits += w.r.ExpFloat64() * 4
	}
	if w.spike > 0 {
		waits += 40 + w.r.Float64()*80
	}
	everyday := 0.003
	heard := through && w.load[0] > 0.05 && n.waitLine+n.waitBeyond > 60
	i, asksFirst := ask(s, heard)
	if asksFirst {
		s.First.Asked = 1
		// Routers answer by the way, and some not at all for a moment.
		if n.wanUp && n.first && w.hiccup == 0 && w.r.Float64() > 0.02+n.lossLine+everyday {
			s.First.Answered = 1
			s.First.RTT = ms(7 + w.r.ExpFloat64()*1.5 + waits + float64(w.r.IntN(30)/29)*25)
		}
	}
	if w.at = w.at.Add(time.Second); i < 0 {
		return s
	}
	s.Far[i].Asked = 1
	if through && w.lazy[i] == 0 && w.r.Float64() > everyday+n.lossLine+n.lossBeyond+n.farLoss[i] {
		s.Far[i].Answered = 1
		evening := 0.0
		if h := s.At.Hour(); h >= 20 && h < 22 {
			evening = 6 + 6*w.r.Float64()
		}
		s.Far[i].RTT = ms(12 + float64(i)*6 + w.r.ExpFloat64()*1.5 + waits + n.waitBeyond*(0.7+0.6*w.r.Float64()) + n.shift + evening)
	}
	return s
}

func ms(v float64) unit.Milliseconds { return unit.Milliseconds(unit.FromMs(v)) }

// live draws what the home does: nothing much, a film, a download, an upload.
func (w *world) live(forced bool) {
	if !w.at.Before(w.loadTo) {
		w.loadTo = w.at.Add(time.Duration(60+w.r.IntN(1200)) * time.Second)
		awake := w.at.Hour() >= 7 && w.at.Hour() < 24
		w.load = [2]float64{0.0005 + 0.002*w.r.Float64(), 0.001}
		switch k := w.r.IntN(10); {
		case !awake:
		case k < 3:
			w.load = [2]float64{0.1 + 0.2*w.r.Float64(), 0.02}
		case k < 5:
			w.load = [2]float64{1, 0.15}
		case k == 5:
			w.load = [2]float64{0.05, 1}
		}
	}
	if forced {
		w.load = [2]float64{1, 0.15}
		w.loadTo = w.at.Add(time.Second)
	}
	count := func(n *int, oneIn, most int) {
		if *n > 0 {
			*n--
		} else if w.r.IntN(oneIn) == 0 {
			*n = 1 + w.r.IntN(most)
		}
	}
	count(&w.hiccup, 86400, 2)
	count(&w.spike, 3600, 3)
	for i := range w.lazy {
		count(&w.lazy[i], 86400, 12)
	}
}

// month is how many days are lived through.
func month() int {
	if labtest.Long() {
		return 30
	}
	return 10
}

// A found is what became of a fault.
type found struct {
	fault
	is  *incident.Incident
	off time.Duration
}

// live lives through days and returns what the judge told, the newest word of each.
func live(seed uint64, days int, faults []fault, every time.Duration) (out []incident.Incident, asked int) {
	w := newWorld(seed, faults)
	j := incident.New(params())
	var ids []string
	told := map[string]incident.Incident{}
	pace := incident.Pace{Every: every}
	var open []incident.Second // until their questions have been waited for
	for range days * 86400 {
		s := w.second(func(s incident.Second, heard bool) (int, bool) {
			return pace.Ask(j, append(open, s), false, heard)
		})
		asked += s.First.Asked
		for _, a := range s.Far {
			asked += a.Asked
		}
		if open = append(open, s); len(open) <= 3 {
			continue
		}
		for _, x := range j.Take(open[0]) {
			if _, is := told[x.ID]; !is {
				ids = append(ids, x.ID)
			}
			told[x.ID] = x
		}
		open = slices.Delete(open, 0, 1)
	}
	for _, id := range ids {
		out = append(out, told[id])
	}
	return out, asked
}

// match finds for each fault the incident that is nearest to its begin; those that are
// left are false.
func match(faults []fault, told []incident.Incident) (out []found, wrong []incident.Incident) {
	used := map[string]bool{}
	for _, f := range faults {
		x := found{fault: f, off: time.Hour}
		for i, t := range told {
			if t.Begin.After(f.end) || t.Over() && t.End.Before(f.begin.Add(-30*time.Second)) || t.Begin.Before(f.begin.Add(-5*time.Minute)) {
				continue
			}
			used[t.ID] = true
			if off := t.Begin.Sub(f.begin); off.Abs() < x.off.Abs() {
				x.off, x.is = off, &told[i]
			}
		}
		out = append(out, x)
	}
	for _, t := range told {
		if !used[t.ID] {
			wrong = append(wrong, t)
		}
	}
	return out, wrong
}

func says(x incident.Incident) string {
	return fmt.Sprintf("%s %s %s %s until %s: %s (%s)", x.Begin.Format(time.DateTime), x.Kind, x.Part, x.Severity, x.End.Format(time.TimeOnly), x.What, x.Why)
}

// A manner is how a line is watched.
type manner struct {
	name  string
	every time.Duration // between two questions while all is well
	// What is promised of it: shares of the faults that are found in time, that are found at
	// all, and whose part is right.
	inTime, found, right float64
	sharp                float64 // found in time, of those that let nothing through
}

func manners() []manner {
	_, anyway := delay.Pace(delay.WithFirstHop(delay.Resolvers()))
	return []manner{{"closely", time.Second, 0.95, 0.97, 0.9, 0.95}, {"by what is asked anyway", anyway, 0.8, 0.93, 0.9, 0.95}}
}

// Faults of all parts are found beside everyday life, at the right time, and the right
// part is blamed: never the provider for what is wrong at home. By what is asked anyway
// fewer are found in time, for a loss shows late; outages are.
func TestMonthOfFaults(t *testing.T) {
	await.NotShort(t)
	days, seeds := month(), uint64(1)
	if labtest.Long() {
		seeds = 10
	}
	for _, m := range manners() {
		t.Run(m.name, func(t *testing.T) {
			all, allInTime, allFound, allRight, allSharp, sharpInTime := 0, 0, 0, 0, 0, 0
			for seed := uint64(1); seed <= seeds; seed++ {
				faults := spread(rand.New(rand.NewPCG(seed, 2)), days, 2*days)
				told, asked := live(seed, days, faults, m.every)
				results, wrong := match(faults, told)
				inTime, right := 0, 0
				var offs []time.Duration
				for _, f := range results {
					limit := 10 * time.Second
					if f.sharp {
						limit = 2 * time.Second
						allSharp++
					}
					ok := f.is != nil && f.off.Abs() <= limit
					if ok {
						inTime++
					}
					if ok && f.sharp {
						sharpInTime++
					}
					if f.is != nil {
						offs = append(offs, f.off.Abs())
					}
					if f.is != nil && f.is.Part == f.part {
						right++
					}
					if f.part == incident.Home && f.is != nil && f.is.Part == incident.Provider {
						t.Errorf("seed %d: %s: the provider is blamed: %s", seed, f.name, says(*f.is))
					}
					if !ok || f.is.Part != f.part {
						is := "nothing"
						if f.is != nil {
							is = says(*f.is)
						}
						t.Logf("seed %d: %s %s–%s (%d): off by %s: %s", seed, f.name, f.begin.Format(time.DateTime), f.end.Format(time.TimeOnly), f.size, f.off, is)
					}
				}
				slices.Sort(offs)
				n := len(faults)
				t.Logf("seed %d: %d questions a day; of %d faults found %d, in time %d, right part %d; begin off by %s in the median, %s at p95; %d false",
					seed, asked/days, n, len(offs), inTime, right, offs[len(offs)/2], offs[len(offs)*95/100], len(wrong))
				all, allInTime, allFound, allRight = all+n, allInTime+inTime, allFound+len(offs), allRight+right
				for _, x := range wrong {
					t.Errorf("seed %d: false: %s", seed, says(x))
				}
			}
			t.Logf("of %d faults found %d, in time %d, right part %d; of %d that let nothing through in time %d", all, allFound, allInTime, allRight, allSharp, sharpInTime)
			of := func(n, all int) float64 { return float64(n) / float64(all) }
			if of(allInTime, all) < m.inTime || of(allFound, all) < m.found || of(allRight, all) < m.right || of(sharpInTime, allSharp) < m.sharp {
				t.Error("that is less than is promised")
			}
		})
	}
}

// A month without faults has no incident, and where nothing is asked for the judge's sake it
// costs no more than what a day without load may cost.
func TestMonthWithoutFaults(t *testing.T) {
	await.NotShort(t)
	seeds := uint64(1)
	if labtest.Long() {
		seeds = 10
	}
	for _, m := range manners() {
		t.Run(m.name, func(t *testing.T) {
			for seed := uint64(1); seed <= seeds; seed++ {
				told, asked := live(100+seed, month(), nil, m.every)
				t.Logf("seed %d: %d questions a day", seed, asked/month())
				for _, x := range told {
					t.Errorf("seed %d: %s", seed, says(x))
				}
				const exchange = 121 // bytes of a question and its answer
				if m.every > time.Second && asked/month()*exchange > delay.BudgetIdle {
					t.Errorf("seed %d: that is more than %d bytes", seed, delay.BudgetIdle)
				}
			}
		})
	}
}
