package report

import (
	"math"
	"slices"
	"sort"

	"unbloat/internal/measure/verdict"
)

// probes is the latency series of one phase, made safe to draw.
type probes struct {
	t        []float64 // seconds since the test began
	rtt      []float64 // ms; NaN: lost
	from, to int       // the samples that the phase's figures count; the edges are outside
	agree    bool      // those samples were found: figures and series are the same measurement
}

// probesOf returns the phase's probes, or none when it carries no series.
func probesOf(p *verdict.Phase) probes {
	if p == nil || p.Series == nil {
		return probes{}
	}
	n := min(len(p.Series.TS), len(p.Series.RTTMs))
	out := probes{t: make([]float64, 0, n), rtt: make([]float64, 0, n)}
	for i := range n {
		t := p.Series.TS[i]
		if math.IsNaN(t) || math.IsInf(t, 0) {
			continue
		}
		v := math.NaN()
		if r := p.Series.RTTMs[i]; r != nil && !math.IsInf(*r, 0) && *r >= 0 {
			v = *r
		}
		out.t, out.rtt = append(out.t, t), append(out.rtt, v)
	}
	out.findCounted(p.Latency)
	return out
}

// findCounted finds the run of probes that the figures were made from: a Phase
// cuts its edges before it counts, and its series does not say where. It is the
// run of Sent probes with the same number of answers and the same fastest,
// slowest and mean answer; if there is none, all probes are taken.
func (s *probes) findCounted(l verdict.Latency) {
	n := len(s.rtt)
	s.from, s.to = 0, n
	if l.Sent <= 0 || l.Sent > n {
		return
	}
	got, sum := make([]int, n+1), make([]float64, n+1)
	for i, v := range s.rtt {
		got[i+1], sum[i+1] = got[i], sum[i]
		if !math.IsNaN(v) {
			got[i+1]++
			sum[i+1] += v
		}
	}
	best, tries := math.Inf(1), 0
	for i := 0; i+l.Sent <= n && tries < maxTries; i++ {
		j := i + l.Sent
		if got[j]-got[i] != l.Received {
			continue
		}
		off := 0.0
		if l.Received > 0 {
			off = math.Abs((sum[j]-sum[i])/float64(l.Received) - l.RTTMs.Mean)
		}
		if off >= best || !near(off, 0, l.RTTMs.Mean) {
			continue
		}
		tries++
		if s.spans(i, j, l.RTTMs) {
			best, s.from, s.to, s.agree = off, i, j, true
		}
	}
}

// maxTries bounds the search for the counted probes in a file that is built to
// make it long.
const maxTries = 2000

// spans reports whether probes i…j have the fastest and the slowest answer of q.
func (s *probes) spans(i, j int, q verdict.Quantiles) bool {
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, v := range s.rtt[i:j] {
		if !math.IsNaN(v) {
			lo, hi = min(lo, v), max(hi, v)
		}
	}
	if hi < lo {
		return true
	}
	return near(lo, q.Min, q.Min) && near(hi, q.Max, q.Max)
}

// near allows for a histogram's rounding: 1 %, or 0.05 ms.
func near(a, b, of float64) bool { return math.Abs(a-b) <= max(0.05, 0.01*math.Abs(of)) }

// answers returns the counted round trips in rising order.
func (s probes) answers() []float64 {
	var out []float64
	for _, v := range s.rtt[s.from:s.to] {
		if !math.IsNaN(v) {
			out = append(out, v)
		}
	}
	sort.Float64s(out)
	return out
}

// column is what one pixel column of a chart over time holds.
type column struct {
	x           float64
	lo, mid, hi float64 // fastest, median and slowest answer; NaN if none
	sent, lost  int
}

// columns gathers probes into columns of width w of the x that at gives them,
// so that no slow answer disappears however many share a pixel.
func (s probes) columns(w float64, at func(t float64) float64) []column {
	var out []column
	var values []float64
	cell := math.Inf(-1)
	flush := func() {
		if len(out) == 0 {
			return
		}
		c := &out[len(out)-1]
		c.lo, c.mid, c.hi = math.NaN(), math.NaN(), math.NaN()
		if len(values) > 0 {
			slices.Sort(values)
			c.lo, c.mid, c.hi = values[0], values[(len(values)-1)/2], values[len(values)-1]
		}
		values = values[:0]
	}
	for i, t := range s.t {
		if x := math.Floor(at(t) / w); x != cell {
			flush()
			cell = x
			out = append(out, column{x: (x + 0.5) * w})
		}
		c := &out[len(out)-1]
		c.sent++
		if math.IsNaN(s.rtt[i]) {
			c.lost++
		} else {
			values = append(values, s.rtt[i])
		}
	}
	flush()
	return out
}

// slot is a phase's place on the time axis.
type slot struct {
	name    string
	at, dur float64 // seconds
}

// clock is a time axis on which the same phases of several tests coincide: each
// phase has one slot, as long as the longest of them, in the order they ran.
type clock struct {
	slots []slot
	total float64
}

func newClock(runs []run) clock {
	var c clock
	for _, name := range append(verdict.PhaseNames(), verdict.PhaseLoaded) {
		dur := 0.0
		for _, r := range runs {
			if p := phase(r.test, name); p != nil && p.Series != nil {
				dur = max(dur, clamp(p.Series.EndS-p.Series.StartS, 0.01, 1e6))
			}
		}
		if dur > 0 {
			c.slots = append(c.slots, slot{name, c.total, dur})
			c.total += dur
		}
	}
	return c
}

// place returns where on the axis a phase that began at start shows its time t.
func (s slot) place(start, t float64) float64 { return s.at + clamp(t-start, 0, s.dur) }

// phase returns the phase of that name, nil if it was not measured.
func phase(t *verdict.Test, name string) *verdict.Phase {
	if t == nil {
		return nil
	}
	for _, p := range t.Phases() {
		if p.Name == name {
			return p.Phase
		}
	}
	return nil
}
