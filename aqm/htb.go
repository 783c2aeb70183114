package aqm

import (
	"errors"
	"fmt"
	"math"

	"unbloat/unit"
)

// HTBClass is one class of a hierarchical token bucket.
type HTBClass struct {
	Parent int       // index of the parent, which must come earlier; −1 for the root
	Rate   unit.Rate // what it may always send
	Ceil   unit.Rate // what it may send with rate borrowed from its parent; 0 means Rate
	// Burst and CeilBurst are the bytes that may follow each other at once
	// at either rate; 0 means one packet of MTU.
	Burst, CeilBurst unit.Size
	Priority         int       // 0 (first) to 7, among leaves that want to send; leaves only
	Quantum          unit.Size // bytes a round among leaves of equal priority; 0 means MTU
	Inner            Queue     // a leaf's queue; nil makes an inner class
}

// HTBParams sets HTB up.
type HTBParams struct {
	Classes []HTBClass
	Framing Framing
	MTU     unit.Size // the longest packet
}

// htbClass is a class at work. Tokens are ns of its rate, as of filled.
type htbClass struct {
	parent               int
	level                int // 0 for leaves, one more than the highest child
	rate, ceil           unit.Rate
	buffer, ceilBuffer   int64
	tokens, ceilTokens   int64
	filled               unit.Instant
	priority             int
	quantum              int32
	deficit              [htbLevels]int32 // of the leaf, for each level it borrows from
	inner                Queue
	lends, borrows, sent uint64 // packets
}

// htbLevels is the depth of the tree at most (sch_htb.c TC_HTB_MAXDEPTH).
const htbLevels = 8

// HTB shares a rate among classes: each may send its own rate always, and what
// others leave up to its ceiling, by priority and then round robin (sch_htb.c).
// Packet.Class says which leaf, counted among the leaves in their order.
//
// It decides as Linux does, but looks at every leaf for each packet instead of
// keeping trees of events: homes have few classes.
type HTB struct {
	classes []htbClass
	leaves  []int
	framing Framing
	turn    [htbLevels][8]int // leaf that is served first, by level and priority
}

// NewHTB returns an HTB with full buckets, or an error that names the bad class.
func NewHTB(p HTBParams) (*HTB, error) {
	if err := p.Framing.check(); err != nil {
		return nil, fmt.Errorf("htb: %w", err)
	}
	if p.MTU < 64 || p.MTU > maxPacketSize {
		return nil, fmt.Errorf("htb: MTU of %d bytes; 64 to %d are possible", p.MTU, maxPacketSize)
	}
	h := &HTB{framing: p.Framing, classes: make([]htbClass, len(p.Classes))}
	for i, c := range p.Classes {
		if err := h.add(i, c, p.MTU); err != nil {
			return nil, fmt.Errorf("htb: class %d: %w", i, err)
		}
	}
	for i := len(h.classes) - 1; i >= 0; i-- {
		c := &h.classes[i]
		if c.inner != nil {
			h.leaves = append([]int{i}, h.leaves...)
		}
		if c.parent >= 0 {
			up := &h.classes[c.parent]
			up.level = max(up.level, c.level+1)
		}
	}
	switch {
	case len(h.leaves) == 0:
		return nil, errors.New("htb: no class has a queue")
	case len(h.leaves) > 256:
		return nil, errors.New("htb: more than 256 leaves")
	}
	for i := range h.classes {
		if c := &h.classes[i]; c.inner == nil && c.level == 0 {
			return nil, fmt.Errorf("htb: class %d has neither a queue nor children", i)
		} else if c.level >= htbLevels {
			return nil, fmt.Errorf("htb: deeper than %d levels", htbLevels)
		}
	}
	return h, nil
}

// add checks and prepares class i.
func (h *HTB) add(i int, c HTBClass, mtu unit.Size) error {
	if c.Ceil == 0 {
		c.Ceil = c.Rate
	}
	if c.Burst == 0 {
		c.Burst = mtu
	}
	if c.CeilBurst == 0 {
		c.CeilBurst = mtu
	}
	if c.Quantum == 0 {
		c.Quantum = mtu
	}
	switch {
	case c.Parent < -1 || c.Parent >= i:
		return fmt.Errorf("parent %d does not come before it", c.Parent)
	case c.Parent >= 0 && h.classes[c.Parent].inner != nil:
		return fmt.Errorf("parent %d is a leaf", c.Parent)
	case c.Rate < 512 || c.Rate > 1e12 || c.Ceil < c.Rate || c.Ceil > 1e12:
		return fmt.Errorf("rate of %d and ceil of %d bit/s; 512 ≤ rate ≤ ceil ≤ 1e12 is possible", int64(c.Rate), int64(c.Ceil))
	case c.Burst < 0 || c.CeilBurst < 0:
		return errors.New("negative burst")
	case c.Priority < 0 || c.Priority > 7:
		return fmt.Errorf("priority %d is not within 0 to 7", c.Priority)
	case c.Quantum < 1 || c.Quantum > 1<<20:
		return fmt.Errorf("quantum of %d bytes", c.Quantum)
	}
	k := htbClass{
		parent: c.Parent, rate: c.Rate, ceil: c.Ceil,
		priority: c.Priority, quantum: int32(c.Quantum), inner: c.Inner,
	}
	k.buffer = tokensOf(c.Rate, c.Burst)
	k.ceilBuffer = tokensOf(c.Ceil, c.CeilBurst)
	k.tokens, k.ceilTokens = k.buffer, k.ceilBuffer
	h.classes[i] = k
	return nil
}

// Enqueue implements Queue. A class that no leaf has goes to the last leaf.
func (h *HTB) Enqueue(now unit.Instant, p Packet) {
	leaf := min(int(p.Class), len(h.leaves)-1)
	h.classes[h.leaves[leaf]].inner.Enqueue(now, p)
}

// Dequeue implements Queue: leaves that need not borrow first, then those that
// borrow from the nearest ancestor; among these by priority, then by turns.
func (h *HTB) Dequeue(now unit.Instant) (Packet, bool) {
	if len(h.leaves) == 1 { // the usual case: nobody to take turns with
		i := h.leaves[0]
		level := h.lender(now, i)
		if level < 0 {
			return Packet{}, false
		}
		return h.serve(now, level, h.classes[i].priority)
	}
	for level := range htbLevels {
		for priority := range 8 {
			if p, ok := h.serve(now, level, priority); ok {
				return p, true
			}
		}
	}
	return Packet{}, false
}

// serve tries the leaves of a priority that get their rate from an ancestor of
// that level, one after the other.
func (h *HTB) serve(now unit.Instant, level, priority int) (Packet, bool) {
	turn := &h.turn[level][priority]
	for tried := 0; tried < len(h.leaves); {
		i := h.leaves[*turn%len(h.leaves)]
		c := &h.classes[i]
		if c.priority != priority || c.inner.Len() == 0 || h.lender(now, i) != level {
			*turn = (*turn + 1) % len(h.leaves)
			tried++
			continue
		}
		p, ok := c.inner.Dequeue(now)
		if !ok {
			*turn = (*turn + 1) % len(h.leaves)
			tried++
			continue
		}
		wire := h.framing.Wire(p.Size)
		c.deficit[level] -= int32(wire)
		if c.deficit[level] < 0 {
			c.deficit[level] += c.quantum
			*turn = (*turn + 1) % len(h.leaves)
		}
		h.charge(now, i, level, wire)
		return p, true
	}
	return Packet{}, false
}

// lender returns the level of the class whose rate leaf i may use now: its own
// (0), or that of the nearest ancestor with tokens, if no class on the way is
// at its ceiling. It returns −1 if there is none.
func (h *HTB) lender(now unit.Instant, i int) int {
	for i >= 0 {
		c := &h.classes[i]
		passed := min(int64(now-c.filled), maxTokens)
		if c.ceilTokens+passed < 0 {
			return -1
		}
		if c.tokens+passed >= 0 {
			return c.level
		}
		i = c.parent
	}
	return -1
}

// charge takes a packet's tokens from the lending class and all above it; the
// borrowing ones below it keep their own, and pay for their ceiling only.
func (h *HTB) charge(now unit.Instant, i, level int, wire unit.Size) {
	h.classes[i].sent++
	for i >= 0 {
		c := &h.classes[i]
		passed := min(int64(now-c.filled), maxTokens)
		c.tokens += passed
		if c.level >= level {
			c.tokens = spend(c.tokens, c.buffer, tokensOf(c.rate, wire))
			if c.level == level {
				c.lends++
			}
		} else {
			c.borrows++
			c.tokens = min(c.tokens, c.buffer)
		}
		c.ceilTokens = spend(c.ceilTokens+passed, c.ceilBuffer, tokensOf(c.ceil, wire))
		c.filled = now
		i = c.parent
	}
}

// spend takes cost from a bucket, which holds at most full and owes at most maxTokens.
func spend(tokens, full, cost int64) int64 {
	return max(min(tokens, full)-cost, 1-maxTokens)
}

// Next implements Queue: the earliest instant at which some leaf finds a lender.
func (h *HTB) Next(now unit.Instant) (unit.Instant, bool) {
	best := unit.Instant(math.MaxInt64)
	found := false
	for _, i := range h.leaves {
		at, ok := h.classes[i].inner.Next(now)
		if !ok {
			continue
		}
		found = true
		borrow := unit.Instant(math.MaxInt64)
		for i >= 0 {
			c := &h.classes[i]
			at = max(at, c.filled-unit.Instant(c.ceilTokens))
			borrow = min(borrow, max(at, c.filled-unit.Instant(c.tokens)))
			i = c.parent
		}
		best = min(best, borrow)
	}
	return best, found
}

// Len implements Queue.
func (h *HTB) Len() int {
	n := 0
	for _, i := range h.leaves {
		n += h.classes[i].inner.Len()
	}
	return n
}

// Stats implements Queue: the sum of the leaves'.
func (h *HTB) Stats() Stats {
	var sum Stats
	for _, i := range h.leaves {
		sum = sum.plus(h.classes[i].inner.Stats())
	}
	return sum
}

// ClassStats returns the counters of one leaf's queue, and how many packets it
// sent on borrowed rate.
func (h *HTB) ClassStats(leaf int) (Stats, uint64) {
	c := &h.classes[h.leaves[leaf]]
	return c.inner.Stats(), c.borrows
}

var _ Queue = (*HTB)(nil)
