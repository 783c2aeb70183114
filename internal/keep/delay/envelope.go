package delay

import (
	"time"

	"unbloat/unit"
)

// An Envelope turns apparent one-way times into how much longer than the
// quickest a packet took. An apparent time is the true one plus an offset of two
// clocks that run at different speeds, so it drifts. The Envelope fits a line
// below all points of the last minutes: of all such lines the one that is closest
// to them. Its slope is the clocks' skew, and what lies above it is queueing.
//
// A queue that stands for longer than the window is taken for the line's own
// delay. The zero Envelope is ready. It is for one goroutine.
type Envelope struct {
	points [envelopePoints]point // the least of each bin, oldest first
	n      int
	hull   [envelopePoints]int
	origin point // all figures are relative to it
	slope  float64
	base   float64
}

type point struct{ t, y float64 } // seconds

const (
	// EnvelopeWindow is how far back an Envelope looks.
	EnvelopeWindow = 5 * time.Minute
	envelopePoints = 60
	envelopeBin    = float64(EnvelopeWindow/time.Second) / envelopePoints
	// mostSkew is the difference of speed of two clocks that work: twice the
	// 250 ppm of a poor crystal that warms up.
	mostSkew = 500e-6
	// leastSpan is the time below which a slope is noise, in seconds.
	leastSpan = 60
)

// Add takes in an apparent one-way time, measured at an instant, and returns how
// far it lies above the line; never below zero. Instants must not go back by more
// than packets overtake each other.
func (e *Envelope) Add(at unit.Instant, apparent time.Duration) time.Duration {
	p := point{at.Seconds(), apparent.Seconds()}
	if e.n == 0 {
		e.origin = p
	}
	p.t -= e.origin.t
	p.y -= e.origin.y
	e.insert(p)
	e.fit()
	above := p.y - (e.base + e.slope*p.t)
	return max(time.Duration(above*1e9), 0)
}

// Reset forgets everything, as after a clock was set or the way has changed.
func (e *Envelope) Reset() { *e = Envelope{} }

// Skew returns the slope of the line: how many seconds the apparent time grows
// in a second.
func (e *Envelope) Skew() float64 { return e.slope }

// insert puts a point into its bin and drops what is too old.
func (e *Envelope) insert(p point) {
	if e.n > 0 {
		last := &e.points[e.n-1]
		if int(p.t/envelopeBin) <= int(last.t/envelopeBin) {
			if p.y < last.y {
				*last = p
			}
			return
		}
	}
	old := 0
	for old < e.n && (p.t-e.points[old].t > EnvelopeWindow.Seconds() || e.n-old == envelopePoints) {
		old++
	}
	copy(e.points[:], e.points[old:e.n])
	e.n -= old
	e.points[e.n] = p
	e.n++
}

// fit finds the line. The sum of the distances of all points above a line below
// them is least for the edge of their lower hull that spans the mean of their
// times: the sum depends on the line's height at that mean alone.
func (e *Envelope) fit() {
	hull := e.hull[:0]
	var mean float64
	for i := range e.n {
		p := e.points[i]
		mean += p.t / float64(e.n)
		for len(hull) > 1 && !turnsUp(e.points[hull[len(hull)-2]], e.points[hull[len(hull)-1]], p) {
			hull = hull[:len(hull)-1]
		}
		hull = append(hull, i)
	}
	e.slope = 0
	if e.points[e.n-1].t-e.points[0].t >= leastSpan {
		for i := 1; i < len(hull); i++ {
			a, b := e.points[hull[i-1]], e.points[hull[i]]
			if b.t >= mean {
				e.slope = min(max((b.y-a.y)/(b.t-a.t), -mostSkew), mostSkew)
				break
			}
		}
	}
	e.base = e.points[0].y - e.slope*e.points[0].t
	for _, p := range e.points[1:e.n] {
		e.base = min(e.base, p.y-e.slope*p.t)
	}
}

// turnsUp says that the way a, b, c bends upward at b.
func turnsUp(a, b, c point) bool {
	return (b.t-a.t)*(c.y-a.y)-(b.y-a.y)*(c.t-a.t) > 0
}
