package lab_test

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"unbloat/internal/measure/verdict"
	"unbloat/lab"
	"unbloat/lab/household"
	"unbloat/lab/scenario"
	"unbloat/unit"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// The page of a subject has medians and ranges over five seeds. One case is
// invalid with one seed, and one load ends in two ways.
func TestWriteEvidence(t *testing.T) {
	home := &scenario.Scenario{
		Name: "home", Title: "A home",
		Line:  scenario.Line{Down: 25 * unit.MbitPerSecond, Up: unit.MbitPerSecond, RTT: 34 * time.Millisecond},
		Loads: []scenario.Load{{Kind: scenario.IMAP, Flows: 1, Host: 1, Messages: 9}, {Kind: scenario.Upload, Flows: 1, Host: 1}, {Kind: scenario.Upload, Flows: 1, Host: 2}, {Kind: scenario.VoIP, Flows: 1, Host: 1}},
		Cases: []scenario.Case{{Name: "before"}, {Name: "ours"}},
	}
	quiet := &scenario.Scenario{
		Name: "quiet", Title: "A test alone",
		Line:  scenario.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond, RTT: 20 * time.Millisecond},
		Cases: []scenario.Case{{Name: "tuned"}, {Name: "seed"}},
	}
	phase := func(p95, loss, down, up float64) *verdict.Phase {
		return &verdict.Phase{Latency: verdict.Latency{IncreaseMs: verdict.Quantiles{P95: p95}, Loss: loss}, GoodputDownBps: down, GoodputUpBps: up}
	}
	var homes, quiets []*lab.Result
	for i, p95 := range []float64{186, 313, 171, 211, 186} {
		seed := uint64(i + 1)
		mail := &household.MailResult{Messages: 9, Of: 9, Seconds: 20 + float64(i)/4, Done: true}
		if seed == 2 {
			mail = &household.MailResult{Messages: 7, Of: 9, Seconds: 30}
		}
		loads := []lab.LoadResult{
			{Kind: scenario.IMAP, QoE: household.QoE{Mail: mail}},
			{Kind: scenario.Upload, GoodputBps: 1e6}, {Kind: scenario.Upload, GoodputBps: 2e6 + float64(i)*1e5},
			{Kind: scenario.VoIP, QoE: household.QoE{Voice: &verdict.Voice{MOS: 2 + float64(i)/10}}},
		}
		homes = append(homes, &lab.Result{Engine: lab.Virtual, Kernel: "7.3.4", Seed: seed, Cases: []lab.CaseResult{
			{Name: "before", Test: &verdict.Test{Valid: seed != 3, Loaded: phase(p95, 0.04*float64(i), 0, 0)}, Loads: loads},
			{Name: "ours", Test: &verdict.Test{Valid: true, Loaded: phase(5.8, 0, 0, 0)}, Loads: loads[1:2]},
		}})
		quiets = append(quiets, &lab.Result{Engine: lab.Virtual, Kernel: "7.3.4", Seed: seed, Cases: []lab.CaseResult{
			{Name: "tuned", Test: &verdict.Test{Valid: true, Idle: phase(0, 0, 0, 0), Download: phase(3.25, 0, 28.5e6+float64(i), 0), Upload: phase(2, 0, 0, 4.5e6+float64(i)*1e5)}},
		}})
	}
	var b strings.Builder
	err := lab.WriteEvidence(&b, lab.Evidence{
		Title: "A subject", About: []string{"What it is about."}, Command: "unbloat lab compare --seeds 5",
		Cases: append(lab.CompareCases(), "seed", "tuned"),
		Rows:  []lab.Row{{Scenario: home, Results: homes}, {Scenario: quiet, Results: quiets}},
	})
	if err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/evidence.md"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("got\n%s\nwant (go test ./lab -run TestWriteEvidence -update rewrites it)\n%s", b.String(), want)
	}
}

// A spread is the median, the least and the most. Values that print alike are
// written once.
func TestSpread(t *testing.T) {
	whole := func(v float64) string { return strings.Repeat("i", int(v)) }
	for _, c := range []struct {
		values []float64
		want   string
	}{
		{nil, "–"},
		{[]float64{3}, "iii"},
		{[]float64{3, 3.2, 3.9}, "iii"},
		{[]float64{4, 1, 2}, "ii (i to iiii)"},
		{[]float64{6, 1, 5, 3}, "iiii (i to iiiiii)"},
	} {
		if got := lab.Spread(c.values, whole); got != c.want {
			t.Errorf("%v: %q, want %q", c.values, got, c.want)
		}
	}
}
