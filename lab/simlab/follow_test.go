package simlab

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"unbloat/internal/keep/follow"
	"unbloat/internal/measure/phases"
	"unbloat/lab/scenario"
	"unbloat/lab/sim"
	"unbloat/testkit/await"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// A trial is a line with load, run with one way to set the shapers' rates.
type trial struct {
	down, up unit.Rate // at first
	rtt      time.Duration
	buffers  [2]unit.Size // by follow.Direction
	changes  []scenario.Change
	flows    [2]int
	seconds  time.Duration
	idle     time.Duration // before the load; 0: 5 s
	bounds   [2]follow.Bounds
	coarse   func(target int) bool // it tells round trips only; nil: none
	every    time.Duration         // least time between two changes; 0: the usual
	deaf     bool                  // it does not see the flows' own delays
	bend     func(now unit.Instant, target int, a *answer) bool
	note     func(now unit.Instant, h *house, d follow.Decision)
}

// outcome is what a trial measured over all of its time with load.
type outcome struct {
	mean, p50, p95, p99, most float64 // ms
	down, up                  float64 // Mbit/s of goodput
	bloat                     int     // seconds in a row with a p95 of more than 30 ms above the line's
	probes                    int
}

func (f outcome) String() string {
	return fmt.Sprintf("mean %6.1f p50 %6.1f p95 %7.1f p99 %7.1f max %7.1f ms; %5.2f / %5.2f = %5.2f Mbit/s; %d probes", f.mean, f.p50, f.p95, f.p99, f.most, f.down, f.up, f.down+f.up, f.probes)
}

// Ways to set the rates.
const (
	byFollow   = "unbloat"
	byOracle   = "oracle"
	byPlan     = "fixed plan"
	byAutorate = "model of cake-autorate"
	byNothing  = "no shaper"
)

func (x trial) run(t *testing.T, way string, seed uint64) outcome {
	t.Helper()
	s := &scenario.Scenario{Name: "trial", Line: scenario.Line{
		Down: x.down, Up: x.up, RTT: x.rtt, BufferDown: x.buffers[follow.Down], BufferUp: x.buffers[follow.Up], Vary: x.changes,
	}}
	s.Probe.Bytes = 58 // 100 B with its headers
	for d, kind := range []string{follow.Down: scenario.Download, follow.Up: scenario.Upload} {
		if x.flows[d] > 0 {
			s.Loads = append(s.Loads, scenario.Load{Kind: kind, Flows: x.flows[d], Host: 1 + d})
		}
	}
	h, err := newHouse(s, "linux", seed)
	if err != nil {
		t.Fatal(err)
	}
	x.prepare(t, h, way)
	h.follower.tell(h, x)
	if _, err := h.Phase(t.Context(), phases.PhaseSpec{Name: "idle", Duration: max(x.idle, 5*time.Second)}); err != nil {
		t.Fatal(err)
	}
	h.vary()
	from := h.net.Now()
	raw, loads, err := h.loaded(t.Context(), x.seconds)
	if err != nil {
		t.Fatal(err)
	}
	f := outcome{}
	var rtts []float64
	for _, p := range raw.Samples {
		if p.Received != 0 {
			rtts = append(rtts, unit.Ms(p.Received.Sub(p.Sent)))
		}
	}
	f.bloat = bloated(rtts, int(time.Second/h.interval), unit.Ms(x.rtt)+30)
	slices.Sort(rtts)
	at := func(q float64) float64 { return rtts[min(int(q*float64(len(rtts))), len(rtts)-1)] }
	for _, r := range rtts {
		f.mean += r / float64(len(rtts))
	}
	f.p50, f.p95, f.p99, f.most = at(0.5), at(0.95), at(0.99), at(1)
	for _, l := range loads {
		mbit := goodputOf(l, from, from.Add(x.seconds)) / 1e6
		if l.Kind == scenario.Download {
			f.down += mbit
		} else {
			f.up += mbit
		}
	}
	if h.follower != nil {
		f.probes = h.follower.sent
	}
	return f
}

// bloated returns how many seconds in a row had a p95 above a bound. Samples that are
// missing make a second longer.
func bloated(rtts []float64, second int, bound float64) (most int) {
	n := 0
	for s := range slices.Chunk(rtts, second) {
		s = slices.Sorted(slices.Values(s))
		if n++; s[len(s)*95/100] <= bound {
			n = 0
		}
		most = max(most, n)
	}
	return most
}

// seeds is how many runs rows of the comparison are averages of.
func seeds() uint64 {
	if labtest.Long() {
		return 5
	}
	return 1
}

// average runs a trial with several seeds.
func (x trial) average(t *testing.T, name, way string, seeds uint64) (mean outcome) {
	t.Helper()
	n := float64(seeds)
	for seed := range seeds {
		f := said(t, name, way, x.run(t, way, seed+1))
		mean.mean += f.mean / n
		mean.p50 += f.p50 / n
		mean.p95 += f.p95 / n
		mean.p99 += f.p99 / n
		mean.most = max(mean.most, f.most)
		mean.down += f.down / n
		mean.up += f.up / n
		mean.probes += f.probes / int(seeds)
	}
	if seeds > 1 {
		said(t, name+" (mean)", way, mean)
	}
	return mean
}

// goodputOf returns what a greedy load got through between two instants, in bit/s.
func goodputOf(l *load, from, to unit.Instant) float64 {
	sum := 0.0
	for _, s := range l.groups[0].series() {
		for i, n := range s.Bytes {
			if at := s.Start.Add(time.Duration(i) * s.Bin); !at.Before(from) && at.Before(to) {
				sum += float64(n) * 8
			}
		}
	}
	return sum / to.Sub(from).Seconds()
}

// prepare puts the router into its state.
func (x trial) prepare(t *testing.T, h *house, way string) {
	t.Helper()
	if way == byNothing {
		return
	}
	b := x.bounds
	start := [2]unit.Rate{b[follow.Down].Usual, b[follow.Up].Usual}
	if way == byPlan {
		start = [2]unit.Rate{b[follow.Down].Usual.Scale(0.9), b[follow.Up].Usual.Scale(0.95)}
	}
	p, err := fix(h.scenario, h.platform, &scenario.Fix{AQM: "cake", Down: start[follow.Down], Up: start[follow.Up]})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Shape(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	switch way {
	case byOracle:
		h.changing = func(c scenario.Change) error { return h.reshape(c, 0.95) }
		if err := h.changing(scenario.Change{Down: x.down, Up: x.up, Exact: true}); err != nil {
			t.Fatal(err)
		}
	case byFollow:
		c, err := follow.New(x.params(), h.net.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := h.followBy(c); err != nil {
			t.Fatal(err)
		}
	case byAutorate:
		if err := h.followBy(newAutorate(b, h.net.Now())); err != nil {
			t.Fatal(err)
		}
	}
}

// params are those of the controller.
func (x trial) params() follow.Params {
	return follow.ParamsOf(follow.Params{Rates: x.bounds, Every: x.every}, targets())
}

// tell gives a follower what the trial bends and notes.
func (f *follower) tell(h *house, x trial) {
	if f == nil {
		return
	}
	f.coarse, f.deaf = x.coarse, x.deaf
	if x.bend != nil {
		f.bend = func(i int, a *answer) bool { return x.bend(a.at, i, a) }
	}
	if x.note != nil {
		f.note = func(now unit.Instant, d follow.Decision) { x.note(now, h, d) }
	}
}

// everyone says that all reflectors are so.
func everyone(int) bool { return true }

func mbit(v float64) unit.Rate { return unit.Rate(math.Round(v * 1e6)) }

// boundsAround are the bounds of the comparison: a tenth of the mean, the mean, the most.
func boundsAround(mean, most [2]float64) (b [2]follow.Bounds) {
	for d := range b {
		b[d] = follow.Bounds{Least: mbit(mean[d] / 10), Usual: mbit(mean[d]), Most: mbit(most[d])}
	}
	return b
}

// steps is the first row of the comparison: 50/10, at 20 s 15/3, at 40 s back.
func steps() trial {
	return trial{
		down: mbit(50), up: mbit(10), rtt: 30 * time.Millisecond, buffers: [2]unit.Size{4 * unit.MB, 1250 * unit.KB},
		changes: []scenario.Change{
			{At: 20 * time.Second, Down: mbit(15), Up: mbit(3)}, {At: 40 * time.Second, Down: mbit(50), Up: mbit(10)},
		},
		flows: [2]int{4, 4}, seconds: 60 * time.Second,
		bounds: [2]follow.Bounds{
			{Least: mbit(5), Usual: mbit(47.5), Most: mbit(60)}, {Least: mbit(1), Usual: mbit(9.5), Most: mbit(12)},
		},
	}
}

// traced is a trial on a trace.
func traced(changes []scenario.Change, flows int, rtt time.Duration) trial {
	var mean, most [2]float64
	end := changes[len(changes)-1].At + changes[1].At
	for i, c := range changes {
		next := end
		if i+1 < len(changes) {
			next = changes[i+1].At
		}
		for d, r := range []unit.Rate{c.Down, c.Up} {
			mean[d] += r.Mbit() * (next - c.At).Seconds() / end.Seconds()
			most[d] = max(most[d], r.Mbit())
		}
	}
	return trial{
		down: max(changes[0].Down, 100_000), up: max(changes[0].Up, 100_000), rtt: rtt, buffers: [2]unit.Size{2 * unit.MB, unit.MB},
		changes: changes, flows: [2]int{flows, flows}, seconds: end, bounds: boundsAround(mean, most),
	}
}

// recorded reads one of the recorded traces, which are not part of the repository.
func recorded(t *testing.T, name string) []scenario.Change {
	t.Helper()
	dir := os.Getenv("UNBLOAT_TRACES")
	if dir == "" {
		t.Skip("SKIPPED: UNBLOAT_TRACES does not say in which directory recorded traces are")
	}
	text, err := os.ReadFile(filepath.Join(dir, name+".trace"))
	if err != nil {
		t.Fatal(err)
	}
	changes, err := scenario.ParseTrace(name, text)
	if err != nil {
		t.Fatal(err)
	}
	return changes
}

// said prints a row of the comparison.
func said(t *testing.T, name, way string, f outcome) outcome {
	t.Helper()
	t.Logf("%-14s %-22s %s", name, way, f)
	return f
}

// slack is by how much the simulator's draws may be beside what the lab's kernel is held to:
// a tenth, as each draw there.
const slack = 1.1

// A line that falls to a third and comes back: neither bloat nor waste, and not much less
// than with somebody who knows the capacity.
func TestFollowSteps(t *testing.T) {
	x := steps()
	said(t, "steps", byPlan, x.run(t, byPlan, 1))
	oracle := said(t, "steps", byOracle, x.run(t, byOracle, 1))
	model := said(t, "steps", byAutorate, x.run(t, byAutorate, 1))
	mean := x.average(t, "steps", byFollow, 5)
	if mean.p95 > 50*slack || mean.mean > 38 || mean.down+mean.up < 35.5 {
		t.Errorf("on average p95 %.1f ms, mean %.1f ms, %.1f Mbit/s; the oracle: %s", mean.p95, mean.mean, mean.down+mean.up, oracle)
	}
	if mean.p95 > model.p95 || mean.down+mean.up < model.down+model.up {
		t.Errorf("no better than the model of cake-autorate")
	}
	x.coarse = everyone
	f := x.average(t, "steps, echoes", byFollow, seeds())
	if f.p95 > model.p95*1.25 || f.down+f.up < model.down+model.up {
		t.Errorf("with round trips only no better than the model of cake-autorate")
	}
}

// With load in one direction the other one's rate is not cut.
func TestFollowOneDirection(t *testing.T) {
	await.NotShort(t)
	for _, coarse := range []bool{false, true} {
		for d, name := range []string{follow.Down: "download", follow.Up: "upload"} {
			x := steps()
			if coarse {
				x.coarse = everyone
			}
			x.flows[1-d] = 0
			other := follow.Direction(1 - d)
			low := x.bounds[other].Usual
			x.note = func(_ unit.Instant, _ *house, dec follow.Decision) { low = min(low, dec.Rate[other]) }
			f := said(t, name+" alone", byFollow, x.run(t, byFollow, 1))
			oracle := said(t, name+" alone", byOracle, x.run(t, byOracle, 1))
			if low < x.bounds[other].Usual {
				t.Errorf("%s alone, echoes %t: the rate %v was cut to %v", name, coarse, other, low)
			}
			if f.down+f.up < 0.85*(oracle.down+oracle.up) || f.p95 > 90 {
				t.Errorf("%s alone, echoes %t: %s", name, coarse, f)
			}
		}
	}
}

// better holds a comparison: better than the model in p95 and in goodput on all lines but
// one, and on that one neither more than 5 % worse.
func better(t *testing.T, names []string, of map[string]trial) {
	t.Helper()
	won := 0
	for _, name := range names {
		x := of[name]
		x.average(t, name, byOracle, 1)
		model := x.average(t, name, byAutorate, seeds())
		f := x.average(t, name, byFollow, seeds())
		delay, goodput := f.p95/model.p95, (f.down+f.up)/(model.down+model.up)
		if delay < 1 && goodput > 1 {
			won++
		}
		if delay > 1.05 || goodput < 0.95 {
			t.Errorf("%s: %.2f times the p95 and %.2f times the goodput of the model of cake-autorate", name, delay, goodput)
		}
	}
	if won < len(names)-1 {
		t.Errorf("better than the model of cake-autorate on %d of %d lines", won, len(names))
	}
}

// Lines that vary as Starlink, cable, Wi-Fi and LTE do.
func TestFollowVaryingLines(t *testing.T) {
	await.NotShort(t)
	of := map[string]trial{}
	var names []string
	for _, k := range scenario.LineKinds() {
		changes, err := scenario.Varying(k, 1, 120*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, string(k))
		of[string(k)] = traced(changes, 2, 40*time.Millisecond)
	}
	better(t, names, of)
}

// Recorded mobile lines, where there are any.
func TestFollowRecordedLines(t *testing.T) {
	names := []string{"lte-tmobile", "lte-att", "lte-verizon", "umts-tmobile"}
	of := map[string]trial{}
	for _, name := range names {
		of[name] = traced(recorded(t, name), 2, 50*time.Millisecond)
	}
	better(t, names, of)
	if f := of[names[0]].average(t, names[0], byFollow, seeds()); f.p95 > 300 || f.mean > 100 || f.down+f.up < 15 {
		t.Errorf("%s: %s", names[0], f)
	}
}

// On a steady line nothing is lost against a plan that was tuned for it.
func TestFollowSteady(t *testing.T) {
	await.NotShort(t)
	x := steps()
	x.changes, x.seconds = nil, 2*time.Minute
	if labtest.Long() {
		x.seconds = 10 * time.Minute
	}
	tuned := said(t, "steady", byOracle, x.run(t, byOracle, 1))
	f := said(t, "steady", byFollow, x.run(t, byFollow, 1))
	if f.down+f.up < 0.95*(tuned.down+tuned.up) || f.p95 > tuned.p95+10 {
		t.Errorf("%s; tuned: %s", f, tuned)
	}
}

// A line whose own delay is 40 ms longer under any load is used all the same.
func TestFollowRadioFloor(t *testing.T) {
	for _, coarse := range []bool{false, true} {
		x := steps()
		x.changes, x.seconds = nil, 90*time.Second
		if coarse {
			x.coarse = everyone
		}
		x.flows[follow.Up] = 0
		var began unit.Instant
		x.note = func(now unit.Instant, h *house, _ follow.Decision) {
			if began == 0 && h.net.Bottleneck(sim.Down).SentBytes > 500*unit.KB {
				began = now
			}
		}
		x.bend = func(at unit.Instant, _ int, a *answer) bool {
			if began > 0 && at > began {
				a.at = a.at.Add(40 * time.Millisecond)
			}
			return true
		}
		f := said(t, "radio floor", byFollow, x.run(t, byFollow, 1))
		if f.down < 0.85/slack*x.down.Mbit() {
			t.Errorf("echoes %t: %s", coarse, f)
		}
	}
}

// After a long time without load the first second of a greedy upload is without bloat.
func TestFollowAfterIdle(t *testing.T) {
	x := steps()
	x.changes, x.flows[follow.Down] = nil, 0
	x.idle = time.Hour
	x.seconds = time.Second
	f := said(t, "after an hour", byFollow, x.run(t, byFollow, 1))
	if f.p95 > 100 {
		t.Errorf("%s", f)
	}
	if day := f.probes * 24 * 80; day > 2_200_000 {
		t.Errorf("%d bytes of probes a day", day)
	}
}

// When all reflectors die under load the rates hold for half a minute.
func TestFollowDeadReflectors(t *testing.T) {
	x := steps()
	x.changes, x.seconds = nil, 2*time.Minute
	var dead unit.Instant
	var before, low [2]unit.Rate
	var sum [2]float64
	steps := 0
	x.note = func(now unit.Instant, _ *house, d follow.Decision) {
		switch {
		case dead == 0 && now > unit.Instant(60*time.Second):
			dead, before, low = now, d.Rate, d.Rate
		case dead > 0 && now.Sub(dead) < 30*time.Second:
			steps++
			for w := range low {
				low[w] = min(low[w], d.Rate[w])
				sum[w] += float64(d.Rate[w])
			}
		}
	}
	x.bend = func(unit.Instant, int, *answer) bool { return dead == 0 }
	f := said(t, "no reflectors", byFollow, x.run(t, byFollow, 1))
	for w := range low {
		fair := min(float64(before[w]), 0.95*float64([]unit.Rate{x.down, x.up}[w])) // it may just have tried more
		if mean := sum[w] / float64(steps); math.Abs(mean/fair-1) > 0.1 || float64(low[w]) < 0.5*fair {
			t.Errorf("%v: %v before, and for half a minute %.1f Mbit/s on average, %v at least", follow.Direction(w), before[w], mean/1e6, low[w])
		}
	}
	if f.down < 40 || f.up < 6 || f.p95 > 60 {
		t.Errorf("%s", f)
	}
}

// Without any reflector the flows' own round trips are followed.
func TestFollowByFlowsOnly(t *testing.T) {
	await.NotShort(t)
	x := steps()
	x.bend = func(at unit.Instant, _ int, _ *answer) bool { return at < unit.Instant(15*time.Second) }
	f := x.average(t, "flows alone", byFollow, 5)
	if f.p95 > 60*slack || f.down+f.up < 28 {
		t.Errorf("%s", f)
	}
}

// As on most lines: some reflectors tell the ways apart, others round trips only.
func TestFollowMixedReflectors(t *testing.T) {
	await.NotShort(t)
	for _, c := range []struct {
		name   string
		coarse func(int) bool
		p95    float64
		byDay  bool
	}{
		{"one of two", func(i int) bool { return i%2 == 0 }, 52, false}, // the mean of twenty seeds is 51.9
		{"two operators", func(i int) bool { return i < 2 || i == 3 }, 65, true},
		{"one operator", func(i int) bool { return i < 4 }, 65, false}, // as if none did
	} {
		if !c.byDay && !labtest.Long() {
			continue
		}
		x := steps()
		x.coarse = c.coarse
		if f := x.average(t, c.name, byFollow, 5); f.p95 > c.p95 || f.mean > 42 || f.down+f.up < 35.5 {
			t.Errorf("%s: %s", c.name, f)
		}
	}
}

// A scenario file with a trace and the daemon is run as any other.
func TestFollowScenario(t *testing.T) {
	text, err := os.ReadFile("testdata/follow.toml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := scenario.Read("follow.toml", text, func(name string) ([]byte, error) { return os.ReadFile(filepath.Join("testdata", name)) })
	if err != nil {
		t.Fatal(err)
	}
	made, err := scenario.Varying(scenario.Starlink, 3, 60*time.Second)
	if err != nil || !slices.Equal(made, s.Line.Vary) {
		t.Errorf("testdata/follow.trace is not what scenario.Varying makes: %v", err)
	}
	r, err := Run(t.Context(), s, Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	var p95 [2]float64
	for i, c := range r.Cases {
		p95[i] = c.Test.Loaded.Latency.RTTMs.P95
		if c.Plan == nil {
			t.Errorf("case %s has no plan", c.Name)
		}
	}
	if p95[1] > 0.7*p95[0] {
		t.Errorf("p95 %.0f ms with fixed rates, %.0f ms when they follow", p95[0], p95[1])
	}
}

// A router whose rates are changed by programs, at most each 2 s, and that does not see
// the flows' own delays: between a fixed plan and one that changes them at once.
func TestFollowSlowly(t *testing.T) {
	await.NotShort(t)
	x := steps()
	fixed := said(t, "steps", byPlan, x.run(t, byPlan, 1))
	quick := said(t, "steps", byFollow, x.run(t, byFollow, 1))
	x.every, x.deaf = 2*time.Second, true
	slow := x.average(t, "steps, slowly", byFollow, 3)
	if slow.mean > fixed.mean/4 || slow.down+slow.up < 0.8*(quick.down+quick.up) {
		t.Errorf("mean %.1f ms, %.1f Mbit/s", slow.mean, slow.down+slow.up)
	}
}

// A line that really carries 8/5 and twice of what the configuration says is found within
// ten minutes of load, without bloat; with a call on board nothing is tried.
func TestFollowLearnsTheMost(t *testing.T) {
	await.NotShort(t)
	scale := 0.25 // by day everything is slower, and so passes sooner
	if labtest.Long() {
		scale = 1
	}
	rate := func(mbits float64) unit.Rate { return mbit(scale * mbits) }
	x := trial{
		down: rate(80), up: rate(20), rtt: 30 * time.Millisecond, buffers: [2]unit.Size{4 * unit.MB, 1250 * unit.KB}, flows: [2]int{4, 4}, seconds: 10 * time.Minute,
		bounds: [2]follow.Bounds{follow.BoundsOf(0, rate(50), 0, rate(45)), follow.BoundsOf(0, rate(10), 0, rate(9.5))},
	}
	for _, coarse := range []bool{false, true} {
		if coarse {
			x.coarse = everyone
		}
		var sum [2]float64
		n := 0.0
		began := unit.Instant(0)
		x.note = func(now unit.Instant, _ *house, d follow.Decision) {
			if began == 0 {
				began = now
			}
			if now.Sub(began) > x.seconds-time.Minute {
				n++
				for i, r := range d.Rate {
					sum[i] += float64(r)
				}
			}
		}
		f := said(t, "learns", byFollow, x.run(t, byFollow, 1))
		for d, line := range [2]unit.Rate{x.down, x.up} {
			t.Logf("%v, echoes %t: %.3f of the line in the last minute", follow.Direction(d), coarse, sum[d]/n/float64(line))
			if sum[d]/n < 0.92*float64(line) {
				t.Errorf("%v, echoes %t: %.2f Mbit/s in the last minute, of %v", follow.Direction(d), coarse, sum[d]/n/1e6, line)
			}
		}
		if f.bloat > 1 {
			t.Errorf("echoes %t: %d seconds in a row with more than 30 ms", coarse, f.bloat)
		}
	}
}
