package report

import (
	"fmt"
	"math"

	"unbloat/internal/measure/verdict"
)

// bar is one line of the range chart.
type bar struct {
	run   run
	phase string // "": the run's name says it
	q     verdict.Quantiles
	empty bool   // measured, but nothing was answered
	note  string // shown with the figures
}

// barGroup is the bars that are compared.
type barGroup struct {
	title string
	ink   ink // of the title
	bars  []bar
}

// ranges is a chart of such groups on one axis.
type ranges struct {
	title, desc string
	groups      []barGroup
	lo, hi      float64 // what the axis must cover; hi 0: there is nothing to draw
	multi       bool    // groups have titles
}

// add adds a group, unless it has no bars.
func (c *ranges) add(g barGroup) {
	if len(g.bars) == 0 {
		return
	}
	c.groups = append(c.groups, g)
	for _, b := range g.bars {
		if b.empty {
			continue
		}
		if lo := clamp(b.q.Min, leastMs, 1e9); c.hi == 0 || lo < c.lo {
			c.lo = lo
		}
		c.hi = max(c.hi, clamp(b.q.Max, leastMs, 1e9), clamp(b.q.P95, leastMs, 1e9))
	}
}

// barOf returns the bar of what was measured.
func barOf(r run, received int, q verdict.Quantiles) bar {
	return bar{run: r, q: q, empty: received <= 0 || !(q.P50 > 0) || math.IsInf(q.P50, 0)}
}

// rangeChart draws, for every phase and run, median, p95 and the whole range of
// latency. It is made from the figures alone, so it needs no series.
func rangeChart(runs []run, goal float64, l layout) *figure {
	c := ranges{multi: len(runs) > 1, title: "Latency of each phase",
		desc: "Median, p95 and range of the round-trip time in milliseconds, on a logarithmic axis. " + describe(runs)}
	for _, name := range append(verdict.PhaseNames(), verdict.PhaseLoaded) {
		g := barGroup{title: capital(doing(name)), ink: inkText}
		for _, r := range runs {
			if p := phase(r.test, name); p != nil {
				b := barOf(r, p.Latency.Received, p.Latency.RTTMs)
				b.phase = name
				g.bars = append(g.bars, b)
			}
		}
		c.add(g)
	}
	return c.draw(runs, goal, l)
}

// draw draws the groups, nil if there is nothing to draw. The goal is over the
// idle line of the last of runs.
func (c ranges) draw(runs []run, goal float64, l layout) *figure {
	if c.hi == 0 {
		return nil
	}
	const head, barGap = 24, 8
	left, right, each := 118.0, 236.0, 24.0
	if l.narrow {
		left, right, each = 8, 12, 40
	}
	n := 0
	for _, g := range c.groups {
		n += len(g.bars)
	}
	h := float64(len(c.groups))*barGap + float64(n)*each + 6
	if c.multi {
		h += head * float64(len(c.groups))
	}
	f := newFigure(l.w, 0, c.title, c.desc, l.rule)
	p := plot{fig: f, x0: left, y0: 4, x1: l.w - right, y1: 4 + h}
	p.x = logScale(c.lo, c.hi, p.x0, p.x1)
	p.across("round-trip time, ms")
	gx, aimed := p.goalAt(runs, goal)
	y := p.y0 + 4
	for _, g := range c.groups {
		if c.multi {
			f.text(0, y+15, l.rule.Cut(g.title, l.w, textSize, true), font{textSize, true, g.ink, atStart})
			y += head
		}
		for _, b := range g.bars {
			if mid := y + barMiddle(each, l); aimed {
				f.line(gx, mid-9, gx, mid+9, pen{inkGood, 1.8, solid})
			}
			p.bar(b, y, each, l, c.multi)
			y += each
		}
		y += barGap
	}
	leg, lh := rangeLegend(goal, l)
	f.place(0, p.y1+38, leg)
	f.h = p.y1 + 34 + lh
	return f
}

// bar draws one run of one phase and its figures.
func (p plot) bar(b bar, y, each float64, l layout, multi bool) {
	name := capital(doing(b.phase))
	if multi {
		name = b.run.name
	}
	words := "no answer"
	if !b.empty {
		words = fmt.Sprintf("median %s · p95 %s · max %s", number(b.q.P50), number(b.q.P95), number(b.q.Max))
		if b.note != "" {
			words = b.note + " · " + fmt.Sprintf("median %s · p95 %s", number(b.q.P50), number(b.q.P95))
		}
	}
	mid := y + barMiddle(each, l)
	if l.narrow {
		p.fig.text(0, y+13, name, font{smallSize, false, b.run.ink, atStart})
		p.fig.text(l.w, y+13, words, font{smallSize, false, inkText, atEnd})
	} else {
		p.fig.text(p.x0-12, mid+4, l.rule.Cut(name, p.x0-14, textSize, false), font{textSize, false, b.run.ink, atEnd})
		p.fig.text(l.w, mid+4, words, font{smallSize, false, inkText, atEnd})
	}
	if b.empty {
		return
	}
	at := func(v float64) float64 { return p.x.at(clamp(v, leastMs, 1e9)) }
	p.fig.line(at(b.q.Min), mid, at(b.q.Max), mid, pen{b.run.ink, 1.4, b.run.dash})
	p.fig.line(at(b.q.Max), mid-5, at(b.q.Max), mid+5, pen{b.run.ink, 1.6, solid})
	if at(b.q.P95) > at(b.q.P50) {
		p.fig.rect(at(b.q.P50), mid-3, at(b.q.P95)-at(b.q.P50), 6, b.run.ink, 1)
	}
	hollow := b.run.dash == dashed
	p.fig.marker(at(b.q.P50), mid, 4, circle, b.run.ink, hollow)
}

// barMiddle is how far below a row's top its bar lies: under the words on a phone.
func barMiddle(each float64, l layout) float64 {
	if l.narrow {
		return 25
	}
	return each / 2
}

// goalAt returns where the idle median plus the goal stands, and whether there
// is such a place.
func (p plot) goalAt(runs []run, goal float64) (float64, bool) {
	if goal <= 0 || len(runs) == 0 {
		return 0, false
	}
	idle := phase(runs[len(runs)-1].test, verdict.PhaseIdle)
	if idle == nil || !(idle.Latency.RTTMs.P50 > 0) {
		return 0, false
	}
	return p.x.at(idle.Latency.RTTMs.P50 + goal), true
}

func rangeLegend(goal float64, l layout) (*figure, float64) {
	entries := []entry{
		{"median", func(f *figure, x, y float64) { f.marker(x+11, y, 4, circle, inkMuted, false) }},
		{"to p95 (95 of 100 were faster)", func(f *figure, x, y float64) { f.rect(x+2, y-3, 20, 6, inkMuted, 1) }},
		{"fastest to slowest", func(f *figure, x, y float64) {
			f.line(x, y, x+21, y, pen{inkMuted, 1.4, solid})
			f.line(x+21, y-5, x+21, y+5, pen{inkMuted, 1.6, solid})
		}},
	}
	if goal > 0 {
		entries = append(entries, entry{"goal: " + shortMs(goal) + " over idle", func(f *figure, x, y float64) {
			f.line(x+11, y-7, x+11, y+7, pen{inkGood, 1.8, solid})
		}})
	}
	return legend(l, entries)
}
