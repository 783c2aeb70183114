package report

import (
	"math"
	"strconv"
)

// scale maps values lo…hi onto coordinates a…b, linearly or logarithmically.
// Values beyond its ends are drawn at the ends.
type scale struct {
	lo, hi, a, b float64
	step         float64 // between ticks, of a linear one that has any
	log          bool
}

// tick is a place on an axis.
type tick struct {
	at    float64 // coordinate
	label string
	major bool
}

// leastMs is the smallest latency that a logarithmic axis can show.
const leastMs = 0.01

// logScale returns a logarithmic scale from a to b that covers lo…hi with a
// little room at both ends, and at least a factor of three.
func logScale(lo, hi, a, b float64) scale {
	lo, hi = clamp(lo, leastMs, 1e9), clamp(hi, leastMs, 1e9)
	if lo > hi {
		lo, hi = hi, lo
	}
	room := math.Pow(max(hi/lo, 2), 0.05)
	lo, hi = lo/room, hi*room
	if wide := math.Sqrt(3 * lo / hi); wide > 1 {
		lo, hi = lo/wide, hi*wide
	}
	return scale{lo: lo, hi: hi, a: a, b: b, log: true}
}

// linearScale returns a scale from a to b that covers 0…hi and ends on a round number.
func linearScale(hi, a, b float64) scale {
	hi = clamp(hi, 1e-3, 1e9)
	step := roundStep(hi / 3)
	return scale{lo: 0, hi: roundUp(hi, step), a: a, b: b, step: step}
}

// step125 returns the nearest 1, 2 or 5 times a power of ten at or below v, or at or above it.
func step125(v float64, above bool) float64 {
	p := math.Pow(10, math.Floor(math.Log10(v)))
	steps := []float64{1, 2, 5, 10}
	if above {
		for _, s := range steps {
			if s*p >= v*(1-1e-3) {
				return s * p
			}
		}
		return 10 * p
	}
	out := p
	for _, s := range steps {
		if s*p <= v*(1+1e-9) {
			out = s * p
		}
	}
	return out
}

func roundStep(v float64) float64 { return step125(v, true) }

func roundUp(v, step float64) float64 { return math.Ceil(v/step*(1-1e-9)) * step }

// at returns the coordinate of v.
func (s scale) at(v float64) float64 {
	if math.IsNaN(v) {
		v = s.lo
	}
	v = clamp(v, s.lo, s.hi)
	var share float64
	if s.log {
		share = math.Log(v/s.lo) / math.Log(s.hi/s.lo)
	} else if s.hi > s.lo {
		share = (v - s.lo) / (s.hi - s.lo)
	}
	return s.a + share*(s.b-s.a)
}

// ticks returns the axis's marks. Labels are left out where they would stand
// closer than gap to the one before.
func (s scale) ticks(gap float64) []tick {
	var out []tick
	if !s.log {
		for i := 0.0; s.step > 0 && i*s.step <= s.hi; i++ {
			out = append(out, tick{s.at(i * s.step), plain(i * s.step), true})
		}
		return out
	}
	last := math.Inf(-1)
	keep := func(at float64) bool {
		if math.Abs(at-last) < gap {
			return false
		}
		last = at
		return true
	}
	decades := math.Log10(s.hi / s.lo)
	steps := []float64{1, 2, 5}
	if decades < 0.8 {
		steps = []float64{1, 1.5, 2, 3, 4, 5, 7}
	}
	for p := math.Pow(10, math.Floor(math.Log10(s.lo)+1e-9)); p <= s.hi; p *= 10 {
		for _, m := range steps {
			v := m * p
			if v < s.lo || v > s.hi {
				continue
			}
			t := tick{at: s.at(v), major: m == 1}
			if (m == 1 || decades < 3.2) && keep(t.at) {
				t.label = plain(v)
			}
			out = append(out, t)
		}
	}
	return out
}

// plain prints an axis number without trailing zeros.
func plain(v float64) string { return strconv.FormatFloat(roundTo(v, 6), 'f', -1, 64) }

// roundTo rounds v to n decimals, so that 3 × 0.1 prints as 0.3.
func roundTo(v float64, n int) float64 {
	p := math.Pow(10, float64(n))
	return math.Round(v*p) / p
}

func clamp(v, lo, hi float64) float64 {
	if math.IsNaN(v) {
		return lo
	}
	return min(hi, max(lo, v))
}
