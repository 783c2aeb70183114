package terminal

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"unbloat/internal/measure/path"
)

// A Path is what is known of a trace while it runs.
type Path struct {
	host   string
	newest path.WalkProgress
	far    []point // ms, of the farthest hop that answers, by when it was learned
	heard  int     // its answers so far
	ending string
}

// NewPath returns the view of a trace.
func NewPath(host string) *Path { return &Path{host: clean(host)} }

// Observe adds the progress of the trace, at a time since the view began.
func (v *Path) Observe(now time.Duration, p path.WalkProgress) {
	v.newest = p
	for _, h := range slices.Backward(p.Result.Hops) {
		heard, last := 0, 0.0
		for _, f := range []*path.Figures{h.Idle, h.Loaded} {
			if f != nil && f.Received > 0 {
				heard, last = heard+f.Received, f.LastMs
			}
		}
		if heard > v.heard {
			v.far, v.heard = append(v.far, point{now, last}), heard
		}
		if heard > 0 {
			return
		}
	}
}

// End says that the trace is being ended early, and why.
func (v *Path) End(why string) { v.ending = why }

// Draw returns the screen at a time since the view began.
func (v *Path) Draw(now time.Duration, o Options) string {
	c := newCanvas(max(o.Width, 1), max(o.Height, 1))
	p := c.all()
	narrow := p.w < wideFrom
	x := p.text(1, 0, "unbloat path", bold)
	phase := "connecting"
	if w := v.newest; w.Phase != "" {
		phase = fmt.Sprintf("%s %.1f of %.0f s", w.Phase, w.Elapsed.Seconds(), w.Duration.Seconds())
	}
	if narrow {
		p.text(x+1, 0, cut(v.host, p.w-x-2), dim)
		p.text(1, 1, cut("▶ "+phase, p.w-1), accent)
	} else {
		at := p.right(p.w-1, 0, "▶ "+phase, accent)
		p.text(x+1, 0, cut(v.host, at-x-2), dim)
	}
	body := p.part(0, 2, p.w, p.h-3)
	if r := v.newest.Result; r != nil {
		rows := min(len(r.Hops)+2, body.h)
		v.table(body.part(0, 0, body.w, rows), r)
		rest := body.part(0, rows+1, body.w, body.h-rows-1)
		rest = v.bars(rest, r, narrow)
		v.overTime(rest, now, narrow)
	}
	footer(p, v.ending)
	return c.render(o)
}

// A column is one figure of a hop in one phase.
type column struct {
	head  string
	width int
	print func(*path.Figures) string
}

// columns lists the figures in the order in which they stand; rank says in
// which order they are left out where there is no room, the highest first: of
// one phase what mtr shows comes first, of two what they are compared by.
func columns(two bool) (all []column, rank []int) {
	rank = []int{0, 5, 3, 1, 4, 2, 6, 8, 7}
	if two {
		rank = []int{2, 4, 5, 6, 7, 3, 8, 0, 1}
	}
	tenths := func(of func(*path.Figures) float64) func(*path.Figures) string {
		return func(f *path.Figures) string {
			if f.Received == 0 {
				return "–"
			}
			return number(of(f))
		}
	}
	return []column{
		{"Loss%", 6, func(f *path.Figures) string { return fmt.Sprintf("%.0f%%", 100*f.Loss) }},
		{"Snt", 5, func(f *path.Figures) string { return fmt.Sprint(f.Sent) }},
		{"Last", 7, tenths(func(f *path.Figures) float64 { return f.LastMs })},
		{"Avg", 7, tenths(func(f *path.Figures) float64 { return f.AvgMs })},
		{"Best", 7, tenths(func(f *path.Figures) float64 { return f.BestMs })},
		{"Wrst", 7, tenths(func(f *path.Figures) float64 { return f.WorstMs })},
		{"StDev", 7, tenths(func(f *path.Figures) float64 { return f.StDevMs })},
		{"p50", 6, tenths(func(f *path.Figures) float64 { return f.RTTMs.P50 })},
		{"p95", 7, tenths(func(f *path.Figures) float64 { return f.RTTMs.P95 })},
	}, rank
}

// fitting returns the columns of one phase that fit into n columns of text.
func fitting(n int, two bool) []column {
	all, rank := columns(two)
	var out []column
	for keep := len(all); keep > 0; keep-- {
		out = nil
		sum := 0
		for i, c := range all {
			if rank[i] < keep {
				out = append(out, c)
				sum += c.width
			}
		}
		if sum <= n {
			return out
		}
	}
	return out
}

// table draws what mtr shows, idle and under load side by side.
func (v *Path) table(p pane, r *path.Result) {
	two := r.Load != nil
	const number, plus = 4, 7 // columns of the hop's, and of what is added
	name, gap := 15, 2
	for _, h := range r.Hops {
		name = max(name, min(width(hopName(h)), 40))
	}
	room := p.w - number
	switch {
	case room < wideFrom-number:
		name, gap = 15, 1
	case room < 120:
		name = min(name, 25)
	}
	each := room - name
	if two {
		each = (room - name - gap - plus) / 2
	}
	cols := fitting(each, two)
	used := 0
	for _, c := range cols {
		used += c.width
	}
	left, right := number+name, number+name+used+gap
	if two {
		p.text(left+1, 0, cut("idle", used), bold)
		load := "under load"
		if used < len(load) {
			load = "load"
		}
		p.text(right+1, 0, load, bold)
		p.right(right+used+plus, 1, "+p95", dim)
	}
	p.text(4, 1, cut(clean(r.Address), name), dim)
	heads(p, left, cols)
	if two {
		heads(p, right, cols)
	}
	for i, h := range r.Hops {
		y := i + 2
		st := plain
		begins := r.Begins != nil && r.Begins.Hop == h.Hop
		if begins {
			st = accent
			p.text(0, y, "▶", accent)
		}
		p.right(3, y, fmt.Sprint(h.Hop), st)
		p.text(4, y, cut(hopName(h), name), st)
		cells(p, left, y, cols, h.Idle, plain)
		if !two {
			continue
		}
		p.set(right-1, y, '│', dim)
		cells(p, right, y, cols, h.Loaded, plain)
		over := "–"
		if h.Increase != nil {
			over = signed(math.Round(h.Increase.P95*10)/10 + 0)
		}
		p.right(right+used+plus, y, over, st)
	}
}

func hopName(h path.HopFigures) string {
	switch {
	case h.Address == "":
		return "???"
	case h.Name != "":
		return clean(h.Name)
	}
	return clean(h.Address)
}

func heads(p pane, x int, cols []column) {
	for _, c := range cols {
		x += c.width
		p.right(x, 1, c.head, dim)
	}
}

func cells(p pane, x, y int, cols []column, f *path.Figures, st style) {
	for _, c := range cols {
		x += c.width
		if f != nil {
			p.right(x, y, c.print(f), st)
		}
	}
}

// bars draws, of every hop, from the fastest answer over the median to p95,
// idle above under load; and says where the increase begins.
// What is left below is returned.
func (v *Path) bars(p pane, r *path.Result, narrow bool) pane {
	if b := r.Begins; b != nil {
		words := strings.Fields(fmt.Sprintf("▶ latency rises by %s %s, from hop %d on", ms(b.IncreaseMs), b.Place.Words(), b.Hop))
		x, y := 1, 0
		for _, w := range words {
			if x+width(w) > p.w && x > 1 {
				x, y = 1, y+1
			}
			x = p.text(x, y, w, accent) + 1
		}
		p = p.part(0, y+1, p.w, p.h-y-1)
	}
	each := 1
	if r.Load != nil {
		each = 2
	}
	need := len(r.Hops)*each + 3
	if p.h < need || len(r.Hops) == 0 {
		return p
	}
	title := "Each hop, ms: fastest to p95, ● median"
	if narrow {
		title = "Each hop, ms: to p95, ● median"
	}
	in := p.part(0, 0, p.w, need).box(title, "", narrow)
	hi := 1.0
	for _, h := range r.Hops {
		for _, f := range []*path.Figures{h.Idle, h.Loaded} {
			if f != nil {
				hi = max(hi, f.RTTMs.P95)
			}
		}
	}
	a := linear(hi)
	chart := in.part(9, 0, in.w-9, in.h)
	for i, h := range r.Hops {
		y := i * each
		in.text(0, y, fmt.Sprintf("%2d idle", h.Hop), dim)
		bar(chart, y, h.Idle, a, dim)
		if each == 2 {
			in.text(0, y+1, "   load", plain)
			bar(chart, y+1, h.Loaded, a, accent)
		}
	}
	y := len(r.Hops) * each
	for _, t := range []float64{0, a.hi / 2, a.hi} {
		x := int(a.share(t) * float64(chart.w-1))
		chart.text(max(0, min(x, chart.w-width(label(t)))), y, label(t), dim)
	}
	return p.part(0, need, p.w, p.h-need)
}

// overTime draws the round trips of the farthest hop that answers.
func (v *Path) overTime(p pane, now time.Duration, narrow bool) {
	if p.h < 6 || len(v.far) < 2 {
		return
	}
	in := p.box("The farthest hop over time, ms", "now "+ms(v.far[len(v.far)-1].v), narrow)
	hi := 1.0
	for _, q := range v.far {
		hi = max(hi, q.v)
	}
	a := linear(hi)
	in.scaleOf(a).curve(v.far, v.far[0].at, max(now, v.far[0].at+time.Second), a, accent, true)
}

func bar(p pane, y int, f *path.Figures, a axis, st style) {
	if f == nil || f.Received == 0 {
		return
	}
	at := func(v float64) int { return int(math.Round(a.share(v) * float64(p.w-1))) }
	for x := at(f.BestMs); x <= at(f.RTTMs.P95); x++ {
		p.set(x, y, '━', st)
	}
	p.set(at(f.RTTMs.P50), y, '●', st)
}
