package terminal

import (
	"strings"
	"time"

	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/follow"
	"unbloat/internal/keep/supervise"
	"unbloat/reason"
)

// WANs is the view of what a daemon keeps.
type WANs struct {
	words *reason.Language
	wans  []daemon.WANStatus
	made  []daemon.Decision // oldest first
	gone  bool              // the daemon does not answer, and this is what it said last
	rates map[string]*[2]rateCurves
}

// rateCurves are a direction's rates since the view began, in Mbit/s.
type rateCurves struct{ rate, capacity []point }

// mostPoints are kept of each curve: 15 minutes, one a second.
const mostPoints = 900

// NewWANs returns the view in a language.
func NewWANs(words *reason.Language) *WANs {
	return &WANs{words: words, rates: map[string]*[2]rateCurves{}}
}

// Observe takes in what the daemon says, at a time since the view began: how its lines are,
// and its newest decisions, the oldest first. gone: it does not answer, and this is what
// it said last.
func (v *WANs) Observe(now time.Duration, wans []daemon.WANStatus, made []daemon.Decision, gone bool) {
	v.wans, v.made, v.gone = wans, made, gone
	if gone {
		return
	}
	for _, w := range wans {
		c := v.rates[w.Name()]
		if c == nil {
			c = new([2]rateCurves)
			v.rates[w.Name()] = c
		}
		for d, way := range w.Ways() {
			keepPoint(&c[d].rate, point{now, way.Rate.Mbit()})
			if way.Capacity > 0 {
				keepPoint(&c[d].capacity, point{now, way.Capacity.Mbit()})
			}
		}
	}
}

func keepPoint(to *[]point, p point) {
	if *to = append(*to, p); len(*to) > mostPoints {
		*to = (*to)[len(*to)-mostPoints:]
	}
}

// End says that the view is being ended.
func (v *WANs) End(string) {}

// Draw returns the screen at a time since the view began.
func (v *WANs) Draw(now time.Duration, o Options) string {
	c := newCanvas(max(o.Width, 1), max(o.Height, 1))
	p := c.all()
	p.text(1, 0, cut("unbloat status --watch", p.w-1), bold)
	if v.gone {
		p.text(1, 1, cut(v.words.Name("watch gone"), p.w-1), bad)
	}
	body := p.part(0, 2, p.w, p.h-3)
	for i, w := range v.wans {
		y := v.line(body, w)
		if i < len(v.wans)-1 {
			y++
		}
		body = body.part(0, y, body.w, body.h-y)
	}
	body = v.curves(body, now)
	v.decisions(body)
	p.text(1, p.h-1, cut(v.words.Name("watch ends"), p.w-1), dim)
	return c.render(o)
}

// signOf is the arrow of a direction, and its style.
func signOf(up bool) (string, style) {
	if up {
		return "↑", upward
	}
	return "↓", downward
}

// line writes what is believed of a line, and returns how many rows that took.
func (v *WANs) line(p pane, w daemon.WANStatus) (y int) {
	followed := w.Line != nil
	x := p.text(1, 0, cut(clean(w.Name()), p.w/2), bold) + 2
	state, st := v.words.Name("state "+string(w.State)), good
	if w.State != supervise.InPlace {
		st = bad
	}
	switch {
	case followed && w.Line.Blind:
		state, st = v.words.Name("watch blind"), bad
	case followed:
		state += ", " + v.words.Name("watch followed")
	case w.State == supervise.InPlace:
		state += ", " + v.words.Name("watch held")
	}
	p.text(x, 0, cut(clean(state), p.w-x), st)
	y = 1
	if w.Why != "" {
		y += paragraph(p.part(1, y, p.w-1, p.h-y), clean(w.Why), plain)
	}
	narrow := p.w < wideFrom
	if followed && !narrow {
		for _, c := range []struct {
			end  int
			name string
		}{{17, "watch shaper"}, {33, "watch capacity"}, {48, "watch carried"}, {60, "watch delay"}, {72, "watch floor"}} {
			p.right(c.end, y, v.words.Name(c.name), dim)
		}
		y++
	}
	for d, way := range w.Ways() {
		sign, st := signOf(d == 1)
		p.text(1, y, sign, st)
		switch {
		case way.Rate == 0:
			p.text(3, y, v.words.Name("watch none"), dim)
			y++
			continue
		case !followed:
			p.text(3, y, v.words.Rate(float64(way.Rate)), plain)
			y++
			continue
		}
		capacity := "–"
		if way.Capacity > 0 {
			capacity = v.words.Rate(float64(way.Capacity))
		}
		rate, carried := v.words.Rate(float64(way.Rate)), v.words.Rate(float64(way.Carried))
		delay, floor := v.words.Ms(way.Delay.Ms()), v.words.Ms(way.Floor.Ms())
		if narrow {
			y += paragraph(p.part(3, y, p.w-3, p.h-y), rate+", "+v.words.Name("watch capacity")+" "+capacity+", "+v.words.Name("watch now")+" "+carried, bold)
			y += paragraph(p.part(3, y, p.w-3, p.h-y), v.words.Name("watch delay")+" "+delay+", "+v.words.Name("watch floor")+" "+floor, plain)
		} else {
			p.right(17, y, rate, bold)
			p.right(33, y, capacity, plain)
			p.right(48, y, carried, plain)
			p.right(60, y, delay, plain)
			p.right(72, y, floor, plain)
			y++
		}
		y += paragraph(p.part(3, y, p.w-3, p.h-y), v.why(way.Why.Reason()), dim)
	}
	return y
}

// why says a reason without its direction, which a sign shows.
func (v *WANs) why(r reason.Reason) string {
	if r.IsZero() {
		return ""
	}
	text := r.Text(v.words, reason.Terminal)
	if _, said, found := strings.Cut(text, ": "); found {
		text = said
	}
	return clean(text)
}

// curves draws the rates of the only line, if there is room, and returns the rest.
func (v *WANs) curves(p pane, now time.Duration) pane {
	const rows, forDecisions = 7, 5
	if len(v.wans) != 1 || v.wans[0].Line == nil || p.h < rows+forDecisions || p.w < wideFrom {
		return p
	}
	of := v.rates[v.wans[0].Name()]
	if of == nil {
		return p
	}
	half := p.w / 2
	for d := range of {
		c := &of[d]
		if len(c.rate) < 2 {
			continue
		}
		sign, st := signOf(d == 1)
		in := p.part(d*half, 1, half, rows-1).box(sign+" "+v.words.Name("watch rates"), "", false)
		hi := 0.1
		for _, q := range c.rate {
			hi = max(hi, q.v)
		}
		for _, q := range c.capacity {
			hi = max(hi, q.v)
		}
		a := linear(hi)
		from := max(c.rate[0].at, now-mostPoints*time.Second)
		plot := in.scaleOf(a)
		plot.curve(c.capacity, from, max(now, from+time.Second), a, dim, true)
		plot.curve(c.rate, from, max(now, from+time.Second), a, st, true)
	}
	return p.part(0, rows, p.w, p.h-rows)
}

// decisions lists the newest decisions, the newest first.
func (v *WANs) decisions(p pane) {
	if p.h < 3 {
		return
	}
	in := p.part(0, 1, p.w, p.h-1).box(v.words.Name("watch decisions"), "", true)
	y := 0
	for i := len(v.made) - 1; i >= 0 && y < in.h; i-- {
		d := v.made[i]
		x := in.text(1, y, clean(d.Clock()), dim) + 1
		sign, st := signOf(d.Direction == follow.Up.String())
		x = in.text(x, y, sign, st) + 1
		text := v.why(d.Why)
		if len(v.wans) > 1 {
			text = clean(d.WAN) + ": " + text
		}
		y += paragraph(in.part(x, y, in.w-x, in.h-y), text, plain)
	}
	if len(v.made) == 0 {
		in.text(1, 0, v.words.Name("watch nothing"), dim)
	}
}

// paragraph writes words on as many rows as they need, and returns how many. What
// there is no room for is an ellipsis.
func paragraph(p pane, text string, st style) int {
	x, y := 0, 0
	for _, w := range strings.Fields(text) {
		if x > 0 && x+width(w) > p.w {
			if y+1 >= p.h {
				p.set(min(x, p.w-1), y, '…', st)
				return y + 1
			}
			x, y = 0, y+1
		}
		x = p.text(x, y, w, st) + 1
	}
	if text == "" {
		return 0
	}
	return y + 1
}
