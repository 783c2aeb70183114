package framing

import "math"

// A fit is one framing with the rate that makes it lie closest to the trains.
type fit struct {
	cells    bool
	kink     float64 // smaller packets occupy the line as long as those of this size; 0: none do
	overhead float64
	perByte  float64 // seconds, of the line's bytes
	squares  float64 // of what is left, seconds²
}

// time returns the seconds that a packet of n bytes of IP takes.
func (f fit) time(n float64) float64 {
	if f.cells {
		return f.perByte * cellBytes * math.Ceil((n+f.overhead)/cellData)
	}
	return f.perByte * (max(n, f.kink) + f.overhead)
}

// sums are what the fits need of trains with m packets in s seconds, by size n.
type sums struct {
	*table // of which they are
	n      []float64
	mm, ms []float64 // Σm², Σms
	ss     float64   // Σs², of all
	trains float64
}

func (t *table) sums(rows []row) sums {
	s := sums{table: t, n: t.sizes, mm: make([]float64, len(t.sizes)), ms: make([]float64, len(t.sizes)), trains: float64(len(rows))}
	for _, r := range rows {
		s.mm[r.size] += r.packets * r.packets
		s.ms[r.size] += r.packets * r.seconds
		s.ss += r.seconds * r.seconds
	}
	return s
}

// better reports whether what f leaves is less than what g leaves, by more than chance.
func (s sums) better(f, g fit) bool {
	floor := s.ss * 1e-14 // of what a float64 can tell
	return s.trains*math.Log(max(g.squares, floor)/max(f.squares, floor)) > strong
}

// leastFlat is how many sizes, at least, a flat part has that is believed.
const leastFlat = 4

// best returns the fit that explains the trains best, the simplest first: a line, a
// line with a flat part, cells.
func (s sums) best() fit {
	line := s.line(0)
	bent := line
	for _, kink := range s.n[min(leastFlat, len(s.n)):] {
		if f := s.line(kink); f.squares < bent.squares && kink <= s.n[0]+cellData {
			bent = f
		}
	}
	if s.better(bent, line) {
		line = bent
	}
	cells := fit{squares: math.Inf(1)}
	for overhead := range s.cells {
		if f := s.steps(overhead); f.squares < cells.squares {
			cells = f
		}
	}
	if s.better(cells, line) {
		return cells
	}
	return line
}

// line fits s = m·perByte·(max(n, kink) + overhead).
func (s sums) line(kink float64) fit {
	var a, ax, axx, b, bx float64
	for i, n := range s.n {
		x := max(n, kink)
		a, ax, axx = a+s.mm[i], ax+s.mm[i]*x, axx+s.mm[i]*x*x
		b, bx = b+s.ms[i], bx+s.ms[i]*x
	}
	det := a*axx - ax*ax
	slope, at0 := (a*bx-ax*b)/det, (axx*b-ax*bx)/det
	if !(slope > 0) {
		return fit{kink: kink, perByte: b / max(ax, 1), squares: math.Inf(1)}
	}
	return fit{kink: kink, overhead: at0 / slope, perByte: slope, squares: s.ss - slope*bx - at0*b}
}

// steps fits s = m·perByte·53·⌈(n + overhead)/48⌉.
func (s sums) steps(overhead int) fit {
	var wb, wwa float64
	for i, w := range s.cells[overhead] {
		wb, wwa = wb+w*s.ms[i], wwa+w*w*s.mm[i]
	}
	return fit{cells: true, overhead: float64(overhead), perByte: wb / wwa, squares: s.ss - wb*wb/wwa}
}

// fits reports whether no size lies beside the fit by more than its own noise, or
// by more than could shift the answer.
func (s sums) fits(f fit) bool {
	within := s.ss // squares around each size's own mean
	sizes := 0.0
	for i := range s.n {
		if s.mm[i] > 0 {
			within -= s.ms[i] * s.ms[i] / s.mm[i]
			sizes++
		}
	}
	deviation := math.Sqrt(max(within, 0) / max(s.trains-sizes, 1))
	for i, n := range s.n {
		if s.mm[i] == 0 { // nothing that counts came of it
			continue
		}
		want := f.time(n)
		may := f.perByte*0.5 + 0.002*want
		if f.cells {
			may = f.perByte * cellBytes * offCell
		}
		if math.Abs(s.ms[i]/s.mm[i]-want) > max(may, 4.5*deviation/math.Sqrt(s.mm[i])) {
			return false
		}
	}
	return sizes >= fewSizes
}
