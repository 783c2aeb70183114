package lab_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"unbloat/internal/lab"
	"unbloat/internal/lab/labtest"
	"unbloat/internal/lab/scenario"
	"unbloat/internal/verdict"
	"unbloat/scenarios"
)

// cells are the cases that were run, by scenario and seed. A guest with the
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

func (c *cells) of(scenario string, seed uint64) *cell {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := fmt.Sprintf("%s, seed %d", scenario, seed)
	if c.runs[key] == nil {
		c.runs[key] = &cell{cases: map[string]lab.CaseResult{}}
	}
	return c.runs[key]
}

var ran = cells{runs: map[string]*cell{}}

// run runs a scenario on the virtual engine, with the unbloat of this tree: all
// cases, or the named ones.
func run(t *testing.T, name string, only ...string) map[string]lab.CaseResult {
	t.Helper()
	return runSeed(t, labtest.Seed(t), name, only...)
}

func runSeed(t *testing.T, seed uint64, name string, only ...string) map[string]lab.CaseResult {
	t.Helper()
	labtest.NeedKernel(t)
	text, err := scenarios.Text(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := scenario.Parse(name+".toml", text)
	if err != nil {
		t.Fatal(err)
	}
	if len(only) == 0 {
		for _, c := range s.Cases {
			only = append(only, c.Name)
		}
	}
	cell := ran.of(name, seed)
	cell.mu.Lock()
	defer cell.mu.Unlock()
	missing := slices.DeleteFunc(slices.Clone(only), func(c string) bool { _, ok := cell.cases[c]; return ok })
	if len(missing) > 0 {
		r, err := lab.Run(t.Context(), s, lab.Options{Engine: lab.Virtual, Cases: missing, Binary: labtest.Binary(t), Seed: seed})
		if err != nil {
			t.Fatal(err)
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
			// At a rate above the line's, the modem's queue would grow.
			atMost(t, c.Name+": tuned rate down, of the line", float64(c.Tune.Plan.DownBps)/float64(s.Line.Down), 1)
			atMost(t, c.Name+": tuned rate up, of the line", float64(c.Tune.Plan.UpBps)/float64(s.Line.Up), 1)
			atMost(t, c.Name+": the line up as measured, of what it is", float64(c.Tune.LineUpBps)/float64(s.Line.Up), 1.002)
		}
		// With a queue that drops nine packets of ten a load may never settle.
		// The probes' figures are right even then.
		other := c.Name == "fq_codel" || c.Name == "cake"
		if !c.Test.Valid && !(other && c.Test.OnlyUnsaturated()) {
			t.Errorf("case %s is not valid: %v", c.Name, c.Test.InvalidReasons)
		}
	}
	return cases
}

// A seed is the line of one article, with what must be measured: before, with
// the article's own fix, and tuned.
type seed struct {
	name   string
	before map[string]float64              // minimum p95 of the round trip time by phase, ms
	fixed  func(*testing.T, *verdict.Test) // checks the article's own fix, as we render it
}

// The table of the articles' lines: SPECIFICATION.md, "Seeds".
func TestSeeds(t *testing.T) {
	t.Parallel()
	loaded := verdict.PhaseLoaded
	for _, s := range []seed{
		{
			name:   "seed-000",
			before: map[string]float64{verdict.PhaseBoth: 1000},
			fixed: func(t *testing.T, x *verdict.Test) {
				for _, p := range x.Phases() {
					atMost(t, p.Name+" max", p.Latency.RTTMs.Max, 60)
				}
			},
		},
		{
			name:   "seed-001",
			before: map[string]float64{loaded: 3500},
			fixed: func(t *testing.T, x *verdict.Test) {
				atMost(t, "mean", x.Loaded.Latency.RTTMs.Mean, 50)
				atMost(t, "max", x.Loaded.Latency.RTTMs.Max, 213)
			},
		},
		{
			name:   "seed-002",
			before: map[string]float64{loaded: 1900},
			fixed: func(t *testing.T, x *verdict.Test) {
				atLeast(t, "mean", x.Loaded.Latency.RTTMs.Mean, 95-35)
				atMost(t, "mean", x.Loaded.Latency.RTTMs.Mean, 95+35)
				atMost(t, "loss", x.Loaded.Latency.Loss, 0)
			},
		},
		{
			name:   "seed-003",
			before: map[string]float64{loaded: 2700},
			fixed: func(t *testing.T, x *verdict.Test) {
				atMost(t, "p50", x.Loaded.Latency.RTTMs.P50, 37)
				atMost(t, "max", x.Loaded.Latency.RTTMs.Max, 52)
			},
		},
		{
			name:   "seed-004",
			before: map[string]float64{verdict.PhaseDownload: 600, verdict.PhaseUpload: 270},
			fixed: func(t *testing.T, x *verdict.Test) {
				atMost(t, "download p95", x.Download.Latency.RTTMs.P95, 24)
				atMost(t, "upload p95", x.Upload.Latency.RTTMs.P95, 17)
			},
		},
	} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			cases := run(t, s.name)
			before, tuned := cases["before"], cases["tuned"]
			for phase, least := range s.before {
				atLeast(t, "before: "+phase+" p95", phaseOf(before.Test, phase).Latency.RTTMs.P95, least)
			}
			s.fixed(t, cases["seed"].Test)
			tunedWell(t, before, tuned)
		})
	}
}

// tunedWell checks a tuned case against the unshaped line: the increase meets
// the goal in all phases, with 97 % of the throughput, and the tuning took at
// most two minutes and was kept.
func tunedWell(t *testing.T, before, tuned lab.CaseResult) {
	t.Helper()
	r := tuned.Tune
	if r == nil || !r.Kept || r.ExitCode != 0 {
		t.Fatalf("the tuning was not kept: %+v", r)
	}
	atMost(t, "line time of the tuning, s", r.LineSeconds, 120)
	within := func(what string, x, line *verdict.Test) {
		for _, p := range x.Phases() {
			if p.Name == verdict.PhaseIdle {
				continue
			}
			atMost(t, what+": "+p.Name+" p95 increase", p.Latency.IncreaseMs.P95, r.GoalMs)
			was := phaseOf(line, p.Name)
			// In the phase both, the uploads on the unshaped uplink delay the
			// download's acknowledgements so much that there is no goodput to
			// compare with.
			if p.Name == verdict.PhaseBoth {
				continue
			}
			atLeast(t, what+": "+p.Name+" goodput down", p.GoodputDownBps, 0.97*was.GoodputDownBps)
			atLeast(t, what+": "+p.Name+" goodput up", p.GoodputUpBps, 0.97*was.GoodputUpBps)
		}
	}
	within("measured from the home", tuned.Test, before.Test)
	within("the tuner's own check", r.After, r.Before)
}

// Small packets must go first to meet the goal of 5 ms with four flows in each
// direction.
func TestSmallFirst(t *testing.T) {
	t.Parallel()
	cases := run(t, "small-first", "besteffort", "small-first")
	best, small := cases["besteffort"].Test.Both, cases["small-first"].Test.Both
	atMost(t, "p95 increase, small packets first", small.Latency.IncreaseMs.P95, 5)
	atMost(t, "p95 increase, over besteffort's", small.Latency.IncreaseMs.P95/best.Latency.IncreaseMs.P95, 0.7)
	atLeast(t, "goodput down, over besteffort's", small.GoodputDownBps/best.GoodputDownBps, 0.99)
	atLeast(t, "goodput up, over besteffort's", small.GoodputUpBps/best.GoodputUpBps, 0.97)
}

// A single download with the line's own round trip time keeps its goodput.
func TestPatience(t *testing.T) {
	t.Parallel()
	cases := run(t, "patience")
	before := cases["before"].Test.Download.GoodputDownBps
	atLeast(t, "goodput as planned", cases["planned"].Test.Download.GoodputDownBps/before, 0.97)
	atMost(t, "goodput with CAKE's own rtt", cases["rtt-100"].Test.Download.GoodputDownBps/before, 0.96)
	atMost(t, "p95 increase as planned", cases["planned"].Test.Download.Latency.IncreaseMs.P95, 5)
}

// A call beside an upload, on the same machine and on another one: it is
// unusable on the unshaped line, and clear with either queue.
func TestCall(t *testing.T) {
	t.Parallel()
	cases := run(t, "call")
	for name, c := range cases {
		for _, l := range c.Loads {
			switch {
			case l.Kind == scenario.VoIP && name == "before":
				atLeast(t, "before: the call's p95", l.Latency.RTTMs.P95, 2000)
			case l.Kind == scenario.VoIP:
				atMost(t, name+": the call's loss", l.Latency.Loss, 0)
				atMost(t, name+": the call's p95 increase", l.Latency.IncreaseMs.P95, 16) // a full packet takes 12.7 ms
			case l.Kind == scenario.UDP && name != "before": // there the start of the stream waits in the queue too
				// Goodput of a datagram stream is the payload's share of its
				// rate.
				atLeast(t, name+": datagrams down, bit/s", l.GoodputBps, 0.98*500e3*1200/1242)
				atMost(t, name+": datagrams down, bit/s", l.GoodputBps, 1.02*500e3*1200/1242)
			}
		}
	}
}

// If the line changes during a test, so do the figures.
func TestVary(t *testing.T) {
	t.Parallel()
	cases := run(t, "vary")
	s := cases["before"].Test.Download.Series
	var early, late []float64
	for i, v := range s.DownMbps {
		switch at := float64(i) * s.BinS; {
		case at > 4 && at < 8:
			early = append(early, v)
		case at > 16 && at < 19:
			late = append(late, v)
		}
	}
	atLeast(t, "Mbit/s before the change", median(early), 9)
	atMost(t, "Mbit/s after the change", median(late), 5)
	atLeast(t, "Mbit/s after the change", median(late), 4.4)
}

// Two runs of the tuner end at the same rates, within 2 %. They have two seeds,
// since with the same seed they would be the same run.
func TestTuneIsRepeatable(t *testing.T) {
	t.Parallel()
	var rates [2]struct{ down, up float64 }
	for i := range rates {
		c := runSeed(t, labtest.Seed(t)+uint64(i), "seed-003", "tuned")["tuned"]
		if c.Plan == nil {
			t.Fatal("nothing was kept")
		}
		rates[i].down, rates[i].up = float64(c.Plan.DownBps), float64(c.Plan.UpBps)
	}
	for _, r := range []float64{rates[1].down / rates[0].down, rates[1].up / rates[0].up} {
		atLeast(t, "second run over first", r, 0.98)
		atMost(t, "second run over first", r, 1.02)
	}
}

// On a plain link of 20 ms the measured median is the link's.
func TestExactLink(t *testing.T) {
	t.Parallel()
	l := run(t, "exact-link")["before"].Test.Loaded.Latency
	atLeast(t, "p50", l.RTTMs.P50, 19.9)
	atMost(t, "p50", l.RTTMs.P50, 20.1)
	atMost(t, "loss", l.Loss, 0)
}

// A FIFO of 125 kB at 1 Mbit/s holds 82 full frames, which take 993 ms, and the
// line itself takes 20 ms. Goodput is the rate without headers and probes.
func TestExactFIFO(t *testing.T) {
	t.Parallel()
	c := run(t, "exact-fifo")["before"]
	p, up := c.Test.Loaded, c.LineUpBps
	full := 20 + 82*1514*8/1e6*1e3
	atLeast(t, "p95", p.Latency.RTTMs.P95, 0.98*full)
	atMost(t, "p95", p.Latency.RTTMs.P95, 1.02*full)
	payload := (1e6 - 100*74*8*(1-p.Latency.LossUp)) * 1448 / 1514
	atLeast(t, "goodput", p.GoodputUpBps, 0.99*payload)
	atMost(t, "goodput", p.GoodputUpBps, 1.01*payload)
	atLeast(t, "what crossed the line", up, 0.99e6)
	atMost(t, "what crossed the line", up, 1.01e6)
}

func phaseOf(x *verdict.Test, name string) *verdict.Phase {
	for _, p := range x.Phases() {
		if p.Name == name {
			return p.Phase
		}
	}
	return &verdict.Phase{}
}

func atLeast(t *testing.T, what string, got, want float64) {
	t.Helper()
	if got < want {
		t.Errorf("%s: %.6g, want at least %.6g", what, got, want)
	} else {
		t.Logf("%s: %.6g (at least %.6g)", what, got, want)
	}
}

func atMost(t *testing.T, what string, got, want float64) {
	t.Helper()
	if got > want {
		t.Errorf("%s: %.6g, want at most %.6g", what, got, want)
	} else {
		t.Logf("%s: %.6g (at most %.6g)", what, got, want)
	}
}
