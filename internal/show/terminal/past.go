package terminal

import (
	"fmt"
	"math"
	"slices"
	"time"

	"unbloat/reason"
)

// A Past is what a line did over hours.
type Past struct {
	Name     string
	From, To time.Time // in the reader's zone
	Step     time.Duration
	Steps    []PastStep // oldest first
}

// A PastStep is one step of time.
type PastStep struct {
	At  time.Time
	Way [2]PastWay // down, up
}

// A PastWay is one direction of a PastStep. Rates are in bit/s; 0: not known. Delays
// that are not known are below 0.
type PastWay struct {
	Rate, Capacity, Carried int64
	DelayMs, MostMs         float64
}

// DrawPast draws what a line did, as lines of text: the rates of each direction, and
// the delay. It is to be printed, not shown in place; styled says that a terminal
// does that.
func DrawPast(l *reason.Language, p Past, o Options, styled bool) string {
	const chartRows = 7
	w := max(o.Width, 30)
	timed := slices.ContainsFunc(p.Steps, func(s PastStep) bool { return max(s.Way[0].MostMs, s.Way[1].MostMs) >= 0 })
	rows := 1 + 2*(chartRows+1) + 2
	if timed {
		rows = 1 + 3*(chartRows+1)
	}
	c := newCanvas(w, rows)
	all := c.all()
	title := fmt.Sprintf("%s, %s – %s", clean(p.Name), p.From.Format("2006-01-02 15:04"), p.To.Format("2006-01-02 15:04"))
	all.text(0, 0, cut(title, w), bold)
	at := func(t time.Time) time.Duration { return t.Sub(p.From) }
	to := max(at(p.To), time.Second)
	y := 1
	chart := func(name string, hi float64, draw func(plot pane, a axis)) {
		all.text(0, y, cut(name, w), plain)
		in := all.part(0, y+1, w, chartRows-1)
		a := linear(max(hi, 0.1))
		draw(in.scaleOf(a), a)
		y += chartRows + 1
	}
	for d := range 2 {
		sign, st := signOf(d == 1)
		var rate, capacity, carried []point
		hi := 0.0
		for _, s := range p.Steps {
			const mbit = 1e6
			x := s.Way[d]
			add := func(to *[]point, v int64) {
				if v > 0 {
					*to = append(*to, point{at(s.At), float64(v) / mbit})
					hi = max(hi, float64(v)/mbit)
				}
			}
			add(&rate, x.Rate)
			add(&capacity, x.Capacity)
			add(&carried, x.Carried)
		}
		chart(sign+" "+l.Name("past rates"), hi, func(plot pane, a axis) {
			plot.filled(carried, 0, to, a, dim)
			plot.dots(capacity, 0, to, a, accent)
			plot.curve(rate, 0, to, a, st, false)
		})
	}
	var delay [2][]point
	hi := 1.0
	for _, s := range p.Steps {
		for d, x := range s.Way {
			if x.MostMs >= 0 {
				delay[d] = append(delay[d], point{at(s.At), x.MostMs})
				hi = max(hi, x.MostMs)
			}
		}
	}
	if timed {
		chart(l.Name("past delay"), hi, func(plot pane, a axis) {
			plot.curve(delay[1], 0, to, a, upward, false)
			plot.curve(delay[0], 0, to, a, downward, false)
		})
	}
	clocks(all.part(0, y-1, w, 1), p, to)
	if !timed {
		all.text(0, y+1, cut(l.Name("past no delay"), w), dim)
	}
	if !styled {
		for i := range c.cells {
			c.cells[i].s = 0
		}
	}
	return c.render(o)
}

// dots draws points as dots, one a column at most.
func (p pane) dots(points []point, from, to time.Duration, a axis, st style) {
	lo, hi := columnsOf(points, p.w, from, to)
	for x := range lo {
		if !math.IsNaN(lo[x]) {
			p.set(x, p.h-1-int(math.Round(a.share((lo[x]+hi[x])/2)*float64(p.h-1))), '·', st)
		}
	}
}

// clocks writes times of day below a chart.
func clocks(p pane, past Past, to time.Duration) {
	const axisRoom, each = 6, 12
	room := p.w - axisRoom
	format := "15:04"
	if to > 48*time.Hour {
		format = "01-02 15h"
	}
	n := max(room/each, 1)
	for i := range n {
		x := axisRoom + room*i/n
		p.text(x, 0, past.From.Add(to*time.Duration(i)/time.Duration(n)).Format(format), dim)
	}
}
