package terminal

import (
	"math"
	"slices"
	"strconv"
	"time"
)

const brailleBase = 0x2800

// point is a value at a time since the view began.
type point struct {
	at time.Duration
	v  float64
}

// axis maps values onto rows of dots, 0 at the bottom.
type axis struct {
	lo, hi float64
	log    bool
}

// linear returns an axis from 0 to a round number not below hi.
func linear(hi float64) axis {
	return axis{hi: roundUp(max(hi, 1e-9))}
}

// logarithmic returns an axis over whole steps of 1, 2 and 5 around lo and hi.
func logarithmic(lo, hi float64) axis {
	lo, hi = max(lo, 0.1), max(hi, 0.2)
	a := axis{lo: roundUp(lo), hi: roundUp(hi), log: true}
	for a.lo > lo {
		a.lo = before(a.lo)
	}
	if a.hi/a.lo < 10 {
		a.hi = a.lo * 10
	}
	return a
}

// roundUp returns the least 1, 2 or 5 times a power of ten that is not below v.
func roundUp(v float64) float64 {
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, s := range []float64{1, 2, 5} {
		if s*p >= v*(1-1e-9) {
			return s * p
		}
	}
	return 10 * p
}

// before returns the round number below a round number.
func before(v float64) float64 {
	if p := math.Pow(10, math.Round(math.Log10(v))); math.Abs(v-p) < p/1e6 {
		return v / 2
	} else if p := math.Pow(10, math.Floor(math.Log10(v))); v < 3*p {
		return p
	}
	return v / 2.5
}

// share returns where v lies between the axis's ends, 0–1.
func (a axis) share(v float64) float64 {
	v = min(max(v, a.lo), a.hi)
	if a.log {
		return math.Log(v/a.lo) / math.Log(a.hi/a.lo)
	}
	return (v - a.lo) / (a.hi - a.lo)
}

// ticks returns the values to label: the ends, and what lies between if there
// is room.
func (a axis) ticks(rows int) []float64 {
	if !a.log {
		if rows < 5 {
			return []float64{0, a.hi}
		}
		return []float64{0, a.hi / 2, a.hi}
	}
	out := []float64{a.lo}
	for v := a.hi; v > a.lo*1.001; v = before(v) {
		near := false
		for _, o := range out {
			near = near || math.Abs(a.share(o)-a.share(v))*float64(rows-1) < 1.5
		}
		if !near {
			out = append(out, v)
		}
	}
	return out
}

// label prints a value of an axis.
func label(v float64) string {
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// columnsOf gathers points into n columns over [from, to): the lowest and the
// highest of each; NaN where there is none.
func columnsOf(points []point, n int, from, to time.Duration) (lo, hi []float64) {
	lo, hi = make([]float64, n), make([]float64, n)
	for i := range lo {
		lo[i], hi[i] = math.NaN(), math.NaN()
	}
	for _, p := range points {
		i := int(int64(p.at-from) * int64(n) / max(int64(to-from), 1))
		if i < 0 || i >= n {
			continue
		}
		if math.IsNaN(lo[i]) {
			lo[i], hi[i] = p.v, p.v
		}
		lo[i], hi[i] = min(lo[i], p.v), max(hi[i], p.v)
	}
	return lo, hi
}

// curve draws points as a line in braille, two by four dots a cell: a column
// of dots spans its lowest to its highest value, and reaches the one before.
// Where points are far apart by nature (sparse), lines join them; else a column
// without any is a gap.
func (p pane) curve(points []point, from, to time.Duration, a axis, st style, sparse bool) {
	lo, hi := columnsOf(points, 2*p.w, from, to)
	if sparse {
		join(lo, hi)
	}
	dots := make([]uint8, p.w*p.h)
	rows := 4*p.h - 1
	last := -1
	for x := range lo {
		if math.IsNaN(lo[x]) {
			continue
		}
		y0, y1 := int(math.Round(a.share(lo[x])*float64(rows))), int(math.Round(a.share(hi[x])*float64(rows)))
		if last >= 0 {
			y0, y1 = min(y0, last), max(y1, last)
		}
		last = int(math.Round(a.share((lo[x]+hi[x])/2) * float64(rows)))
		for y := y0; y <= y1; y++ {
			row := rows - y
			dots[row/4*p.w+x/2] |= [4][2]uint8{{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}[row%4][x%2]
		}
	}
	for i, d := range dots {
		if d != 0 {
			p.set(i%p.w, i/p.w, brailleBase+rune(d), st)
		}
	}
}

// join fills the gaps between columns with straight lines.
func join(lo, hi []float64) {
	last := -1
	for x := range lo {
		if math.IsNaN(lo[x]) {
			continue
		}
		for i := last + 1; last >= 0 && i < x; i++ {
			share := float64(i-last) / float64(x-last)
			lo[i] = hi[last] + share*(lo[x]-hi[last])
			hi[i] = lo[i]
		}
		last = x
	}
}

// filled draws points as an area from the bottom, in eighths of a cell: the
// highest of each column.
func (p pane) filled(points []point, from, to time.Duration, a axis, st style) {
	_, hi := columnsOf(points, p.w, from, to)
	last, lastAt := math.NaN(), -1
	for x, v := range hi {
		if math.IsNaN(v) {
			later := slices.ContainsFunc(hi[x:], func(w float64) bool { return !math.IsNaN(w) })
			if lastAt < 0 || x-lastAt > 3 || !later {
				continue
			}
			v = last // between two values
		} else {
			last, lastAt = v, x
		}
		eighths := int(math.Ceil(a.share(v)*float64(8*p.h) - 1e-9))
		if v > 0 {
			eighths = max(eighths, 1)
		}
		for y := p.h - 1; y >= 0 && eighths > 0; y-- {
			p.set(x, y, '▁'+rune(min(eighths, 8)-1), st)
			eighths -= 8
		}
	}
}

// scaleOf draws the axis at the left and returns where the curve goes.
func (p pane) scaleOf(a axis) pane {
	const room = 6
	for y := range p.h {
		p.set(room-1, y, '│', dim)
	}
	for _, v := range a.ticks(p.h) {
		y := p.h - 1 - int(math.Round(a.share(v)*float64(p.h-1)))
		p.right(room-1, y, label(v), dim)
		p.set(room-1, y, '┤', dim)
	}
	return p.part(room, 0, p.w-room, p.h)
}
