package simlab

import (
	"math"
	"time"

	"unbloat/unit"
)

// Constants of Google's congestion control (draft-ietf-rmcat-gcc-02), and of the
// trend line by which libwebrtc replaced the draft's Kalman filter.
const (
	gccGroup      = 5 * time.Millisecond // packets sent within it are one group
	gccTrend      = 20                   // groups of the trend line
	gccSmooth     = 0.9
	gccGain       = 4
	gccThreshold  = 12.5 // ms, at the beginning
	gccLeast      = 6    // ms
	gccMost       = 600  // ms
	gccUp         = 0.0087
	gccDown       = 0.039
	gccOver       = 10 * time.Millisecond // of overuse, before it counts
	gccBack       = 0.85                  // of the rate that arrives, on overuse
	gccGrowth     = 1.08                  // a second
	gccLossFew    = 0.02
	gccLossMany   = 0.1
	gccLossGrowth = 1.05
	gccWindow     = 500 * time.Millisecond // over which the arriving rate is measured
)

// An ack is what a receiver reports of one packet.
type ack struct {
	sent, arrived unit.Instant
	size          unit.Size
}

// gcc is the congestion control of a call's sender: it takes what the receiver
// reports, and holds a rate.
type gcc struct {
	least, most unit.Rate

	delay, loss float64 // the two rates, in bit/s; the lower one holds

	first, sent, arrived unit.Instant // of the group before
	begun                bool
	group                ack // being gathered: sent is its first packet's, arrived its last's
	line                 [][2]float64
	sum, smooth          float64 // ms
	trend                float64
	threshold            float64 // ms
	looked               unit.Instant
	over                 unit.Instant // since when it is too much; 0: it is not
	seen                 []ack        // of the last half second
	held                 unit.Instant // the last change
	knee                 float64      // the rate at which it was too much lately
	lostAt               unit.Instant
}

// newGCC begins at the most, which libwebrtc's probes find in a call's first second.
func newGCC(least, most unit.Rate) *gcc {
	return &gcc{least: least, most: most, delay: float64(most), loss: float64(most), threshold: gccThreshold}
}

// rate is what the call may send.
func (g *gcc) rate() unit.Rate {
	return min(max(unit.Rate(min(g.delay, g.loss)), g.least), g.most)
}

// report takes what arrived, in order, and how many packets did not.
func (g *gcc) report(now unit.Instant, acks []ack, lost int) {
	g.lossy(now, len(acks), lost)
	usage := 0
	for _, a := range acks {
		g.seen = append(g.seen, a)
		if g.begun && a.sent.Sub(g.group.sent) <= gccGroup {
			g.group.arrived = max(g.group.arrived, a.arrived)
			continue
		}
		if g.begun {
			usage = g.groupDone()
		}
		g.begun, g.group = true, a
	}
	if len(acks) == 0 {
		return
	}
	newest := acks[len(acks)-1].arrived
	var bytes unit.Size
	kept := g.seen[:0]
	for _, a := range g.seen {
		if newest.Sub(a.arrived) < gccWindow {
			kept, bytes = append(kept, a), bytes+a.size
		}
	}
	g.seen = kept
	arriving := float64(bytes) * 8 / gccWindow.Seconds()
	dt := min(now.Sub(g.held), time.Second).Seconds()
	switch {
	case usage > 0:
		g.delay, g.knee = max(gccBack*arriving, float64(g.least)), arriving
	case usage < 0:
		// The queue drains: hold, until it has.
	case g.knee > 0 && math.Abs(arriving-g.knee) < 0.15*g.knee:
		g.delay += 0.5 * 1200 * 8 * dt / 0.1 // half a packet in a response time
	default:
		g.knee = 0
		g.delay = min(g.delay*math.Pow(gccGrowth, dt), max(1.5*arriving, g.delay))
	}
	g.delay, g.held = min(g.delay, float64(g.most)), now
}

// lossy follows the share that is lost.
func (g *gcc) lossy(now unit.Instant, came, lost int) {
	if came+lost == 0 || now.Sub(g.lostAt) < 200*time.Millisecond {
		return
	}
	p := float64(lost) / float64(came+lost)
	switch {
	case p > gccLossMany:
		g.loss *= 1 - 0.5*p
	case p < gccLossFew:
		g.loss = min(g.loss*gccLossGrowth, float64(g.most))
	default:
		return
	}
	g.loss, g.lostAt = max(g.loss, float64(g.least)), now
}

// groupDone adds a whole group to the trend line, and says whether the line is
// used too much (1), less than before (-1) or neither.
func (g *gcc) groupDone() int {
	a := g.group
	if g.first == 0 {
		g.first, g.sent, g.arrived = a.arrived, a.sent, a.arrived
		return 0
	}
	g.sum += unit.Ms(a.arrived.Sub(g.arrived) - a.sent.Sub(g.sent))
	g.sent, g.arrived = a.sent, a.arrived
	g.smooth = gccSmooth*g.smooth + (1-gccSmooth)*g.sum
	g.line = append(g.line, [2]float64{unit.Ms(a.arrived.Sub(g.first)), g.smooth})
	if len(g.line) > gccTrend {
		g.line = g.line[1:]
	}
	before := g.trend
	if len(g.line) == gccTrend {
		g.trend = slope(g.line) * gccTrend * gccGain
	}
	usage := 0
	switch {
	case g.trend > g.threshold:
		if g.over == 0 {
			g.over = a.arrived
		}
		if a.arrived.Sub(g.over) > gccOver && g.trend >= before {
			usage = 1
		}
	case g.trend < -g.threshold:
		usage, g.over = -1, 0
	default:
		g.over = 0
	}
	if d := math.Abs(g.trend) - g.threshold; d < 15 {
		k := gccDown
		if d > 0 {
			k = gccUp
		}
		dt := min(unit.Ms(a.arrived.Sub(g.looked)), 100)
		g.threshold = min(max(g.threshold+k*d*dt, gccLeast), gccMost)
	}
	g.looked = a.arrived
	return usage
}

// slope is that of the line of least squares.
func slope(points [][2]float64) float64 {
	var x, y float64
	for _, p := range points {
		x, y = x+p[0], y+p[1]
	}
	n := float64(len(points))
	x, y = x/n, y/n
	var above, below float64
	for _, p := range points {
		above += (p[0] - x) * (p[1] - y)
		below += (p[0] - x) * (p[0] - x)
	}
	if below == 0 {
		return 0
	}
	return above / below
}
