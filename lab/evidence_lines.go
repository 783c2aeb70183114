package lab

import (
	"fmt"
	"strings"
)

// A recordedRow is what a case gave that can't be run everywhere, as it was measured
// once.
type recordedRow struct {
	mean, p50, p95, most, down, up string // ms, Mbit/s
}

// recordedAutorate is what cake-autorate 94238be gave with a lower usual rate
// (30/6 Mbit/s on follow-steps), on Linux 7.3.4 in virtual time: for readers without it.
func recordedAutorate(scenario string) (recordedRow, bool) {
	r, ok := map[string]recordedRow{
		"follow-steps":       {"72", "62", "142", "218", "14.0", "6.27"},
		"follow-lte-tmobile": {"113", "73", "338", "–", "7.5", "6.8"},
	}[scenario]
	return r, ok
}

// lineFigures are what a case gave on a line that varies, one figure for each seed.
type lineFigures struct {
	mean, p50, p95, p99, most    []float64 // ms of the round trip
	down, up, sum                []float64 // bit/s
	leastDown, leastUp           []float64 // bit/s, of the shapers
	frozen                       []float64 // s, of calls, both ways, without outages of the line
	probes                       []float64 // bytes
	calls, followsRates, counted bool
}

// lineFiguresOf collects them.
func (r Row) lineFiguresOf(name string) (f lineFigures) {
	for _, result := range r.Results {
		for _, c := range result.Cases {
			if c.Name != name || c.Test == nil || c.Test.Loaded == nil {
				continue
			}
			f.counted = true
			p := c.Test.Loaded
			q := p.Latency.RTTMs
			for to, v := range map[*[]float64]float64{&f.mean: q.Mean, &f.p50: q.P50, &f.p95: q.P95, &f.p99: q.P99, &f.most: q.Max,
				&f.down: p.GoodputDownBps, &f.up: p.GoodputUpBps, &f.sum: p.GoodputDownBps + p.GoodputUpBps} {
				*to = append(*to, v)
			}
			if s := c.Shapers; s != nil {
				f.followsRates = true
				f.leastDown, f.leastUp = append(f.leastDown, s.Down.Least), append(f.leastUp, s.Up.Least)
			}
			frozen := 0.0
			for _, l := range c.Loads {
				if l.Call != nil {
					f.calls = true
					frozen += l.Call.Down.RoutedS + l.Call.Up.RoutedS
				}
			}
			f.frozen = append(f.frozen, frozen)
			if c.ProbeBytes > 0 {
				f.probes = append(f.probes, float64(c.ProbeBytes)/c.VirtualSeconds)
			}
		}
	}
	return f
}

// writeLines writes the table of one line that varies: a row for each case.
func (r Row) writeLines(b *strings.Builder, cases []string) {
	figures := map[string]lineFigures{}
	calls := false
	for _, name := range cases {
		figures[name] = r.lineFiguresOf(name)
		calls = calls || figures[name].calls
	}
	row := func(cells ...string) { fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | ")) }
	head := []string{"router", "mean, ms", "p50", "p95", "p99", "most", "down, Mbit/s", "up", "down + up", "least rates of the shapers"}
	if calls {
		head = append(head, "call frozen, s")
	}
	row(head...)
	row(strings.Split(strings.Repeat("---,", len(head)-1)+"---", ",")...)
	for _, name := range cases {
		f := figures[name]
		if !f.counted {
			if x, ok := recordedAutorate(r.Scenario.Name); ok && name == caseAutorate {
				cells := []string{shownCase(name) + ", recorded", x.mean, x.p50, x.p95, "–", x.most, x.down, x.up, "–", "–"}
				row(cells[:min(len(cells), len(head))]...)
			} else {
				row(append([]string{shownCase(name) + ": SKIPPED"}, strings.Split(strings.Repeat("–,", len(head)-2)+"–", ",")...)...)
			}
			continue
		}
		least := "–"
		if f.followsRates {
			least = Spread(f.leastDown, showMbit) + " / " + Spread(f.leastUp, showMbit)
		}
		cells := []string{shownCase(name), Spread(f.mean, showTenths), Spread(f.p50, showTenths), Spread(f.p95, showTenths), Spread(f.p99, showTenths), Spread(f.most, showWhole),
			Spread(f.down, showMbit), Spread(f.up, showMbit), Spread(f.sum, showMbit), least}
		if calls {
			cells = append(cells, Spread(f.frozen, showTenths))
		}
		row(cells...)
	}
}

// Cases of lines that vary.
const (
	caseFixed    = "fixed"
	caseAutorate = "cake-autorate"
	caseFollows  = "follows"
	caseOracle   = "oracle"
)

// FollowCases are the cases of lines that vary, in the order of a table's rows.
func FollowCases() []string { return []string{caseFixed, caseAutorate, caseFollows, caseOracle} }
