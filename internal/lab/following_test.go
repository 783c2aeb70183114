package lab_test

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"unbloat/internal/lab"
	"unbloat/internal/lab/household"
	"unbloat/internal/lab/labtest"
	"unbloat/internal/lab/scenario"
	"unbloat/internal/verdict"
	"unbloat/scenarios"
	"unbloat/unit"
)

// followScenario reads an embedded scenario with its trace. One whose trace does not
// come with unbloat is skipped, unless somebody says where it is.
func followScenario(t *testing.T, name string) *scenario.Scenario {
	t.Helper()
	text, err := scenarios.Text(name)
	if err != nil {
		t.Fatal(err)
	}
	s, err := scenario.Read(name+".toml", text, scenarios.Trace)
	var missing *scenarios.MissingTraceError
	switch {
	case errors.As(err, &missing), errors.Is(err, fs.ErrNotExist):
		t.Skipf("SKIPPED: %v", err)
	case err != nil:
		t.Fatal(err)
	}
	return s
}

// followed is what a case gave on average of some seeds.
type followed struct {
	mean, p95 float64 // ms
	down, up  float64 // Mbit/s
	frozen    float64 // s, of a call, in both directions, without outages of the line
	shapers   lab.ShaperRates
}

func (f followed) sum() float64 { return f.down + f.up }

// runCases runs cases of a scenario with the seeds from the test's on, and returns
// their means by the cases' names. Without cake-autorate its case is left out.
func runCases(t *testing.T, s *scenario.Scenario, seeds uint64, names ...string) map[string]followed {
	t.Helper()
	labtest.NeedKernel(t)
	cases, err := lab.Cases(s, names)
	if err != nil {
		t.Fatal(err)
	}
	cases, why := lab.Runnable(cases)
	for _, w := range why {
		t.Logf("SKIPPED: %v", w)
	}
	names = nil
	for _, c := range cases {
		names = append(names, c.Name)
	}
	out := map[string]followed{}
	for k := range seeds {
		r, err := lab.Run(t.Context(), s, lab.Options{Engine: lab.Virtual, Cases: names, Seed: labtest.Seed(t) + k, Binary: labtest.Binary(t)})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range r.Cases {
			f, q := out[c.Name], c.Test.Loaded.Latency.RTTMs
			f.add(c, q, float64(seeds))
			out[c.Name] = f
			t.Logf("%s %-13s seed %d: mean %.1f p50 %.1f p95 %.1f p99 %.1f max %.1f ms; %.2f / %.2f Mbit/s; %.0f s of line time in %.1f s", s.Name, c.Name, r.Seed,
				q.Mean, q.P50, q.P95, q.P99, q.Max, c.Test.Loaded.GoodputDownBps/1e6, c.Test.Loaded.GoodputUpBps/1e6, c.VirtualSeconds, c.WallSeconds)
		}
	}
	return out
}

func (f *followed) add(c lab.CaseResult, q verdict.Quantiles, of float64) {
	f.mean += q.Mean / of
	f.p95 += q.P95 / of
	f.down += c.Test.Loaded.GoodputDownBps / 1e6 / of
	f.up += c.Test.Loaded.GoodputUpBps / 1e6 / of
	for _, l := range c.Loads {
		if l.Call != nil {
			f.frozen += (l.Call.Down.RoutedS + l.Call.Up.RoutedS) / of
		}
	}
	if c.Shapers != nil {
		f.shapers = *c.Shapers
	}
}

// An outage is when a way of the line carries nearly nothing; a change that is not
// exact leaves a way that it does not name as it was.
func TestOutages(t *testing.T) {
	began := unit.Instant(7 * time.Second)
	up, down := lab.Outages(scenario.Line{Down: unit.MbitPerSecond, Up: unit.MbitPerSecond, Vary: []scenario.Change{
		{At: time.Second, Down: unit.MbitPerSecond, Exact: true},                          // nothing up
		{At: 2 * time.Second, Down: 60 * unit.KbitPerSecond, Up: 64 * unit.KbitPerSecond}, // up again, down nearly nothing
		{At: 3 * time.Second, Up: unit.MbitPerSecond},
		{At: 4 * time.Second, Down: unit.MbitPerSecond},
		{At: 5 * time.Second, Up: 10 * unit.KbitPerSecond},
	}}, began)
	at := func(s time.Duration) unit.Instant { return began.Add(s * time.Second) }
	if want := []household.Freeze{{From: at(1), To: at(2)}, {From: at(5), To: math.MaxInt64}}; !slices.Equal(up, want) {
		t.Errorf("up %v, want %v", up, want)
	}
	if want := []household.Freeze{{From: at(2), To: at(3)}, {From: at(3), To: at(4)}}; !slices.Equal(merge(down), merge(want)) {
		t.Errorf("down %v, want %v", down, want)
	}
}

// merge joins times that touch.
func merge(all []household.Freeze) (out []household.Freeze) {
	for _, f := range all {
		if n := len(out); n > 0 && out[n-1].To == f.From {
			out[n-1].To = f.To
		} else {
			out = append(out, f)
		}
	}
	return out
}

func needLong(t *testing.T) {
	t.Helper()
	if os.Getenv("UNBLOAT_LONG") == "" {
		t.Skip("SKIPPED: it takes minutes; `make test-long` runs it")
	}
}

// On the real kernel the daemon follows a line that falls to a third and comes back:
// neither bloat nor waste.
func TestFollowStepsInLab(t *testing.T) {
	f := runCases(t, followScenario(t, "follow-steps"), 1, "follows")["follows"]
	if f.p95 > 55 || f.mean > 38 || f.sum() < 35.5 {
		t.Errorf("p95 %.1f ms, mean %.1f ms, %.1f Mbit/s", f.p95, f.mean, f.sum())
	}
}

// The same on average of five seeds, beside cake-autorate where it is.
func TestFollowStepsSeedsInLab(t *testing.T) {
	needLong(t)
	all := runCases(t, followScenario(t, "follow-steps"), 5, "cake-autorate", "follows", "oracle")
	f := all["follows"]
	if f.p95 > 50 || f.mean > 38 || f.sum() < 35.5 {
		t.Errorf("p95 %.1f ms, mean %.1f ms, %.1f Mbit/s", f.p95, f.mean, f.sum())
	}
	if peer, ok := all["cake-autorate"]; ok && (f.p95 > peer.p95 || f.sum() < peer.sum()) {
		t.Errorf("cake-autorate: p95 %.1f ms, %.1f Mbit/s", peer.p95, peer.sum())
	}
}

// With load in one direction the other one's rate is not cut.
func TestFollowOneDirectionInLab(t *testing.T) {
	needLong(t)
	for _, x := range []struct {
		name  string
		other func(lab.ShaperRates) lab.ShaperRate
		usual float64
	}{
		{"follow-steps-down", func(s lab.ShaperRates) lab.ShaperRate { return s.Up }, 9.5e6},
		{"follow-steps-up", func(s lab.ShaperRates) lab.ShaperRate { return s.Down }, 45e6},
	} {
		f := runCases(t, followScenario(t, x.name), 1, "cake-autorate", "follows")["follows"]
		if least := x.other(f.shapers).Least; least < 0.999*x.usual {
			t.Errorf("%s: the other direction was cut to %.2f Mbit/s", x.name, least/1e6)
		}
	}
}

// On a line that does not vary little is lost against a plan that fits it.
func TestFollowSteadyInLab(t *testing.T) {
	needLong(t)
	all := runCases(t, followScenario(t, "follow-steady"), 1, "fixed", "follows")
	f, fixed := all["follows"], all["fixed"]
	if f.sum() < 0.95*fixed.sum() || f.p95 > fixed.p95+10 {
		t.Errorf("p95 %.1f ms and %.1f Mbit/s; the plan: %.1f ms and %.1f Mbit/s", f.p95, f.sum(), fixed.p95, fixed.sum())
	}
}

// A line whose own delay is 40 ms longer under load is used all the same.
func TestFollowFloorInLab(t *testing.T) {
	needLong(t)
	if f := runCases(t, followScenario(t, "follow-floor"), 1, "follows")["follows"]; f.down < 0.85*50 {
		t.Errorf("%.1f of 50 Mbit/s", f.down)
	}
}

// After an hour without load the first second of a greedy upload is without bloat.
func TestFollowAfterIdleInLab(t *testing.T) {
	needLong(t)
	s := followScenario(t, "follow-steps-up")
	s.Line.Vary = nil
	s.Test.Idle, s.Test.Seconds = 59*time.Minute, 10*time.Second // a phase is no longer
	labtest.NeedKernel(t)
	r, err := lab.Run(t.Context(), s, lab.Options{Engine: lab.Virtual, Cases: []string{"follows"}, Seed: labtest.Seed(t), Binary: labtest.Binary(t)})
	if err != nil {
		t.Fatal(err)
	}
	c := r.Cases[0]
	line := c.Test.Loaded.Series
	var first []float64
	for i, at := range line.TS {
		if at >= line.StartS && at < line.StartS+1 && line.RTTMs[i] != nil {
			first = append(first, *line.RTTMs[i])
		}
	}
	slices.Sort(first)
	if len(first) < 40 {
		t.Fatalf("%d answers in the first second", len(first))
	}
	p95 := first[len(first)*95/100]
	t.Logf("first second: p95 %.1f ms of %d; then %.2f Mbit/s up; %d bytes of probes; %.0f s of line time in %.0f s", p95, len(first), c.Test.Loaded.GoodputUpBps/1e6, c.ProbeBytes, c.VirtualSeconds, c.WallSeconds)
	if p95 > 100 {
		t.Errorf("p95 %.1f ms in the first second", p95)
	}
}

// When no reflector answers any more, the connections' own round trips are followed.
func TestFollowSilentInLab(t *testing.T) {
	needLong(t)
	if f := runCases(t, followScenario(t, "follow-silent"), 1, "follows")["follows"]; f.p95 > 60 || f.sum() < 35.5 {
		t.Errorf("p95 %.1f ms, %.1f Mbit/s", f.p95, f.sum())
	}
}

// betterThanPeer holds a comparison with cake-autorate: better in p95 and in goodput on
// all lines but one, and on that one neither more than 5 % worse.
func betterThanPeer(t *testing.T, names ...string) {
	t.Helper()
	needLong(t)
	if _, err := lab.FindAutorate(); err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	won := 0
	for _, name := range names {
		all := runCases(t, followScenario(t, name), 3, "cake-autorate", "follows")
		f, peer := all["follows"], all["cake-autorate"]
		delay, goodput := f.p95/peer.p95, f.sum()/peer.sum()
		t.Logf("%s: %.2f times the p95 and %.2f times the goodput of cake-autorate", name, delay, goodput)
		if delay < 1 && goodput > 1 {
			won++
		}
		if delay > 1.05 || goodput < 0.95 {
			t.Errorf("%s: %.2f times the p95 and %.2f times the goodput of cake-autorate", name, delay, goodput)
		}
	}
	if won < len(names)-1 {
		t.Errorf("better than cake-autorate on %d of %d lines", won, len(names))
	}
}

// Lines that vary as satellites, cable, Wi-Fi and LTE do.
func TestFollowVaryingLinesInLab(t *testing.T) {
	betterThanPeer(t, "follow-starlink", "follow-cable", "follow-wifi", "follow-lte")
}

// Recorded mobile lines, where there are any.
func TestFollowRecordedLinesInLab(t *testing.T) {
	betterThanPeer(t, "follow-lte-tmobile", "follow-lte-att", "follow-lte-verizon", "follow-umts-tmobile")
}

// A video call freezes for three tenths less than with cake-autorate; what an outage of
// the line brings is left out. In the runs that were made it was 1.3 to 2.0 s on
// T-Mobile's LTE (2.0 to 3.0 with cake-autorate), 2.7 to 4.6 on Verizon's (3.7 to 13.9).
func TestFollowCallsInLab(t *testing.T) {
	needLong(t)
	if _, err := lab.FindAutorate(); err != nil {
		t.Skipf("SKIPPED: %v", err)
	}
	for _, name := range []string{"follow-call-lte-tmobile", "follow-call-lte-att", "follow-call-lte-verizon", "follow-call-umts-tmobile"} {
		all := runCases(t, followScenario(t, name), 5, "cake-autorate", "follows")
		f, peer := all["follows"], all["cake-autorate"]
		t.Logf("%s: frozen for %.1f s; with cake-autorate %.1f s", name, f.frozen, peer.frozen)
		if f.frozen > 0.7*peer.frozen {
			t.Errorf("%s: frozen for %.1f s; at most %.1f s are allowed", name, f.frozen, 0.7*peer.frozen)
		}
	}
}
