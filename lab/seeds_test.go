package lab_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"unbloat/internal/measure/verdict"
	"unbloat/lab"
	"unbloat/lab/scenario"
	"unbloat/scenarios"
	"unbloat/testkit/labtest"
)

// cells are the cases that were run, by scenario, form and seed. A guest with the
// same seed gives the same figures (TestSameSeedSameFigures), so tests that
// need the same case share its result.
type cells struct {
	mu   sync.Mutex
	runs map[string]*cell
}

type cell struct {
	mu    sync.Mutex // held while cases run
	cases map[string]lab.CaseResult
}

func (c *cells) of(key string) *cell {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs[key] == nil {
		c.runs[key] = &cell{cases: map[string]lab.CaseResult{}}
	}
	return c.runs[key]
}

var ran = cells{runs: map[string]*cell{}}

// run runs cases of a scenario on the virtual engine, with the unbloat of this tree: in
// the short form by day, as it is at night.
func (d *draw) run(name string, cases ...string) map[string]lab.CaseResult {
	d.Helper()
	s := embedded(d.T, name)
	byDay(s)
	return d.runs(s, fmt.Sprintf("%s, seed %d", name, d.Seed), cases)
}

// tuning runs the case of a scenario that is tuned, which is tuned by day too.
func (d *draw) tuning(name string) lab.CaseResult {
	d.Helper()
	s := embedded(d.T, name)
	shorter(s)
	return d.runs(s, fmt.Sprintf("tuning %s, seed %d", name, d.Seed), []string{"tuned"})["tuned"]
}

// beside runs cases of a scenario with these greedy loads alone, in one phase.
func (d *draw) beside(name string, loads []scenario.Load, cases ...string) map[string]lab.CaseResult {
	d.Helper()
	s := embedded(d.T, name)
	byDay(s)
	s.Loads = loads
	return d.runs(s, fmt.Sprintf("%s beside %v, seed %d", name, loads, d.Seed), cases)
}

// embedded reads a scenario that comes with unbloat.
func embedded(t *testing.T, name string) *scenario.Scenario {
	t.Helper()
	text, err := scenarios.Text(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := scenario.Parse(name+".toml", text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// runs runs cases that have not been run under this key, and checks what holds for every case.
func (d *draw) runs(s *scenario.Scenario, key string, only []string) map[string]lab.CaseResult {
	d.Helper()
	labtest.NeedKernel(d)
	cell := ran.of(key)
	cell.mu.Lock()
	defer cell.mu.Unlock()
	missing := slices.DeleteFunc(slices.Clone(only), func(c string) bool { _, ok := cell.cases[c]; return ok })
	if len(missing) > 0 {
		r, err := lab.Run(d.Context(), s, lab.Options{Engine: lab.Virtual, Cases: missing, Programs: labtest.Programs(d), Seed: d.Seed})
		if err != nil {
			d.Fatal(err)
		}
		for _, c := range r.Cases {
			cell.cases[c.Name] = c
		}
	}
	cases := map[string]lab.CaseResult{}
	for _, name := range only {
		c := cell.cases[name]
		cases[name] = c
		if c.Tune != nil && c.Tune.Plan != nil && len(s.Line.Vary) == 0 {
			// At a rate above the line's, the modem's queue would grow. This is exact: no draw has slack.
			for what, of := range map[string]float64{
				"tuned rate down":         float64(c.Tune.Plan.DownBps) / float64(s.Line.Down),
				"tuned rate up":           float64(c.Tune.Plan.UpBps) / float64(s.Line.Up),
				"the line up as measured": float64(c.Tune.LineUpBps) / (1.002 * float64(s.Line.Up)),
			} {
				if of > 1 {
					d.Errorf("seed %d, %s: %s is %.4f of the line", d.Seed, c.Name, what, of)
				}
			}
		}
		// With a queue that drops nine packets of ten a load may never settle.
		// The probes' figures are right even then.
		other := c.Name == "fq_codel" || c.Name == "cake" || strings.HasPrefix(c.Name, "uncounted")
		if !c.Test.Valid && !(other && c.Test.OnlyUnsaturated()) {
			d.Errorf("seed %d, case %s is not valid: %v", d.Seed, c.Name, c.Test.InvalidReasons)
		}
	}
	return cases
}

// A seed is the line of one article, with what must be measured: before, with
// the article's own fix, and tuned.
type seed struct {
	name   string
	before map[string]float64         // minimum p95 of the round trip time by phase, ms
	fixed  func(*draw, *verdict.Test) // checks the article's own fix, as we render it
	byDay  bool                       // its line is slow, so that it has few packets
	tuned  bool                       // by day too
}

// The table of the articles' lines: SPECIFICATION.md, "Seeds".
func TestSeeds(t *testing.T) {
	t.Parallel()
	loaded := verdict.PhaseLoaded
	for _, s := range []seed{
		{
			name:   "seed-000",
			before: map[string]float64{verdict.PhaseBoth: 1000},
			fixed: func(d *draw, x *verdict.Test) {
				for _, p := range x.Phases() {
					d.AtMost(p.Name+" max", p.Latency.RTTMs.Max, 60)
				}
			},
		},
		{
			name:   "seed-001",
			before: map[string]float64{loaded: 3500},
			fixed: func(d *draw, x *verdict.Test) {
				d.AtMost("mean", x.Loaded.Latency.RTTMs.Mean, 50)
				d.AtMost("max", x.Loaded.Latency.RTTMs.Max, 213)
			},
		},
		{
			name:   "seed-002",
			before: map[string]float64{loaded: 1900},
			fixed: func(d *draw, x *verdict.Test) {
				within(d, "mean", x.Loaded.Latency.RTTMs.Mean, 95-35, 95+35)
				d.AtMost("loss", x.Loaded.Latency.Loss, 0)
			},
			byDay: true,
		},
		{
			name:   "seed-003",
			before: map[string]float64{loaded: 2700},
			fixed: func(d *draw, x *verdict.Test) {
				d.AtMost("p50", x.Loaded.Latency.RTTMs.P50, 37)
				d.AtMost("max", x.Loaded.Latency.RTTMs.Max, 52)
			},
			byDay: true,
			tuned: true,
		},
		{
			name:   "seed-004",
			before: map[string]float64{verdict.PhaseDownload: 600, verdict.PhaseUpload: 270},
			fixed: func(d *draw, x *verdict.Test) {
				d.AtMost("download p95", x.Download.Latency.RTTMs.P95, 24)
				d.AtMost("upload p95", x.Upload.Latency.RTTMs.P95, 17)
			},
		},
	} {
		if !s.byDay && !labtest.Long() {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			overDraws(t, func(d *draw) {
				cases := d.run(s.name, "before", "seed")
				for phase, least := range s.before {
					d.AtLeast("before: "+phase+" p95", phaseOf(cases["before"].Test, phase).Latency.RTTMs.P95, least)
				}
				s.fixed(d, cases["seed"].Test)
				if s.tuned || labtest.Long() {
					tunedWell(d, cases["before"], d.tuning(s.name))
				}
			})
		})
	}
}

// tunedWell checks a tuned case against the unshaped line: the increase meets
// the goal in all phases, with 97 % of the throughput, and the tuning took at
// most two minutes and was kept.
func tunedWell(d *draw, before, tuned lab.CaseResult) {
	d.Helper()
	r := tuned.Tune
	if r == nil || !r.Kept || r.ExitCode != 0 {
		d.Fatalf("the tuning was not kept: %+v", r)
	}
	d.AtMost("line time of the tuning, s", r.LineSeconds, 120)
	within := func(what string, x, line *verdict.Test) {
		for _, p := range x.Phases() {
			if p.Name == verdict.PhaseIdle {
				continue
			}
			d.AtMost(what+": "+p.Name+" p95 increase", p.Latency.IncreaseMs.P95, r.GoalMs)
			was := phaseOf(line, p.Name)
			// In the phase both, the uploads on the unshaped uplink delay the
			// download's acknowledgements so much that there is no goodput to
			// compare with.
			if p.Name == verdict.PhaseBoth {
				continue
			}
			if was.GoodputDownBps > 0 {
				d.AtLeast(what+": "+p.Name+" goodput down, of the line's", p.GoodputDownBps/was.GoodputDownBps, 0.97)
			}
			if was.GoodputUpBps > 0 {
				d.AtLeast(what+": "+p.Name+" goodput up, of the line's", p.GoodputUpBps/was.GoodputUpBps, 0.97)
			}
		}
	}
	within("measured from the home", tuned.Test, before.Test)
	within("the tuner's own check", r.After, r.Before)
}

// Small packets must go first to meet the goal of 5 ms with four flows in each
// direction.
func TestSmallFirst(t *testing.T) {
	t.Parallel()
	overDraws(t, func(d *draw) {
		cases := d.beside("small-first", []scenario.Load{{Kind: scenario.Download, Flows: 4, Host: 1}, {Kind: scenario.Upload, Flows: 4, Host: 1}}, "besteffort", "small-first")
		best, small := cases["besteffort"].Test.Loaded, cases["small-first"].Test.Loaded
		d.AtMost("p95 increase, small packets first", small.Latency.IncreaseMs.P95, 5)
		d.AtMost("p95 increase, over besteffort's", small.Latency.IncreaseMs.P95/best.Latency.IncreaseMs.P95, 0.7)
		d.AtLeast("goodput down, over besteffort's", small.GoodputDownBps/best.GoodputDownBps, 0.99)
		d.AtLeast("goodput up, over besteffort's", small.GoodputUpBps/best.GoodputUpBps, 0.97)
	})
}

// A single download with the line's own round trip time keeps its goodput.
func TestPatience(t *testing.T) {
	t.Parallel()
	overDraws(t, func(d *draw) {
		names := []string{"before", "planned"}
		if labtest.Long() {
			names = append(names, "rtt-100")
		}
		cases := d.beside("patience", []scenario.Load{{Kind: scenario.Download, Flows: 1, Host: 1}}, names...)
		before := cases["before"].Test.Loaded.GoodputDownBps
		d.AtLeast("goodput as planned", cases["planned"].Test.Loaded.GoodputDownBps/before, 0.97)
		d.AtMost("p95 increase as planned", cases["planned"].Test.Loaded.Latency.IncreaseMs.P95, 5)
		if c, ok := cases["rtt-100"]; ok {
			d.AtMost("goodput with CAKE's own rtt", c.Test.Loaded.GoodputDownBps/before, 0.96)
		}
	})
}

// A call beside an upload, on the same machine and on another one: it is
// unusable on the unshaped line (at night), and clear with either queue.
func TestCall(t *testing.T) {
	t.Parallel()
	overDraws(t, func(d *draw) {
		names := []string{"fq_codel", "cake"}
		if labtest.Long() {
			names = append(names, "before")
		}
		cases := d.run("call", names...)
		for name, c := range cases {
			for _, l := range c.Loads {
				switch {
				case l.Kind == scenario.VoIP && name == "before":
					d.AtLeast("before: the call's p95", l.Latency.RTTMs.P95, 2000)
				case l.Kind == scenario.VoIP:
					d.AtMost(name+": the call's loss", l.Latency.Loss, 0)
					d.AtMost(name+": the call's p95 increase", l.Latency.IncreaseMs.P95, 16) // a full packet takes 12.7 ms
				case l.Kind == scenario.UDP && name != "before": // there the start of the stream waits in the queue too
					// Goodput of a datagram stream is the payload's share of its rate.
					within(d, name+": datagrams down, of what is sent", l.GoodputBps/(500e3*1200/1242), 0.98, 1.02)
				}
			}
		}
	})
}

// If the line changes during a test, so do the figures.
func TestVary(t *testing.T) {
	t.Parallel()
	overDraws(t, func(d *draw) {
		s := embedded(d.T, "vary")
		s.Loads = []scenario.Load{{Kind: scenario.Download, Flows: 4, Host: 1}}
		line := d.runs(s, fmt.Sprintf("vary, seed %d", d.Seed), []string{"before"})["before"].Test.Loaded.Series
		var early, late []float64
		for i, v := range line.DownMbps {
			switch at := float64(i) * line.BinS; {
			case at > 4 && at < 8:
				early = append(early, v)
			case at > 16 && at < 19:
				late = append(late, v)
			}
		}
		within(d, "Mbit/s before the change", median(early), 9, 10)
		within(d, "Mbit/s after the change", median(late), 4.4, 5)
	})
}

// Two runs of the tuner end at the same rates, within 2 %. They have two seeds,
// since with the same seed they would be the same run. By day TestTuneAgain tunes twice.
func TestTuneIsRepeatable(t *testing.T) {
	t.Parallel()
	needLong(t)
	overDraws(t, func(d *draw) {
		var rates [2]struct{ down, up float64 }
		for i := range rates {
			other := *d
			other.Seed += uint64(i)
			c := other.tuning("seed-003")
			if c.Plan == nil {
				d.Fatal("nothing was kept")
			}
			rates[i].down, rates[i].up = float64(c.Plan.DownBps), float64(c.Plan.UpBps)
		}
		for way, r := range map[string]float64{"down": rates[1].down / rates[0].down, "up": rates[1].up / rates[0].up} {
			within(d, way+": second run over first", r, 0.98, 1.02)
		}
	})
}

// On a plain link of 20 ms the measured median is the link's.
func TestExactLink(t *testing.T) {
	t.Parallel()
	overDraws(t, func(d *draw) {
		l := d.run("exact-link", "before")["before"].Test.Loaded.Latency
		within(d, "p50", l.RTTMs.P50, 19.9, 20.1)
		within(d, "loss", l.Loss, 0, 0)
	})
}

// A FIFO of 125 kB at 1 Mbit/s holds 82 full frames, which take 993 ms, and the
// line itself takes 20 ms. Goodput is the rate without headers and probes.
func TestExactFIFO(t *testing.T) {
	t.Parallel()
	overDraws(t, func(d *draw) {
		c := d.run("exact-fifo", "before")["before"]
		p, up := c.Test.Loaded, c.LineUpBps
		full := 20 + 82*1514*8/1e6*1e3
		within(d, "p95", p.Latency.RTTMs.P95, 0.98*full, 1.02*full)
		payload := (1e6 - 100*74*8*(1-p.Latency.LossUp)) * 1448 / 1514
		within(d, "goodput", p.GoodputUpBps, 0.99*payload, 1.01*payload)
		within(d, "what crossed the line", up, 0.99e6, 1.01e6)
	})
}

func phaseOf(x *verdict.Test, name string) *verdict.Phase {
	for _, p := range x.Phases() {
		if p.Name == name {
			return p.Phase
		}
	}
	return &verdict.Phase{}
}
