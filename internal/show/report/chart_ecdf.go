package report

import (
	"fmt"
	"math"
	"sort"

	"unbloat/internal/measure/verdict"
)

// curve is one line of a distribution chart.
type curve struct {
	name   string
	values []float64 // rising, ms
	pen    pen
	shape  shape
	hollow bool
}

// look returns a phase's ink, line and marker where phases share a chart.
func look(name string) (ink, dash, shape) {
	switch name {
	case verdict.PhaseIdle:
		return inkIdle, dotted, circle
	case verdict.PhaseDownload:
		return inkDownload, solid, square
	case verdict.PhaseUpload:
		return inkUpload, dashed, triangle
	case verdict.PhaseBoth:
		return inkBoth, dashDot, diamond
	}
	return inkLoaded, longDash, circle
}

// ecdfChart draws which share of the answers came within which time: for one
// run all phases in one panel, for two a panel a phase.
func ecdfChart(runs []run, l layout) *figure {
	lo, hi := math.Inf(1), 0.0
	panels := ecdfPanels(runs)
	for _, cs := range panels {
		for _, c := range cs.curves {
			lo, hi = min(lo, c.values[0]), max(hi, c.values[len(c.values)-1])
		}
	}
	if hi == 0 {
		return nil
	}
	const gapX, gapY = 26, 14
	cols, high := 1, 150.0
	if !l.narrow && len(panels) > 1 {
		cols = 2
	}
	if len(panels) == 1 {
		high = 220
	}
	w := (l.w - gapX*float64(cols-1)) / float64(cols)
	head := 30.0
	if len(panels) == 1 {
		head = 14
	}
	each := head + high + 36 + gapY
	f := newFigure(l.w, 0, "Distribution of latency",
		"Share of the answers that came within a round-trip time, in milliseconds on a logarithmic axis; further left is better. "+describe(runs), l.rule)
	for i, cs := range panels {
		x, y := float64(i%cols)*(w+gapX), float64(i/cols)*each
		p := plot{fig: f, x0: x + axisWidth, y0: y + head, x1: x + w - rightSpace, y1: y + head + high}
		p.x = logScale(lo, hi, p.x0, p.x1)
		p.y = scale{lo: 0, hi: 1, a: p.y1, b: p.y0}
		if len(panels) > 1 {
			f.text(x, y+16, capital(doing(cs.phase)), font{textSize + 1, true, inkText, atStart})
		}
		p.ecdfAxes()
		for _, c := range cs.curves {
			p.ecdf(c)
		}
	}
	y := each * math.Ceil(float64(len(panels))/float64(cols))
	leg, h := ecdfLegend(panels, runs, l)
	f.place(0, y-4, leg)
	f.h = y + h
	return f
}

// panelOf is the curves of one panel.
type panelOf struct {
	phase  string
	curves []curve
}

func ecdfPanels(runs []run) []panelOf {
	var out []panelOf
	if len(runs) == 1 {
		one := panelOf{}
		for _, p := range runs[0].test.Phases() {
			if v := probesOf(p.Phase).answers(); len(v) > 0 {
				c, d, s := look(p.Name)
				one.curves = append(one.curves, curve{doing(p.Name), v, pen{c, 2, d}, s, false})
			}
		}
		if len(one.curves) > 0 {
			out = append(out, one)
		}
		return out
	}
	for _, s := range newClock(runs).slots {
		cs := panelOf{phase: s.name}
		for i, r := range runs {
			if v := probesOf(phase(r.test, s.name)).answers(); len(v) > 0 {
				cs.curves = append(cs.curves, curve{r.heading(), v, pen{r.ink, 2, r.dash}, circle, i == 0})
			}
		}
		if len(cs.curves) > 0 {
			out = append(out, cs)
		}
	}
	return out
}

// ecdfAxes draws shares upwards, with the 95 % line that the tables quote, and
// latency to the right.
func (p plot) ecdfAxes() {
	p.across("round-trip time, ms")
	for _, v := range []float64{0, 0.25, 0.5, 0.75, 0.95, 1} {
		y := p.y.at(v)
		style := pen{inkGrid, 1, solid}
		if v == 0.95 {
			style = pen{inkMuted, 1, dotted}
		}
		p.fig.line(p.x0, y, p.x1, y, style)
		if v < 1 {
			p.fig.text(p.x0-6, y+4, fmt.Sprintf("%.0f %%", v*100), font{smallSize, false, inkMuted, atEnd})
		}
	}
}

// ecdf draws one curve of steps, with its marker at the median and the p95.
func (p plot) ecdf(c curve) {
	n := len(c.values)
	path := []point{{p.x.at(c.values[0]), p.y1}}
	for i := 0; i < n; {
		x := p.x.at(c.values[i])
		j := i + sort.Search(n-i, func(k int) bool { return p.x.at(c.values[i+k]) >= x+0.5 })
		j = max(j, i+1)
		end := p.x.at(c.values[j-1])
		last := path[len(path)-1]
		if x-last.x > 1.5 { // nothing in between: a flat step
			path = append(path, point{x, last.y})
		}
		path = append(path, point{end, p.y.at(float64(j) / float64(n))})
		i = j
	}
	p.fig.lines([][]point{path}, c.pen)
	for _, q := range []float64{0.5, 0.95} {
		v := c.values[min(n-1, int(math.Ceil(q*float64(n)))-1)]
		p.fig.marker(p.x.at(v), p.y.at(q), 3.6, c.shape, c.pen.ink, c.hollow)
	}
}

// ecdfLegend names the curves.
func ecdfLegend(panels []panelOf, runs []run, l layout) (*figure, float64) {
	curves := panels[0].curves
	if len(runs) > 1 {
		curves = nil
		for i, r := range runs {
			curves = append(curves, curve{r.heading(), nil, pen{r.ink, 2, r.dash}, circle, i == 0})
		}
	}
	var entries []entry
	for _, c := range curves {
		entries = append(entries, entry{l.rule.Cut(c.name, l.w-40, smallSize, false), func(f *figure, x, y float64) {
			f.line(x, y, x+22, y, c.pen)
			f.marker(x+11, y, 3.4, c.shape, c.pen.ink, c.hollow)
		}})
	}
	entries = append(entries, entry{"markers: median and p95", nil})
	return legend(l, entries)
}
