package report

import (
	"fmt"
	"math"

	"unbloat/internal/measure/verdict"
)

// sheet sets the whole report as one figure, for SVG and PNG: the verdict, the
// figures and every chart that the HTML page shows.
func sheet(p Page) *figure {
	const pad, w = 28, 900
	l := layout{w: w - 2*pad, rule: NewRuler()}
	f := newFigure(w, 0, p.title(), p.sentence(), l.rule)
	y := float64(pad)
	lines := func(s string, size float64, bold bool, c ink) {
		for _, line := range l.rule.Wrap(s, l.w, size, bold) {
			y += size * 1.32
			f.text(pad, y, line, font{size, bold, c, atStart})
		}
	}
	lines(p.title(), 22, true, inkText)
	if p.Chart == "" {
		y += 8
		c := inkText
		if p.invalid() {
			c = inkBad
		}
		lines(p.sentence(), 16, false, c)
		y += 6
		for _, r := range p.runs() {
			lines(r.heading()+": "+gradeWords(r)+join(", ", english().conditions(r.test)), 12.5, false, inkMuted)
		}
		for _, t := range p.Paths {
			lines(pathHeading(t)+": "+pathConditions(t), 12.5, false, inkMuted)
		}
		for _, n := range p.notes() {
			lines(n, 12.5, false, inkMuted)
		}
	}
	for _, ch := range charts(p, l) {
		y += 30
		lines(ch.title, 17, true, inkText)
		y += 8
		f.place(pad, y, ch.fig)
		y += ch.fig.h
	}
	y += 14
	about := "Added latency is over the idle line's median. p95: 95 of 100 probes were faster. Speeds are TCP payload. Made by unbloat."
	if p.last() == nil && len(p.Paths) == 0 {
		about = "Rates are means of each step of time, delays its worst. Made by unbloat."
	}
	if p.Chart == "" {
		lines(about, 11.5, false, inkMuted)
	}
	f.h = y + pad
	return f
}

// chart is a figure with the heading it stands under.
type chart struct {
	kind  string // such as "hops", for the caption
	id    string // unique in the page
	title string
	fig   *figure
}

// charts draws what the page's data allows, in the order it is shown.
func charts(p Page, l layout) []chart {
	var out []chart
	add := func(kind, id, title string, f *figure) {
		if f != nil && (p.Chart == "" || p.Chart == kind) {
			out = append(out, chart{kind, id, title, f})
		}
	}
	add("range", "range", "Latency of each phase", rangeChart(p.runs(), p.goal(), l))
	add("latency", "latency", "Latency over time", latencyChart(p.ends(), l))
	add("distribution", "distribution", "Distribution of latency", ecdfChart(p.ends(), l))
	add("throughput", "throughput", "Throughput over time", rateChart(p.ends(), l))
	add("framing", "framing", "What the line adds to each packet", framingChart(p.last(), l))
	for i, t := range p.Paths {
		id, title := "hops", "Latency of each hop"
		if len(p.Paths) > 1 {
			id, title = fmt.Sprintf("hops-%d", i+1), title+": "+pathHeading(t)
		}
		add("hops", id, title, hopChart(t, l))
	}
	for i, t := range p.Lines {
		id, title := "line", "The line over time"
		if len(p.Lines) > 1 {
			id, title = fmt.Sprintf("line-%d", i+1), title+": "+t.heading()
		}
		add("line", id, title, lineChart(t, l))
	}
	return out
}

// sentence is the page's verdict in words.
func (p Page) sentence() string {
	if p.last() == nil && len(p.Paths) > 0 {
		return clean(p.Paths[0].Verdict)
	}
	if p.last() == nil && len(p.Lines) > 0 {
		return p.Lines[0].says()
	}
	return Sentence(p.first(), p.last())
}

// first returns the before of a page that has two tests, else nil.
func (p Page) first() *verdict.Test {
	if r := p.runs(); len(r) > 1 {
		return r[0].test
	}
	return nil
}

// last returns the test that is judged.
func (p Page) last() *verdict.Test {
	if r := p.runs(); len(r) > 0 {
		return r[len(r)-1].test
	}
	return nil
}

// invalid reports whether one of the tests that are compared proves nothing.
func (p Page) invalid() bool {
	for _, r := range p.ends() {
		if !r.test.Valid {
			return true
		}
	}
	return false
}

// notes returns the page's own notes and what must be said about its data.
func (p Page) notes() []string {
	var out []string
	for _, n := range p.Notes {
		if n = clean(n); n != "" {
			out = append(out, n)
		}
	}
	for i, t := range p.Paths {
		if p.last() != nil || i > 0 {
			out = append(out, pathHeading(t)+": "+clean(t.Verdict))
		}
		for _, n := range t.Notes {
			out = append(out, clean(n))
		}
	}
	if g := p.goal(); g > 0 && p.last() != nil {
		out = append(out, goalWords(p.last(), g))
	}
	for _, r := range p.ends() {
		for _, q := range r.test.Phases() {
			pr := probesOf(q.Phase)
			if len(pr.t) > 0 && !pr.agree {
				out = append(out, fmt.Sprintf("%s, %s: the figures and the recorded series of this file do not agree; the tables show the figures, the charts the series.", r.heading(), doing(q.Name)))
			}
			if w := clean(q.FillWords()); w != "" && q.Name != verdict.PhaseIdle {
				out = append(out, fmt.Sprintf("%s, %s: %s.", r.heading(), doing(q.Name), w))
			}
		}
	}
	return out
}

// goalWords says whether the goal was held.
func goalWords(t *verdict.Test, goal float64) string {
	name, p := worstPhase(t)
	a := added(p)
	switch {
	case p == nil || math.IsNaN(a):
		return fmt.Sprintf("Goal: p95 at most %s over idle. It was not measured.", shortMs(goal))
	case a <= goal:
		return fmt.Sprintf("Goal held: p95 at most %s over idle; the worst was %s, %s.", shortMs(goal), shortMs(a), while(name))
	}
	return fmt.Sprintf("Goal missed: p95 at most %s over idle; it was %s, %s.", shortMs(goal), shortMs(a), while(name))
}

func gradeWords(r run) string {
	if !r.test.Valid {
		return "invalid measurement"
	}
	return "grade " + english().grade(r.test)
}

func join(sep, s string) string {
	if s == "" {
		return ""
	}
	return sep + s
}
