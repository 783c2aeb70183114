package metrics_test

import (
	"bytes"
	"fmt"
	"math"
	"net/http/httptest"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/internal/keep/follow"
	"unbloat/internal/keep/metrics"
	"unbloat/internal/keep/supervise"
	"unbloat/unit"
)

// example is a snapshot with everything in it.
func example() metrics.Snapshot {
	h := func(d ...time.Duration) *metrics.Histogram {
		h := &metrics.Histogram{}
		for _, d := range d {
			h.Add(d)
		}
		return h
	}
	return metrics.Snapshot{Version: "1.2.3", Go: "go1.26", WANs: []metrics.WAN{
		{
			Name: "eth0", State: supervise.InPlace, ProbeBytes: 123456789012,
			Way: [2]metrics.Way{
				{Belief: follow.Belief{Rate: 45 * unit.MbitPerSecond, Capacity: 47_500_001}, Delays: h(-1, 0, time.Millisecond, 3*time.Millisecond, 70*time.Millisecond, time.Minute),
					Changes: []metrics.Count{{Cause: "follow-queue", N: 3}, {Cause: "follow-room", N: 9}}},
				{Belief: follow.Belief{Rate: 9_500_000}, Delays: h()},
			},
			Reconciles: []metrics.Count{{Cause: "gone", N: 1}},
			Reflectors: []metrics.Reflector{{Address: "192.0.2.1", Up: true}, {Address: "2001:db8::1"}},
		},
		{Name: `pppoe "wan"\` + "\n", State: supervise.Contested, Way: [2]metrics.Way{{Belief: follow.Belief{Rate: unit.MbitPerSecond}}}},
	}}
}

func text() string {
	s := example()
	var b bytes.Buffer
	metrics.Write(&b, &s)
	return b.String()
}

// The names are the contract's, and values are in base units.
func TestWrite(t *testing.T) {
	got := text()
	for _, want := range []string{
		`unbloat_build_info{version="1.2.3",goversion="go1.26"} 1`,
		`unbloat_in_place{wan="eth0"} 1`,
		`unbloat_in_place{wan="pppoe \"wan\"\\\n"} 0`,
		`unbloat_state{wan="eth0",state="in_place"} 1`,
		`unbloat_state{wan="eth0",state="contested"} 0`,
		`unbloat_state{wan="pppoe \"wan\"\\\n",state="contested"} 1`,
		`unbloat_config_reload_success 1`,
		`unbloat_shaper_rate_bytes_per_second{wan="eth0",direction="down"} 5625000`,
		`unbloat_shaper_rate_bytes_per_second{wan="eth0",direction="up"} 1187500`,
		`unbloat_capacity_estimate_bytes_per_second{wan="eth0",direction="down"} 5.937500125e+06`,
		`unbloat_line_delay_seconds_bucket{wan="eth0",direction="down",le="0.001"} 3`,
		`unbloat_line_delay_seconds_bucket{wan="eth0",direction="down",le="0.005"} 4`,
		`unbloat_line_delay_seconds_bucket{wan="eth0",direction="down",le="0.075"} 5`,
		`unbloat_line_delay_seconds_bucket{wan="eth0",direction="down",le="5"} 5`,
		`unbloat_line_delay_seconds_bucket{wan="eth0",direction="down",le="+Inf"} 6`,
		`unbloat_line_delay_seconds_sum{wan="eth0",direction="down"} 60.074`,
		`unbloat_line_delay_seconds_count{wan="eth0",direction="down"} 6`,
		`unbloat_line_delay_seconds_count{wan="eth0",direction="up"} 0`,
		`unbloat_rate_changes_total{wan="eth0",direction="down",reason="follow-room"} 9`,
		`unbloat_reconciles_total{wan="eth0",cause="gone"} 1`,
		`unbloat_probe_bytes_total{wan="eth0"} 123456789012`,
		`unbloat_probe_bytes_total{wan="pppoe \"wan\"\\\n"} 0`,
		`unbloat_reflector_up{wan="eth0",reflector="192.0.2.1"} 1`,
		`unbloat_reflector_up{wan="eth0",reflector="2001:db8::1"} 0`,
	} {
		if !slices.Contains(strings.Split(got, "\n"), want) {
			t.Errorf("there is no %s", want)
		}
	}
	if strings.Contains(got, `rate_bytes_per_second{wan="pppoe`) {
		t.Error("a WAN on which nothing is in place has a rate")
	}
	stale := example()
	stale.Stale = true
	var b bytes.Buffer
	if metrics.Write(&b, &stale); !strings.Contains(b.String(), "unbloat_config_reload_success 0\n") {
		t.Error("a configuration that could not be read again is none")
	}
	if strings.Contains(got, `capacity_estimate_bytes_per_second{wan="eth0",direction="up"}`) {
		t.Error("a capacity that is not known has a value")
	}
}

// A label's value is what a terminal shows of it, and nothing that it obeys.
func TestHostileLabels(t *testing.T) {
	var b bytes.Buffer
	metrics.NewText(&b).Value("m", 1, "wan", "eth0\x1b[2J\u202e\"\n\xff")
	if got, want := b.String(), `m{wan="eth0\\u001b[2J\\u202e\"\n`+"\uFFFD\"} 1\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestPage(t *testing.T) {
	h := metrics.Handler(example)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 || w.Header().Get("Content-Type") != metrics.ContentType || w.Body.String() != text() {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	w = httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("POST", "/metrics", nil))
	if w.Code != 405 {
		t.Errorf("POST: %d", w.Code)
	}
}

// Prometheus's own checker takes the text, and finds nothing to say against it.
func TestPromtoolTakesMetrics(t *testing.T) {
	promtool := needPromtool(t)
	c := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	c.Stdin = strings.NewReader(text())
	if out, err := c.CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

func needPromtool(t *testing.T) string {
	t.Helper()
	p, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("SKIPPED: promtool is not installed (Debian: apt install prometheus)")
	}
	return p
}

// Law: a ring says of each second and each minute of its reach what a plain list
// of all moments says, and of nothing else.
func TestRingLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := metrics.NewRing()
		now := unit.Instant(rapid.Int64Range(-int64(time.Hour), 1<<60).Draw(t, "start"))
		type entry struct {
			at unit.Instant
			m  metrics.Moment
		}
		var all []entry
		for range rapid.IntRange(1, 60).Draw(t, "moments") {
			now = now.Add(rapid.SampledFrom([]time.Duration{200 * time.Millisecond, time.Second, 90 * time.Second, time.Hour, 25 * time.Hour}).Draw(t, "pause"))
			var m metrics.Moment
			for d := range m.Way {
				m.Way[d] = metrics.MomentWay{
					Rate: float32(max(0, rapid.IntRange(-200, 1000).Draw(t, "rate"))), Carried: float32(rapid.IntRange(0, 1000).Draw(t, "carried")),
					Capacity: float32(rapid.IntRange(0, 3).Draw(t, "capacity")), Delay: float32(rapid.IntRange(0, 300).Draw(t, "delay")),
				}
				if rapid.IntRange(0, 2).Draw(t, "measured") == 0 {
					m.Way[d].Delay, m.Way[d].DelayMax = metrics.NoDelay, metrics.NoDelay
				}
			}
			r.Add(now, m)
			r.Add(now.Add(-2*time.Minute), metrics.Moment{}) // late: ignored
			all = append(all, entry{now, m})
		}
		from := now.Add(-time.Duration(rapid.Int64Range(0, int64(30*time.Hour)).Draw(t, "from")))
		to := from.Add(time.Duration(rapid.Int64Range(1, int64(40*time.Hour)).Draw(t, "span")))
		for _, c := range []struct {
			name  string
			each  func(from, to unit.Instant, f func(unit.Instant, metrics.Moment))
			step  time.Duration
			reach time.Duration
		}{{"seconds", r.Seconds, time.Second, metrics.RingSeconds}, {"minutes", r.Minutes, time.Minute, metrics.RingMinutes}} {
			floor := func(at unit.Instant) unit.Instant {
				f := at - at%unit.Instant(c.step)
				if f > at {
					f -= unit.Instant(c.step)
				}
				return f
			}
			want := map[unit.Instant][]metrics.Moment{}
			for _, e := range all {
				at := floor(e.at)
				if at < floor(from) || at > floor(to-1) || floor(now).Sub(at) >= c.reach {
					continue
				}
				want[at] = append(want[at], e.m)
			}
			got, last := 0, unit.Instant(math.MinInt64)
			c.each(from, to, func(at unit.Instant, m metrics.Moment) {
				got++
				if at <= last {
					t.Fatalf("%s: %v after %v", c.name, at, last)
				}
				last = at
				check(t, want[at], m)
			})
			if got != len(want) {
				t.Fatalf("%s: %d, want %d", c.name, got, len(want))
			}
		}
	})
}

// check compares a slot with the moments that fell into it.
func check(t *rapid.T, of []metrics.Moment, got metrics.Moment) {
	for d := range got.Way {
		var want metrics.MomentWay
		known, timed, rated := float32(0), float32(0), float32(0)
		n := float32(len(of))
		for _, m := range of {
			w := m.Way[d]
			if w.Rate > 0 {
				want.Rate += w.Rate
				rated++
			}
			want.Carried += w.Carried / n
			if w.Delay >= 0 {
				want.Delay += w.Delay
				want.DelayMax = max(want.DelayMax, w.Delay)
				timed++
			}
			if w.Capacity > 0 {
				want.Capacity += w.Capacity
				known++
			}
		}
		want.Rate /= max(rated, 1)
		if known > 0 {
			want.Capacity /= known
		}
		if want.Delay /= max(timed, 1); timed == 0 {
			want.Delay, want.DelayMax = metrics.NoDelay, metrics.NoDelay
		}
		near := func(a, b float32) bool { return math.Abs(float64(a-b)) < 0.01 }
		g := got.Way[d]
		if len(of) == 0 || !near(g.Rate, want.Rate) || !near(g.Carried, want.Carried) || !near(g.Delay, want.Delay) || g.DelayMax != want.DelayMax || !near(g.Capacity, want.Capacity) {
			t.Fatalf("%+v, want %+v of %d", g, want, len(of))
		}
	}
}

// A day costs no more memory than a moment.
func TestRingMemory(t *testing.T) {
	memory := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := memory()
	r := metrics.NewRing()
	empty := memory() - before
	now := unit.Instant(time.Hour)
	add := func() {
		now = now.Add(200 * time.Millisecond)
		r.Add(now, metrics.Moment{})
	}
	if n := testing.AllocsPerRun(5*3600*26, add); n != 0 {
		t.Errorf("%v allocations a moment", n)
	}
	full := memory() - before
	t.Logf("a ring takes %d kB", full/1000)
	const most = 600_000
	if full > empty+10_000 || full > most {
		t.Errorf("%d bytes when new, %d after a day", empty, full)
	}
	runtime.KeepAlive(r)
}

func BenchmarkRing(b *testing.B) {
	r := metrics.NewRing()
	now := unit.Instant(time.Hour)
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(200 * time.Millisecond)
		r.Add(now, metrics.Moment{})
	}
}

func ExampleText() {
	var b strings.Builder
	t := metrics.NewText(&b)
	t.Head("unbloat_example_total", metrics.Counter, "An example.")
	t.Value("unbloat_example_total", 3, "wan", "eth0")
	fmt.Print(b.String())
	// Output:
	// # HELP unbloat_example_total An example.
	// # TYPE unbloat_example_total counter
	// unbloat_example_total{wan="eth0"} 3
}
