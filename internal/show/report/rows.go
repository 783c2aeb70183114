package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"unbloat/internal/measure/verdict"
	"unbloat/reason"
)

// row is one line of the before/after table: the same for every output.
type row struct {
	name          string
	before, after string
	change        string
	outcome       outcome
}

// group is the rows of one phase.
type group struct {
	name string
	rows []row
}

// metric is a figure of a phase that the tables show.
type metric struct {
	name    string
	value   func(p *verdict.Phase) float64 // NaN: no figure
	print   func(l language, v float64) string
	compare func(before, after float64) outcome // nil: not judged
	use     func(phase string) bool             // in which phases it is shown
}

func always(string) bool       { return true }
func loaded(phase string) bool { return phase != verdict.PhaseIdle }
func downs(phase string) bool {
	return phase != verdict.PhaseIdle && phase != verdict.PhaseUpload
}
func ups(phase string) bool {
	return phase != verdict.PhaseIdle && phase != verdict.PhaseDownload
}

// metrics lists what the before/after table shows of each phase.
func metrics() []metric {
	quantile := func(f func(l verdict.Latency) float64) func(p *verdict.Phase) float64 {
		return func(p *verdict.Phase) float64 {
			if p.Latency.Received <= 0 {
				return math.NaN()
			}
			return f(p.Latency)
		}
	}
	return []metric{
		{"latency, median", quantile(func(l verdict.Latency) float64 { return l.RTTMs.P50 }), language.ms, compareLatency, always},
		{"latency, p95", quantile(func(l verdict.Latency) float64 { return l.RTTMs.P95 }), language.ms, compareLatency, always},
		{"added, median", quantile(func(l verdict.Latency) float64 { return l.IncreaseMs.P50 }), language.ms, compareLatency, loaded},
		{"added, p95", quantile(func(l verdict.Latency) float64 { return l.IncreaseMs.P95 }), language.ms, compareLatency, loaded},
		{"added, p99", quantile(func(l verdict.Latency) float64 { return l.IncreaseMs.P99 }), language.ms, compareLatency, loaded},
		{fell, recovery, language.ms, compareLatency, loaded},
		{"slowest", quantile(func(l verdict.Latency) float64 { return l.RTTMs.Max }), language.ms, nil, always},
		{"lost", lossOf, language.percent, compareLoss, always},
		{"download", func(p *verdict.Phase) float64 { return p.GoodputDownBps }, language.rate, compareSpeed, downs},
		{"upload", func(p *verdict.Phase) float64 { return p.GoodputUpBps }, language.rate, compareSpeed, ups},
	}
}

// fell is the figure that older tests do not have; without it there is no row.
const fell = "until it fell"

// recovery returns how long the delay took to fall after the load, NaN where that is not known.
func recovery(p *verdict.Phase) float64 {
	if p.RecoveryMs == nil {
		return math.NaN()
	}
	return *p.RecoveryMs
}

// outcomeRows are the Quality of Outcome by use, of 100; none if neither test has them.
func (l language) outcomeRows(before, after *verdict.Test) (out []row) {
	score := func(t *verdict.Test, use string) float64 {
		for _, o := range t.Outcomes {
			if o.Use == use && t.Valid {
				return o.Score
			}
		}
		return math.NaN()
	}
	print := func(v float64) string {
		if !finite(v) {
			return none
		}
		return l.Number("%.0f", clamp(v, 0, 100))
	}
	for _, use := range verdict.Uses() {
		a, b := score(before, use), score(after, use)
		if !finite(a) && !finite(b) {
			continue
		}
		r := row{name: l.Name("outcome " + use), before: print(a), after: print(b), outcome: compareScore(a, b)}
		r.change = l.changeWords(a, b, r.outcome)
		out = append(out, r)
	}
	return out
}

// compareScore judges scores of 100: five count.
func compareScore(a, b float64) outcome {
	switch {
	case !finite(a) || !finite(b):
		return unknown
	case math.Abs(a-b) < 5:
		return same
	case b > a:
		return better
	}
	return worse
}

// lossOf returns the share of probes without an answer, NaN when none was sent.
func lossOf(p *verdict.Phase) float64 {
	if p.Latency.Sent <= 0 {
		return math.NaN()
	}
	return p.Latency.Loss
}

// compareLoss judges shares of lost probes: half a percent counts.
func compareLoss(a, b float64) outcome {
	switch {
	case !finite(a) || !finite(b):
		return unknown
	case math.Abs(a-b) < 0.005:
		return same
	case b < a:
		return better
	}
	return worse
}

// groups returns the before/after table, a group a phase; either test may lack
// phases. Grades come first.
func (l language) groups(before, after *verdict.Test) []group {
	g := []group{{"", []row{{name: l.Name("grade"), before: l.grade(before), after: l.grade(after)}}}}
	g[0].rows = append(g[0].rows, l.outcomeRows(before, after)...)
	judged := before.Valid && after.Valid
	for _, name := range append(verdict.PhaseNames(), verdict.PhaseLoaded) {
		p, q := phase(before, name), phase(after, name)
		if p == nil && q == nil {
			continue
		}
		out := group{name: l.Name("title " + name)}
		for _, m := range metrics() {
			if !m.use(name) {
				continue
			}
			if r := m.row(l, p, q, judged); m.name != fell || r.before != none || r.after != none {
				out.rows = append(out.rows, r)
			}
		}
		g = append(g, out)
	}
	return g
}

// row compares one figure of two phases.
func (m metric) row(l language, p, q *verdict.Phase, judged bool) row {
	a, b := math.NaN(), math.NaN()
	if p != nil {
		a = m.value(p)
	}
	if q != nil {
		b = m.value(q)
	}
	r := row{name: l.Name(m.name), before: m.print(l, a), after: m.print(l, b)}
	if m.compare != nil && judged {
		r.outcome = m.compare(a, b)
		r.change = l.changeWords(a, b, r.outcome)
	}
	return r
}

// changeWords says in words how b differs from a. What got worse is called so,
// not only coloured.
func (l language) changeWords(a, b float64, o outcome) string {
	switch o {
	case unknown:
		return ""
	case same:
		return l.Name("same")
	}
	big, small, code, only := a, b, reason.ChangeLess, reason.ChangeOnlyLess
	if b > a {
		big, small, code, only = b, a, reason.ChangeMore, reason.ChangeOnlyMore
	}
	var s string
	switch {
	case b == 0:
		s = l.Name("none left")
	case !(small > 0): // a ratio to zero or less says nothing
		s = l.Say(only)
	case big/small >= 9.95:
		s = l.Say(code, "ratio", l.Number("%.0f×", min(big/small, 99999)))
	case big/small >= 1.95:
		s = l.Say(code, "ratio", l.Number("%.1f×", big/small))
	default:
		s = l.Say(code, "ratio", l.Number("%.0f %%", math.Abs(100*(b-a)/a)))
	}
	if o == worse {
		s = l.Say(reason.ChangeWorse, "change", s)
	}
	return s
}

// grade returns the test's grade, or why it has none.
func (l language) grade(t *verdict.Test) string {
	if !t.Valid {
		return l.Name("invalid")
	}
	if g := clean(t.Grade); g != "" {
		return g
	}
	return none
}

// facts lists, for one test, the figures of every phase with the conditions
// they were taken under. Cells stand in the order of t.Phases(); units are in
// the names, so that a phone has room for the cells.
func (l language) facts(t *verdict.Test) []fact {
	type get = func(name string, p *verdict.Phase) string
	lat := func(f func(l verdict.Latency) float64) get {
		return func(_ string, p *verdict.Phase) string {
			if p.Latency.Received <= 0 {
				return none
			}
			return l.number(f(p.Latency))
		}
	}
	under := func(g get) get {
		return func(name string, p *verdict.Phase) string {
			if name == verdict.PhaseIdle {
				return none
			}
			return g(name, p)
		}
	}
	rows := []struct {
		name string
		get  get
	}{
		{"median, ms", lat(func(l verdict.Latency) float64 { return l.RTTMs.P50 })},
		{"p95, ms", lat(func(l verdict.Latency) float64 { return l.RTTMs.P95 })},
		{"p99, ms", lat(func(l verdict.Latency) float64 { return l.RTTMs.P99 })},
		{"slowest, ms", lat(func(l verdict.Latency) float64 { return l.RTTMs.Max })},
		{"added median, ms", under(lat(func(l verdict.Latency) float64 { return l.IncreaseMs.P50 }))},
		{"added p95, ms", under(lat(func(l verdict.Latency) float64 { return l.IncreaseMs.P95 }))},
		{"p95 up, ms", under(lat(func(l verdict.Latency) float64 { return l.UpMs.P95 }))},
		{"p95 down, ms", under(lat(func(l verdict.Latency) float64 { return l.DownMs.P95 }))},
		{"jitter, ms", lat(func(l verdict.Latency) float64 { return l.IPDVMs })},
		{"download, Mbit/s", under(func(_ string, p *verdict.Phase) string { return l.mbit(p.GoodputDownBps) })},
		{"upload, Mbit/s", under(func(_ string, p *verdict.Phase) string { return l.mbit(p.GoodputUpBps) })},
		{"line filled", under(func(_ string, p *verdict.Phase) string { return l.filled(p) })},
		{"flows down/up", under(func(_ string, p *verdict.Phase) string { return fmt.Sprintf("%d/%d", p.FlowsDown, p.FlowsUp) })},
		{"probes sent", func(_ string, p *verdict.Phase) string { return fmt.Sprint(p.Latency.Sent) }},
		{"probes lost", func(_ string, p *verdict.Phase) string { return l.percent(lossOf(p)) }},
		{"counted, s", func(_ string, p *verdict.Phase) string { return l.Number("%.1f", clamp(p.Seconds, 0, 1e6)) }},
		{fell + ", ms", under(func(_ string, p *verdict.Phase) string { return l.number(recovery(p)) })},
		{"late p99, ms", func(_ string, p *verdict.Phase) string { return l.number(p.ProbeLatenessMs.P99) }},
		{"CPU, busiest", func(_ string, p *verdict.Phase) string { return l.percent(p.CPU) }},
		{"retransmits", under(func(_ string, p *verdict.Phase) string { return fmt.Sprint(p.Retransmits) })},
	}
	var out []fact
	for _, r := range rows {
		f := fact{name: l.Name(r.name)}
		for _, p := range t.Phases() {
			f.cells = append(f.cells, r.get(p.Name, p.Phase))
		}
		if strings.HasPrefix(r.name, fell) && !slices.ContainsFunc(f.cells, func(c string) bool { return c != none }) {
			continue
		}
		out = append(out, f)
	}
	return out
}

// fact is one line of a test's table.
type fact struct {
	name  string
	cells []string
}

// filled says what the load filled.
func (l language) filled(p *verdict.Phase) string {
	switch {
	case p.Saturated:
		return l.Name("yes")
	case len(p.Unsaturated) == 1 && p.FlowsDown > 0 && p.FlowsUp > 0:
		return l.Say(reason.OnlyFilled, "direction", map[string]string{"down": "upload", "up": "download"}[p.Unsaturated[0].Direction])
	}
	return l.Name("no")
}
