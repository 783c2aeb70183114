package report

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"unbloat/internal/measure/path"
	"unbloat/internal/measure/verdict"
)

// fakePath returns a trace under an upload that fills the router's uplink. One
// hop is silent, and one loses probes.
func fakePath() *path.Result {
	figures := func(n, received int, best, p50, p95, worst float64) *path.Figures {
		q := verdict.Quantiles{Min: best, Mean: p50, P50: p50, P90: p95, P95: p95, P99: worst, Max: worst}
		return &path.Figures{Sent: n, Received: received, Loss: float64(n-received) / float64(n), LastMs: p50, AvgMs: p50, BestMs: best, WorstMs: worst, StDevMs: 1, RTTMs: q}
	}
	return &path.Result{
		Schema: path.Schema, Time: "2026-03-01T14:20:00Z", Host: "test.example.net", Address: "203.0.113.9", Method: "icmp", IntervalMs: 1000,
		Valid: true, InvalidReasons: []string{}, Reached: true, HomeHops: 1,
		Verdict: "Under upload load latency rises by 931 ms (median) on the router's uplink, between hop 1 (192.168.1.1) and hop 2 (198.51.100.1).",
		Notes:   []string{"Hop 3 does not answer."},
		Load:    &path.Load{Server: "test.example.net:7676", Direction: "up", Flows: 4, GoodputUpBps: 4.73e6},
		Begins:  &path.Beginning{Hop: 2, After: 1, Place: path.Uplink, Statistic: "p50", IncreaseMs: 931, Address: "198.51.100.1", AfterAddr: "192.168.1.1"},
		Hops: []path.HopFigures{
			{Hop: 1, Address: "192.168.1.1", Name: "router.lan", Place: path.Home, Idle: figures(10, 10, 0.4, 0.6, 1.2, 1.4), Loaded: figures(20, 20, 0.4, 0.7, 1.9, 3), Increase: &path.Increase{P50: 0.1, P95: 1.3}},
			{Hop: 2, Address: "198.51.100.1", Place: path.Uplink, Idle: figures(10, 10, 9.8, 10.1, 11, 12), Loaded: figures(20, 18, 410, 940, 972, 980), Increase: &path.Increase{P50: 930, P95: 962}},
			{Hop: 3, Place: path.Provider, Idle: &path.Figures{Sent: 10, Loss: 1}, Loaded: &path.Figures{Sent: 20, Loss: 1}},
			{Hop: 4, Address: "203.0.113.9", Place: path.Provider, Destination: true, Idle: figures(10, 10, 19.8, 20.1, 21, 22), Loaded: figures(20, 20, 420, 951, 983, 990), Increase: &path.Increase{P50: 931, P95: 963}},
		},
	}
}

// A trace can be written in every format for traces, alone or with tests, and
// its JSON can be read again.
func TestHops(t *testing.T) {
	r := fakePath()
	both := Page{Before: fakeTest(before()), After: fakeTest(after()), Paths: []*path.Result{r}}
	for _, p := range []Page{{Paths: []*path.Result{r}}, both} {
		for f, want := range map[Format][]string{
			FormatHTML: {"198.51.100.1", "begins on the router&#39;s uplink", "router.lan (192.168.1.1)", "the increase begins here", "10 % lost"},
			FormatSVG:  {"Latency of each hop", "begins on the router", "3  does not answer"},
			FormatCSV:  {"loaded,hop 2 198.51.100.1 p95,,972,ms", "idle,hop 3  loss,,1,fraction"},
			FormatJSON: {`"schema": "unbloat.path/1"`},
		} {
			got := render(t, f, p)
			for _, w := range want {
				if !strings.Contains(got, w) {
					t.Errorf("%s of %d tests: no %q", f, len(p.runs()), w)
				}
			}
		}
		tests, paths, err := ReadResults([]byte(render(t, FormatJSON, p)))
		if err != nil || len(tests) != len(p.runs()) || len(paths) != 1 || len(paths[0].Hops) != 4 || *paths[0].Begins != *r.Begins {
			t.Errorf("read again: %d tests, %d paths, %v", len(tests), len(paths), err)
		}
		if png := render(t, FormatPNG, p); len(png) < 10_000 {
			t.Errorf("a picture of %d bytes", len(png))
		}
	}
	if _, err := ParseResults([]byte(render(t, FormatJSON, Page{Paths: both.Paths}))); err == nil {
		t.Error("tests were found in a trace")
	}
}

// A trace that contradicts itself is refused.
func TestHopsRefused(t *testing.T) {
	for name, spoil := range map[string]func(*path.Result){
		"received": func(r *path.Result) { r.Hops[0].Idle.Received = 11 },
		"order":    func(r *path.Result) { r.Hops[0].Idle.RTTMs.P50 = 99 },
		"length":   func(r *path.Result) { r.Hops = slices.Repeat(r.Hops, 30) },
	} {
		r := fakePath()
		spoil(r)
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := ReadResults(b); err == nil {
			t.Errorf("%s: it was accepted", name)
		}
	}
}
