package terminal

import (
	"fmt"
	"time"

	"unbloat/internal/cure/tune"
	"unbloat/internal/measure/verdict"
	"unbloat/unit"
)

// Sizes below which a screen is drawn narrow: no frames, fewer columns.
const (
	wideFrom  = 76
	tallFrom  = 22
	tableWide = 54
)

// Draw returns the screen at a time since the view began.
func (l *Line) Draw(now time.Duration, o Options) string {
	c := newCanvas(max(o.Width, 1), max(o.Height, 1))
	p := c.all()
	narrow := p.w < wideFrom || p.h < tallFrom
	l.header(p, now, narrow)
	below := p.h - 3 // the header, the phases and the keys have a line each
	rows := 6        // of the lower part
	if l.tuning != nil || l.most {
		rows = 4 + max(2, l.trials())
	}
	if !narrow {
		rows = max(rows+2, below/4)
	} else {
		rows += 3 // the rates, and the title
	}
	if below-rows < 3 { // better no curve than a crushed one
		rows = below
	}
	l.latency(p.part(0, 2, p.w, below-rows), now, narrow)
	low := p.part(0, 2+below-rows, p.w, rows)
	if narrow {
		l.figures(low.part(0, 0, low.w, low.h-2), true)
		l.rates(low.part(0, low.h-2, low.w, 2), now, true)
	} else {
		l.figures(low.part(0, 0, tableWide, low.h), false)
		l.rates(low.part(tableWide, 0, low.w-tableWide, low.h), now, false)
	}
	footer(p, l.ending)
	return c.render(o)
}

// footer says how to end it.
func footer(p pane, ending string) {
	if ending != "" {
		p.text(1, p.h-1, cut(ending, p.w-1), accent)
		return
	}
	p.text(1, p.h-1, cut("q or Ctrl-C ends it", p.w-1), dim)
}

// header writes what runs, how long still, and the phases.
func (l *Line) header(p pane, now time.Duration, narrow bool) {
	left := "ends soon"
	if d := l.left(now); d > 500*time.Millisecond {
		about := "about "
		if l.most {
			about = "at most "
		}
		left = about + seconds(d) + " left"
	}
	at := p.right(p.w-1, 0, left, plain)
	x := p.text(1, 0, l.title, bold)
	p.text(x, 0, cut(" against "+l.server, at-x-1), dim)
	cur := l.current()
	if cur == nil {
		p.text(1, 1, cut("connecting", p.w-1), plain)
		return
	}
	if l.tuning != nil {
		s := map[tune.Doing]string{tune.AsItIs: "measuring the line as it is", tune.Trying: "trying", tune.Checking: "checking in every phase", tune.Deciding: "deciding"}[l.tuning.Doing]
		if r := l.tuning.Rates; r.Down > 0 {
			s += fmt.Sprintf(" %s down, %s up", r.Down.Short(), r.Up.Short())
		}
		x = p.text(1, 1, cut(s, p.w-2), accent)
		if rest := "· " + cur.words(); x+2+width(rest) < p.w {
			p.text(x+1, 1, rest, plain)
		}
		return
	}
	if narrow {
		p.text(1, 1, cut("▶ "+cur.words(), p.w-1), accent)
		return
	}
	x = 1
	for _, name := range l.expected {
		switch done := l.newest(name); {
		case name == cur.name:
			x = p.text(x, 1, "▶ "+cur.words(), accent)
		case done != nil && done.began > cur.began-l.length: // of an earlier run, too
			x = p.text(x, 1, "✓ "+name, good)
		default:
			x = p.text(x, 1, "· "+name, dim)
		}
		x += 3
	}
}

// left returns how long it still takes. Of a test, the queues' emptying between
// its phases is not known beforehand, and not in it.
func (l *Line) left(now time.Duration) time.Duration {
	if l.most {
		return max(0, l.length-now)
	}
	left := l.length
	for _, p := range l.phases {
		if p != l.current() {
			left -= time.Duration(p.event.Duration)
		} else {
			left -= time.Duration(min(p.event.Elapsed, p.event.Duration))
		}
	}
	return max(0, left)
}

// words say how far the phase is.
func (p *phase) words() string {
	e := p.event
	if e.Draining {
		return p.name + ": waiting for the queue to empty"
	}
	return fmt.Sprintf("%s %.1f of %.0f s", p.name, time.Duration(min(e.Elapsed, e.Duration)).Seconds(), time.Duration(e.Duration).Seconds())
}

func seconds(d time.Duration) string {
	s := int(d.Round(time.Second) / time.Second)
	if s >= 100 {
		return fmt.Sprintf("%d:%02d min", s/60, s%60)
	}
	return fmt.Sprintf("%d s", s)
}

// latency draws every answer over time, the idle median across, and where
// the phases began.
func (l *Line) latency(p pane, now time.Duration, narrow bool) {
	if p.h < 3 {
		return
	}
	note := ""
	if l.rtt > 0 {
		note = "now " + ms(unit.Ms(l.rtt))
		if v, ok := l.over(unit.Ms(l.rtt)); ok && !narrow {
			note += fmt.Sprintf(", %s over idle", signed(v))
		}
	}
	title := "Round trip, ms"
	if l.log && !narrow {
		title += " (logarithmic)"
	}
	in := p.box(title, note, narrow)
	names := in.part(0, in.h-1, in.w, 1)
	in = in.part(0, 0, in.w, in.h-1)
	lo, hi := 1e9, 1.0
	for _, q := range l.rtts {
		lo, hi = min(lo, q.v), max(hi, q.v)
	}
	a := linear(hi)
	if l.log {
		a = logarithmic(min(lo, hi), hi)
	}
	in = in.scaleOf(a)
	from, to := time.Duration(0), now+l.left(now)
	at := func(d time.Duration) int { return int(int64(d-from) * int64(in.w) / max(int64(to-from), 1)) }
	if i := l.idle(); i != nil {
		y := in.h - 1 - int(a.share(i.quantiles().P50)*float64(in.h-1)+0.5)
		for x := range in.w {
			in.set(x, y, '╌', dim)
		}
	}
	free := 0
	for _, ph := range l.phases {
		x := at(ph.began)
		if ph != l.phases[0] {
			for y := range in.h {
				in.set(x, y, '┊', dim)
			}
		}
		if x+in.x-names.x >= free {
			free = names.text(x+in.x-names.x, 0, ph.short(narrow), dim) + 1
		}
	}
	in.curve(l.rtts, from, to, a, accent, false)
}

// short is the phase's name under the curve.
func (p *phase) short(narrow bool) string {
	switch {
	case narrow && p.name == verdict.PhaseDownload:
		return "down"
	case narrow && p.name == verdict.PhaseUpload:
		return "up"
	}
	return p.name
}

// figures draws the table of the phases, or of the tuning's steps.
func (l *Line) figures(p pane, narrow bool) {
	if l.tuning != nil {
		l.steps(p, narrow)
		return
	}
	in := p.box("Phases", "", narrow)
	names := l.expected
	if len(l.phases) == 0 && len(names) == 0 {
		return
	}
	cols := columnsFor(narrow)
	in.row(0, dim, "", "p50 ms", "p95 ms", "+p95", "↓ Mbit", "↑ Mbit", cols)
	for i, name := range names {
		if ph := l.newest(name); ph != nil {
			l.phaseRow(in, i+1, ph, cols)
		} else {
			in.row(i+1, dim, "  "+name, "–", "–", "–", "–", "–", cols)
		}
	}
}

// phaseRow writes the figures of a phase so far.
func (l *Line) phaseRow(in pane, y int, ph *phase, cols [6]int) {
	mark, st := "✓ ", plain
	if ph == l.current() {
		mark, st = "▶ ", bold
	}
	p50, p95, plus := "–", "–", "–"
	if len(ph.answers) > 0 {
		q := ph.quantiles()
		p50, p95 = number(q.P50), number(q.P95)
		if v, ok := l.over(q.P95); ok && ph.name != verdict.PhaseIdle {
			plus = signed(v)
		}
	}
	in.row(y, st, mark+ph.name, p50, p95, plus, mbit(ph.down()), mbit(ph.up()), cols)
}

// columnsFor returns where the table's columns end.
func columnsFor(narrow bool) [6]int {
	if narrow {
		return [6]int{11, 18, 25, 25, 32, 39} // no column for what is added
	}
	return [6]int{11, 19, 27, 35, 43, 50}
}

// row writes the cells of a table's line.
func (p pane) row(y int, st style, name, p50, p95, plus, down, up string, cols [6]int) {
	p.text(0, y, cut(name, cols[0]), st)
	last := cols[0]
	for i, s := range []string{p50, p95, plus, down, up} {
		if end := cols[i+1]; end > last {
			p.right(end, y, cut(s, end-last), st)
			last = end
		}
	}
}

// rates draws throughput both ways.
func (l *Line) rates(p pane, now time.Duration, narrow bool) {
	in := p
	if !narrow {
		in = p.box("Throughput, Mbit/s", "", false)
	}
	half := in.h / 2
	from, to := time.Duration(0), now+l.left(now)
	for i, d := range []struct {
		sign   string
		points []point
		st     style
	}{{"↓", l.down, downward}, {"↑", l.up, upward}} {
		part := in.part(0, i*half, in.w, half)
		high, newest := 0.0, 0.0
		for _, q := range d.points {
			high = max(high, q.v)
		}
		if n := len(d.points); n > 0 && d.points[n-1].at >= now-time.Second {
			newest = d.points[n-1].v
		}
		words := fmt.Sprintf("%s %s", d.sign, mbit(unit.Rate(newest*1e6)))
		part.text(0, 0, words, d.st)
		if half < 2 {
			part.part(9, 0, part.w-9, 1).filled(d.points, from, to, linear(high), d.st)
			continue
		}
		if high > 0 && part.w > 24 {
			part.right(part.w, 0, "most "+mbit(unit.Rate(high*1e6)), dim)
		}
		part.part(0, 1, part.w, part.h-1).filled(d.points, from, to, linear(high), d.st)
	}
}

// ms, number, signed and mbit print figures in few columns.
func ms(v float64) string { return number(v) + " ms" }

func number(v float64) string {
	if v >= 99.95 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1f", v)
}

func signed(v float64) string {
	if v < 0 {
		return "−" + number(-v)
	}
	return "+" + number(v)
}

func mbit(r unit.Rate) string {
	switch v := r.Mbit(); {
	case r <= 0:
		return "–"
	case v < 9.995:
		return fmt.Sprintf("%.2f", v)
	case v < 99.95:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.0f", v)
	}
}
