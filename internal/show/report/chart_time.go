package report

import (
	"fmt"
	"math"

	"unbloat/internal/measure/verdict"
)

// layout is how much room charts have.
type layout struct {
	w      float64
	narrow bool // for a phone
	rule   *Ruler
}

// Sizes that all charts share, in user units.
const (
	textSize   = 12.5
	smallSize  = 11.5
	axisWidth  = 44 // left of a plot, for the numbers
	rightSpace = 16
	columnW    = 1.5 // probes that share a column are drawn as one
	lostLane   = 13  // under a latency plot, for the probes that were lost
)

// plot is the area of one panel and its axes.
type plot struct {
	fig            *figure
	x0, y0, x1, y1 float64
	x, y           scale
}

// grid draws the horizontal lines of the y axis with their numbers.
func (p plot) grid() {
	for _, t := range p.y.ticks(13) {
		width := 0.6
		if t.major {
			width = 1.1
		}
		p.fig.line(p.x0, t.at, p.x1, t.at, pen{inkGrid, width, solid})
		p.fig.text(p.x0-6, t.at+4, t.label, font{smallSize, false, inkMuted, atEnd})
	}
}

// bands shades every other phase, so that the eye finds the borders.
func (p plot) bands(c clock) {
	for i, s := range c.slots {
		x, w := p.x.at(s.at), p.x.at(s.at+s.dur)-p.x.at(s.at)
		p.fig.rect(x, p.y0, w, p.y1-p.y0, paperOf(i), 1)
		if i > 0 {
			p.fig.line(x, p.y0-4, x, p.y1, pen{inkMuted, 0.8, dotted})
		}
	}
}

// paperOf is the background of the i-th phase.
func paperOf(i int) ink {
	if i%2 == 1 {
		return inkBand
	}
	return inkPaper
}

// across draws a logarithmic axis to the right, with its unit under its end.
func (p plot) across(unit string) {
	for _, t := range p.x.ticks(32) {
		width := 0.6
		if t.major {
			width = 1.1
		}
		p.fig.line(t.at, p.y0, t.at, p.y1, pen{inkGrid, width, solid})
		p.fig.text(t.at, p.y1+16, t.label, font{smallSize, false, inkMuted, atMiddle})
	}
	p.fig.text((p.x0+p.x1)/2, p.y1+32, unit, font{smallSize, false, inkMuted, atMiddle})
}

// seconds draws the time axis under the plot.
func (p plot) seconds(c clock, below float64) {
	step := roundStep(c.total / ((p.x1 - p.x0) / 70))
	end := math.Inf(1)
	for i := math.Floor(c.total/step + 1e-9); i >= 0; i-- {
		x := p.x.at(i * step)
		p.fig.line(x, p.y1+below, x, p.y1+below+4, pen{inkMuted, 1, solid})
		label := plain(i * step)
		at := atMiddle
		if end == math.Inf(1) {
			label += " s"
		}
		if x > p.x1-12 {
			at = atEnd
			x = p.x1 + 8
		}
		if end-x > 26 {
			p.fig.text(x, p.y1+below+17, label, font{smallSize, false, inkMuted, at})
			end = x
		}
	}
}

// header writes, over each phase of a panel, its name and a figure of it.
func (p plot) header(c clock, value func(phase string) string) {
	brief := false
	for _, s := range c.slots {
		brief = brief || p.fig.rule.Width(doing(s.name), smallSize, true) > p.x.at(s.at+s.dur)-p.x.at(s.at)-4
	}
	for _, s := range c.slots {
		x, w := p.x.at(s.at+s.dur/2), p.x.at(s.at+s.dur)-p.x.at(s.at)
		name := doing(s.name)
		if brief {
			name = briefly(s.name)
		}
		p.fig.text(x, p.y0-21, p.fig.rule.Cut(name, w-2, smallSize, true), font{smallSize, true, inkMuted, atMiddle})
		p.fig.fit(x, p.y0-8, value(s.name), w-2, font{smallSize, false, inkText, atMiddle})
	}
}

// briefly names a phase where there is little room.
func briefly(phase string) string {
	switch phase {
	case verdict.PhaseDownload:
		return "down"
	case verdict.PhaseUpload:
		return "up"
	}
	return phase
}

// latencyChart draws latency over time: a panel a run, all with the same axes.
func latencyChart(runs []run, l layout) *figure {
	c := newClock(runs)
	lo, hi := latencyRange(runs)
	if c.total == 0 || hi == 0 {
		return nil
	}
	const head, foot, gap = 62, 24, 6
	high := 190.0
	if l.narrow {
		high = 165
	}
	each := head + high + lostLane + gap
	h := each*float64(len(runs)) + foot
	legend, legendH := latencyLegend(l)
	f := newFigure(l.w, h+legendH, "Latency over time",
		fmt.Sprintf("Round-trip time of every probe in milliseconds, on a logarithmic axis from %s to %s, through the phases of the test. %s",
			shortMs(lo), shortMs(hi), describe(runs)), l.rule)
	y := 0.0
	var p plot
	for _, r := range runs {
		p = plot{fig: f, x0: axisWidth, y0: y + head, x1: l.w - rightSpace, y1: y + head + high}
		p.x = scale{lo: 0, hi: c.total, a: p.x0, b: p.x1}
		p.y = logScale(lo, hi, p.y1, p.y0)
		f.text(0, y+16, l.rule.Cut(r.heading(), l.w, textSize+1, true), font{textSize + 1, true, r.ink, atStart})
		p.bands(c)
		p.grid()
		p.header(c, func(name string) string { return p95Label(r, name, l.narrow) })
		for i, s := range c.slots {
			p.latency(r, s, paperOf(i))
		}
		p.lostAxis()
		y += each
	}
	f.text(0, head-8, "ms", font{smallSize, false, inkMuted, atStart})
	p.seconds(c, lostLane+1)
	f.place(0, h+4, legend)
	return f
}

// p95Label is the figure over a phase: the same p95 as in the tables.
func p95Label(r run, name string, narrow bool) string {
	p := phase(r.test, name)
	if p == nil || p.Latency.Received <= 0 {
		return none
	}
	if narrow {
		return shortMs(p.Latency.RTTMs.P95)
	}
	return "p95 " + ms(p.Latency.RTTMs.P95)
}

// latency draws one phase of one run: the band from fastest to slowest answer,
// the median, the p95 of the figures, and what was lost.
func (p plot) latency(r run, s slot, paper ink) {
	ph := phase(r.test, s.name)
	pr := probesOf(ph)
	if len(pr.t) == 0 {
		return
	}
	start := clamp(ph.Series.StartS, -1e9, 1e9)
	cols := pr.columns(columnW, func(t float64) float64 { return p.x.at(s.place(start, t)) })
	var areas, medians [][]point
	for i := 0; i < len(cols); i++ {
		j := i
		for j < len(cols) && !math.IsNaN(cols[j].mid) && (j == i || cols[j].x-cols[j-1].x < 12) {
			j++
		}
		if j > i {
			area, median := p.envelope(cols[i:j])
			areas, medians = append(areas, area), append(medians, median)
			i = j - 1
		}
	}
	p.fig.areas(areas, r.ink, 0.3)
	p.fig.lines(medians, pen{r.ink, 1.4, solid})
	p.lost(cols)
	p.fadeEdges(pr, s, start, paper)
	if ph.Latency.Received > 0 {
		y := p.y.at(ph.Latency.RTTMs.P95)
		a, b := p.x.at(s.at), p.x.at(s.at+s.dur)
		p.fig.line(a+2, y, b-2, y, pen{inkText, 1.1, dashed})
	}
}

// envelope returns the outline from fastest to slowest and the median line of
// neighbouring columns; a single one is widened so that it can be seen.
func (p plot) envelope(cols []column) (area, median []point) {
	const half = columnW / 2
	for _, c := range cols {
		area = append(area, point{c.x, p.y.at(c.hi) - 0.4})
		median = append(median, point{c.x, p.y.at(c.mid)})
	}
	for i := len(cols) - 1; i >= 0; i-- {
		area = append(area, point{cols[i].x, p.y.at(cols[i].lo) + 0.4})
	}
	if len(cols) == 1 {
		c := cols[0]
		top, low := p.y.at(c.hi)-0.4, p.y.at(c.lo)+0.4
		area = []point{{c.x - half, top}, {c.x + half, top}, {c.x + half, low}, {c.x - half, low}}
		median = []point{{c.x - half, p.y.at(c.mid)}, {c.x + half, p.y.at(c.mid)}}
	}
	return area, median
}

// lostAxis names the lane under the plot.
func (p plot) lostAxis() {
	p.fig.text(p.x0-6, p.y1+lostLane, "lost", font{smallSize, false, inkMuted, atEnd})
	p.fig.line(p.x0, p.y1+lostLane, p.x1, p.y1+lostLane, pen{inkGrid, 1, solid})
}

// lost marks the columns in which probes were lost, taller the more of them.
func (p plot) lost(cols []column) {
	var ticks [][]point
	base := p.y1 + lostLane
	for _, c := range cols {
		if c.lost > 0 {
			share := float64(c.lost) / float64(c.sent)
			ticks = append(ticks, []point{{c.x, base}, {c.x, base - 3.5 - (lostLane-5)*share}})
		}
	}
	p.fig.lines(ticks, pen{inkBad, columnW, solid})
}

// fadeEdges veils the probes of a phase that its figures do not count.
func (p plot) fadeEdges(pr probes, s slot, start float64, paper ink) {
	if !pr.agree || pr.to <= pr.from {
		return
	}
	veil := func(t0, t1 float64) {
		a, b := p.x.at(s.place(start, t0)), p.x.at(s.place(start, t1))
		if b-a > 0.5 {
			p.fig.rect(a, p.y0, b-a, p.y1-p.y0, paper, 0.6)
		}
	}
	if pr.from > 0 {
		veil(start, pr.t[pr.from])
	}
	if pr.to < len(pr.t) {
		veil(pr.t[pr.to], start+s.dur)
	}
}

// latencyRange returns the fastest and the slowest answer of all runs.
func latencyRange(runs []run) (lo, hi float64) {
	lo = math.Inf(1)
	for _, r := range runs {
		for _, p := range r.test.Phases() {
			for _, v := range probesOf(p.Phase).rtt {
				if !math.IsNaN(v) {
					lo, hi = min(lo, v), max(hi, v)
				}
			}
		}
	}
	return lo, hi
}

// latencyLegend explains the marks of a latency panel.
func latencyLegend(l layout) (*figure, float64) {
	return legend(l, []entry{
		{"median", func(f *figure, x, y float64) { f.line(x, y, x+22, y, pen{inkText, 1.6, solid}) }},
		{"fastest to slowest", func(f *figure, x, y float64) { f.rect(x, y-5, 22, 10, inkText, 0.3) }},
		{"p95 of the phase", func(f *figure, x, y float64) { f.line(x, y, x+22, y, pen{inkText, 1.1, dashed}) }},
		{"lost probes", func(f *figure, x, y float64) {
			for _, dx := range []float64{5, 9, 17} {
				f.line(x+dx, y-4, x+dx, y+5, pen{inkBad, columnW, solid})
			}
		}},
		{"faded: warm-up, not counted", nil},
	})
}

// entry is one line of a legend: its words and its sample, drawn 22 units wide.
type entry struct {
	words string
	draw  func(f *figure, x, y float64)
}

// legend sets entries in rows as wide as the layout, and returns its height.
func legend(l layout, entries []entry) (*figure, float64) {
	f := newFigure(l.w, 0, "", "", l.rule)
	x, y := 0.0, 14.0
	for _, e := range entries {
		sample := 28.0
		if e.draw == nil {
			sample = 0
		}
		w := sample + l.rule.Width(e.words, smallSize, false)
		if x > 0 && x+w > l.w {
			x, y = 0, y+19
		}
		if e.draw != nil {
			e.draw(f, x, y-4)
		}
		f.text(x+sample, y, e.words, font{smallSize, false, inkMuted, atStart})
		x += w + 20
	}
	return f, y + 8
}

// describe lists the p95 of each phase of each run, for screen readers.
func describe(runs []run) string {
	s := ""
	for _, r := range runs {
		for _, p := range r.test.Phases() {
			s += fmt.Sprintf("%s, %s: %s. ", r.heading(), doing(p.Name), p95Label(r, p.Name, false))
		}
	}
	return s
}
