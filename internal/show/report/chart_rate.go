package report

import (
	"fmt"
	"math"

	"unbloat/internal/measure/verdict"
)

// direction is a way that data goes.
type direction int

const (
	download direction = iota
	upload
)

func (d direction) String() string { return [...]string{"Download", "Upload"}[d] }

// bins returns the throughput series of a phase in Mbit/s.
func (d direction) bins(p *verdict.Phase) []float64 {
	if p == nil || p.Series == nil {
		return nil
	}
	if d == download {
		return p.Series.DownMbps
	}
	return p.Series.UpMbps
}

// goodput returns what the phase's figures say, in bit/s.
func (d direction) goodput(p *verdict.Phase) float64 {
	if d == download {
		return p.GoodputDownBps
	}
	return p.GoodputUpBps
}

// rateChart draws throughput over time: a panel a direction, a line a run.
func rateChart(runs []run, l layout) *figure {
	c := newClock(runs)
	const head, gap = 62, 12
	high := 120.0
	if l.narrow {
		high = 110
	}
	f := newFigure(l.w, 0, "Throughput over time", "TCP payload received in Mbit/s, download and upload, through the phases of the test. "+rateWords(runs), l.rule)
	y := 0.0
	var p plot
	for _, d := range []direction{download, upload} {
		top := d.peak(runs)
		if top == 0 || c.total == 0 {
			continue
		}
		p = plot{fig: f, x0: axisWidth, y0: y + head, x1: l.w - rightSpace, y1: y + head + high}
		p.x = scale{lo: 0, hi: c.total, a: p.x0, b: p.x1}
		p.y = linearScale(top, p.y1, p.y0)
		f.text(0, y+16, d.String()+", Mbit/s", font{textSize + 1, true, inkText, atStart})
		p.bands(c)
		p.grid()
		p.header(c, func(name string) string { return d.label(runs, name) })
		for _, r := range runs {
			for _, s := range c.slots {
				p.throughput(r, s, d)
			}
		}
		y += head + high + gap
	}
	if y == 0 {
		return nil
	}
	p.seconds(c, 1)
	y += 12
	leg, h := runLegend(runs, l)
	f.place(0, y, leg)
	f.h = y + h
	return f
}

// peak returns the highest bin of all runs, in Mbit/s.
func (d direction) peak(runs []run) float64 {
	top := 0.0
	for _, r := range runs {
		for _, p := range r.test.Phases() {
			for _, v := range d.bins(p.Phase) {
				if !math.IsNaN(v) && !math.IsInf(v, 0) {
					top = max(top, v)
				}
			}
		}
	}
	return top
}

// label is the goodput over a phase, in Mbit/s: the same figure as in the tables.
func (d direction) label(runs []run, name string) string {
	s := ""
	for i, r := range runs {
		v := none
		if p := phase(r.test, name); p != nil {
			v = mbit(d.goodput(p))
		}
		if i > 0 {
			s += " → "
		}
		s += v
	}
	return s
}

// mbit prints bit/s as a bare number of Mbit/s, three digits.
func mbit(bps float64) string {
	if math.IsNaN(bps) || math.IsInf(bps, 0) {
		return none
	}
	v := clamp(bps, 0, 1e15) / 1e6
	switch {
	case v == 0:
		return "0"
	case v < 0.0995:
		return fmt.Sprintf("%.2g", v)
	case v < 9.995:
		return fmt.Sprintf("%.2f", v)
	case v < 99.95:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// throughput draws the bins of one phase of one run as a line of steps. Where
// bins are narrower than a column, the mean of those in it is drawn.
func (p plot) throughput(r run, s slot, d direction) {
	ph := phase(r.test, s.name)
	bins := d.bins(ph)
	if len(bins) == 0 {
		return
	}
	w := ph.Series.BinS
	if !(w > 0) || math.IsInf(w, 0) {
		w = s.dur / float64(len(bins))
	}
	n := max(1, int(math.Ceil(2*columnW/max(1e-9, p.x.at(s.at+w)-p.x.at(s.at)))))
	var path []point
	for i := 0; i < len(bins); i += n {
		group := bins[i:min(i+n, len(bins))]
		sum := 0.0
		for _, v := range group {
			sum += clamp(v, 0, 1e9)
		}
		y := p.y.at(sum / float64(len(group)))
		a := p.x.at(s.at + clamp(float64(i)*w, 0, s.dur))
		b := p.x.at(s.at + clamp(float64(i+len(group))*w, 0, s.dur))
		path = append(path, point{a, y}, point{b, y})
	}
	p.fig.lines([][]point{path}, pen{r.ink, 1.7, r.dash})
}

// runLegend names the line of each run; a single run needs none.
func runLegend(runs []run, l layout) (*figure, float64) {
	if len(runs) < 2 {
		return newFigure(l.w, 0, "", "", l.rule), 14
	}
	var entries []entry
	for _, r := range runs {
		entries = append(entries, entry{l.rule.Cut(r.heading(), l.w-40, smallSize, false), func(f *figure, x, y float64) {
			f.line(x, y, x+22, y, pen{r.ink, 2, r.dash})
		}})
	}
	return legend(l, entries)
}

func rateWords(runs []run) string {
	s := ""
	for _, r := range runs {
		for _, p := range r.test.Phases() {
			s += fmt.Sprintf("%s, %s: %s down, %s up. ", r.heading(), doing(p.Name), rate(p.GoodputDownBps), rate(p.GoodputUpBps))
		}
	}
	return s
}
