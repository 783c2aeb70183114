package aqm

import (
	"math"
	"math/bits"

	"unbloat/unit"
)

// cobaltRoots is how many values of 1/√count COBALT caches.
const cobaltRoots = 16

// cobaltParams sets COBALT up for one tin. Times are in ns.
type cobaltParams struct {
	interval, target, mtuTime int64
	roots                     [cobaltRoots]uint32 // 1/√count, fractions of 2^32
}

// BLUE's steps, as fractions of 2^32 (sch_cake.c cake_set_rate).
const (
	blueUp   = 1 << 24 // 1/256 with each overflow
	blueDown = 1 << 20 // 1/4096 with each idle target
)

// cobaltState is what COBALT remembers of one queue. Beside CoDel it runs
// BLUE, which drops at random from flows that do not listen.
type cobaltState struct {
	dropNext  unit.Instant
	blueTimer unit.Instant // when pDrop last changed
	count     uint32
	root      uint32 // 1/√count, a fraction of 2^32; 0 until the first change of count
	pDrop     uint32 // BLUE's probability, a fraction of 2^32
	dropping  bool
}

// newCobaltParams derives COBALT's times: the target is at least 1.5 MTU
// times, the interval grows by as much and is at least two targets.
func newCobaltParams(target, interval, mtuTime int64) cobaltParams {
	p := cobaltParams{mtuTime: mtuTime}
	p.target = max(mtuTime*3/2, target)
	p.interval = max(interval+p.target-target, 2*p.target)
	// Four Newton steps for each count, from the one before it: exact to the
	// last bits where a single step would be far off (cobalt_cache_init).
	root := uint32(math.MaxUint32)
	p.roots[0] = root
	for count := uint32(1); count < cobaltRoots; count++ {
		for range 4 {
			root = newton32(root, count)
		}
		p.roots[count] = root
	}
	return p
}

// newton32 takes one Newton step from root towards 1/√count, both as fractions
// of 2^32, with the truncations of cobalt_newton_step in sch_cake.c.
func newton32(root, count uint32) uint32 {
	r := uint64(root)
	x := 3<<32 - uint64(count)*(r*r>>32)
	return uint32(x >> 2 * r >> 31)
}

// recount sets the count and its root.
func (c *cobaltState) recount(p *cobaltParams, count uint32) {
	c.count = count
	if count < cobaltRoots {
		c.root = p.roots[count]
	} else {
		c.root = newton32(c.root, count)
	}
}

// after returns the instant interval/√count after t.
func (c *cobaltState) after(p *cobaltParams, t unit.Instant) unit.Instant {
	high, low := bits.Mul64(uint64(p.interval), uint64(c.root))
	return t + unit.Instant(high<<32|low>>32)
}

// full notes that the queue overflowed: BLUE drops more, and CoDel starts at once.
func (c *cobaltState) full(p *cobaltParams, now unit.Instant) {
	if int64(now-c.blueTimer) > p.target {
		if c.pDrop > math.MaxUint32-blueUp {
			c.pDrop = math.MaxUint32
		} else {
			c.pDrop += blueUp
		}
		c.blueTimer = now
	}
	c.dropping = true
	c.dropNext = now
	c.count = max(c.count, 1)
}

// empty notes that the queue was served and found empty.
func (c *cobaltState) empty(p *cobaltParams, now unit.Instant) {
	if c.pDrop > 0 && int64(now-c.blueTimer) > p.target {
		c.pDrop -= min(c.pDrop, blueDown)
		c.blueTimer = now
	}
	c.dropping = false
	if c.count > 0 && now >= c.dropNext {
		c.recount(p, c.count-1)
		c.dropNext = c.after(p, c.dropNext)
	}
}

// atRest says that nothing of the queue's past matters any more.
func (c *cobaltState) atRest(now unit.Instant) bool {
	return c.pDrop == 0 && c.count == 0 && now >= c.dropNext
}

// shouldDrop decides on the packet in node n, just taken off its queue, and
// marks it where that will do. bulk is the number of bulk flows whose MTU
// times are conceded to it (ingress mode), random is uniform.
func (c *cobaltState) shouldDrop(p *cobaltParams, s *store, n uint32, now unit.Instant, bulk int64, random uint32) bool {
	sojourn := int64(now - s.nodes[n].Enqueued)
	ahead := now - c.dropNext
	over := sojourn > p.target && sojourn > p.mtuTime*bulk*2 && sojourn > p.mtuTime*4
	due := c.count > 0 && ahead >= 0
	switch {
	case over && !c.dropping:
		// In a fresh queue root is still 0, so that the first signal comes
		// with the next packet and not an interval later. Linux does so too.
		c.dropping = true
		c.dropNext = c.after(p, now)
		c.count = max(c.count, 1)
	case over:
		c.count = max(c.count, 1)
	default:
		c.dropping = false
	}
	drop := false
	if due && c.dropping {
		drop = !s.mark(n)
		if c.count < math.MaxUint32 {
			c.recount(p, c.count+1)
		}
		c.dropNext = c.after(p, c.dropNext)
		ahead = now - c.dropNext
	} else {
		for due { // forget one count for each gap that passed in peace
			c.recount(p, c.count-1)
			c.dropNext = c.after(p, c.dropNext)
			ahead = now - c.dropNext
			due = c.count > 0 && ahead >= 0
		}
	}
	if c.pDrop > 0 && random < c.pDrop {
		drop = true
	}
	if c.count == 0 {
		c.dropNext = now + unit.Instant(p.interval) // how long the queue counts as active
	} else if ahead > 0 && !drop {
		c.dropNext = now
	}
	return drop
}
