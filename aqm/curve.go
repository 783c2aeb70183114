package aqm

import (
	"math/bits"
	"time"

	"unbloat/unit"
)

// ServiceCurve is what a class of HFSC is due: First for a while after it
// becomes busy, Then afterwards. With First above Then a class gets low delay
// without a high rate; a plain rate is Then alone. The zero value is "none".
type ServiceCurve struct {
	First unit.Rate     // m1
	For   time.Duration // d
	Then  unit.Rate     // m2
}

// set says that there is a curve.
func (s ServiceCurve) set() bool { return s.Then > 0 || s.First > 0 && s.For > 0 }

// far is a time or an amount that no simulation reaches.
const far = int64(1) << 60

// bytesIn returns the bytes that a rate carries in a time, rounded down.
func bytesIn(ns int64, r unit.Rate) int64 {
	high, low := bits.Mul64(uint64(ns), uint64(r))
	if high >= 8e9 {
		return far
	}
	q, _ := bits.Div64(high, low, 8e9)
	return int64(min(q, uint64(far)))
}

// timeFor returns the ns in which a rate carries some bytes, rounded up.
func timeFor(n int64, r unit.Rate) int64 {
	if n == 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(n), 8e9)
	if r <= 0 || high >= uint64(r) {
		return far
	}
	q, rest := bits.Div64(high, low, uint64(r))
	if rest > 0 {
		q++
	}
	if q > uint64(far) {
		return far
	}
	return int64(q)
}

// curve is a service curve at work: from (x, y) with slope m1 up to
// (x + dx, y + dy), then with slope m2. x is in ns, y in bytes.
type curve struct {
	x, y, dx, dy int64
	m1, m2       unit.Rate
}

// start returns s beginning at the origin.
func (s ServiceCurve) start() curve {
	return curve{dx: int64(s.For), dy: bytesIn(int64(s.For), s.First), m1: s.First, m2: s.Then}
}

// when returns the time at which the curve reaches y, rounded up.
func (c *curve) when(y int64) int64 {
	switch {
	case y <= c.y:
		return c.x
	case y <= c.y+c.dy:
		return min(c.x+timeFor(y-c.y, c.m1), far)
	}
	return min(c.x+c.dx+timeFor(y-c.y-c.dy, c.m2), far)
}

// at returns the bytes due at time x, rounded down.
func (c *curve) at(x int64) int64 {
	switch {
	case x <= c.x:
		return c.y
	case x <= c.x+c.dx:
		return c.y + bytesIn(x-c.x, c.m1)
	}
	return c.y + c.dy + bytesIn(x-c.x-c.dx, c.m2)
}

// lower makes c the minimum of itself and s begun at (x, y), as far as two
// pieces can express it (Stoica, Zhang and Ng, "A Hierarchical Fair Service
// Curve Algorithm", SIGCOMM 1997, section 5; sch_hfsc.c rtsc_min).
func (c *curve) lower(s ServiceCurve, x, y int64) {
	fresh := s.start()
	if s.First <= s.Then { // convex: the later start is the lower curve
		if c.at(x) < y {
			return
		}
		c.x, c.y = x, y
		return
	}
	y1 := c.at(x)
	if c.at(x+fresh.dx) >= y+fresh.dy { // c is above s all along
		c.x, c.y, c.dx, c.dy = x, y, fresh.dx, fresh.dy
		return
	}
	if y1 <= y { // c is below it all along
		return
	}
	// They cross where s's first slope has made up the distance.
	dx := timeFor(y1-y, s.First-s.Then)
	if over := c.x + c.dx - x; over > 0 {
		dx += over
	}
	c.x, c.y, c.dx, c.dy = x, y, dx, bytesIn(dx, s.First)
}
