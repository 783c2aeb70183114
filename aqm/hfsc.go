package aqm

import (
	"errors"
	"fmt"

	"unbloat/unit"
)

// HFSCClass is one class of a hierarchical fair service curve.
type HFSCClass struct {
	Parent     int          // index of the parent, which must come earlier; −1 for the link
	RealTime   ServiceCurve // guaranteed whatever the others do; leaves only
	LinkShare  ServiceCurve // weight in sharing what is left; needed by inner classes
	UpperLimit ServiceCurve // bound on what link sharing may give
	Inner      Queue        // a leaf's queue; nil makes an inner class
}

// HFSCParams sets HFSC up.
type HFSCParams struct {
	Classes []HFSCClass
	Framing Framing
}

// hfscClass is a class at work. Class 0 is the link itself.
type hfscClass struct {
	HFSCClass
	ahead
	children []int

	deadline, eligible, virtual, limit curve

	served int64 // bytes by the real-time criterion
	total  int64 // bytes by both
	e, d   int64 // since when the head packet is due, and until when; leaves
	busy   bool  // a leaf with packets: its e and d are valid

	vt, vtAdjust        int64  // virtual time among its siblings
	period, ofPeriod    uint64 // busy periods of its own, and the parent's when it joined
	active              int    // busy children; for a leaf 1 while it takes part in link sharing
	childMinVT          int64  // virtual time of the child served last
	childOffset         int64  // virtual time at which an idle class's next period starts
	fit, mine, childFit int64  // when the limits let it send: all, its own, its children's
}

// HFSC gives each class a delay bound by its real-time curve and shares the
// rest by link-sharing curves, along a tree (Stoica, Zhang and Ng, SIGCOMM
// 1997; sch_hfsc.c). Packet.Class says which leaf, counted among the leaves in
// their order.
//
// It decides as Linux does, but looks at every class for each packet instead
// of keeping trees: homes have few classes.
type HFSC struct {
	classes []hfscClass
	leaves  []int
	framing Framing
}

// NewHFSC returns an empty HFSC, or an error that names the bad class.
func NewHFSC(p HFSCParams) (*HFSC, error) {
	if err := p.Framing.check(); err != nil {
		return nil, fmt.Errorf("hfsc: %w", err)
	}
	h := &HFSC{framing: p.Framing, classes: make([]hfscClass, len(p.Classes)+1)}
	for i, c := range p.Classes {
		if err := c.check(i, p.Classes); err != nil {
			return nil, fmt.Errorf("hfsc: class %d: %w", i, err)
		}
		k := hfscClass{HFSCClass: c, ahead: ahead{inner: c.Inner}}
		k.Parent++
		k.deadline, k.eligible = c.RealTime.start(), c.RealTime.start()
		k.virtual, k.limit = c.LinkShare.start(), c.UpperLimit.start()
		h.classes[i+1] = k
		up := &h.classes[k.Parent]
		up.children = append(up.children, i+1)
		if c.Inner != nil {
			h.leaves = append(h.leaves, i+1)
		}
	}
	if len(h.leaves) == 0 || len(h.leaves) > 256 {
		return nil, fmt.Errorf("hfsc: %d classes have a queue; 1 to 256 are possible", len(h.leaves))
	}
	for i := range h.classes[1:] {
		if c := &h.classes[i+1]; c.Inner == nil && len(c.children) == 0 {
			return nil, fmt.Errorf("hfsc: class %d has neither a queue nor children", i)
		}
	}
	return h, nil
}

// check reports what does not make sense about class i.
func (c HFSCClass) check(i int, all []HFSCClass) error {
	for _, s := range []ServiceCurve{c.RealTime, c.LinkShare, c.UpperLimit} {
		if s.First < 0 || s.First > 1e12 || s.Then < 0 || s.Then > 1e12 || s.For < 0 || int64(s.For) > maxTokens {
			return fmt.Errorf("curve %+v is not within 0 to 1e12 bit/s and a minute", s)
		}
		if s.set() && s.Then == 0 {
			return fmt.Errorf("curve %+v ends at rate 0: its class would stop for ever", s)
		}
	}
	switch {
	case c.Parent < -1 || c.Parent >= i:
		return fmt.Errorf("parent %d does not come before it", c.Parent)
	case c.Parent >= 0 && all[c.Parent].Inner != nil:
		return fmt.Errorf("parent %d is a leaf", c.Parent)
	case c.Inner == nil && (c.RealTime.set() || !c.LinkShare.set()):
		return errors.New("a class with children needs a link-sharing curve and no real-time curve")
	case !c.RealTime.set() && !c.LinkShare.set():
		return errors.New("a leaf needs a real-time or a link-sharing curve")
	case c.UpperLimit.set() && !c.LinkShare.set():
		return errors.New("an upper limit without a link-sharing curve has no effect")
	}
	return nil
}

// Enqueue implements Queue. A class that no leaf has goes to the last leaf.
func (h *HFSC) Enqueue(now unit.Instant, p Packet) {
	i := h.leaves[min(int(p.Class), len(h.leaves)-1)]
	c := &h.classes[i]
	c.inner.Enqueue(now, p)
	if c.busy {
		return
	}
	head, ok := c.peek(now)
	if !ok {
		return
	}
	c.busy = true
	if c.RealTime.set() {
		c.deadline.lower(c.RealTime, int64(now), c.served)
		c.eligible = c.deadline
		if c.RealTime.First <= c.RealTime.Then { // convex: due at the later slope at once
			c.eligible.dx, c.eligible.dy = 0, 0
		}
		h.due(c, head, true)
	}
	if c.LinkShare.set() {
		h.join(i, int64(now))
	}
}

// due recomputes when the head packet must be served, and, unless only link
// sharing moved it there, from when on it may be.
func (h *HFSC) due(c *hfscClass, head Packet, both bool) {
	if both {
		c.e = c.eligible.when(c.served)
	}
	c.d = c.deadline.when(c.served + int64(h.framing.Wire(head.Size)))
}

// Dequeue implements Queue: the eligible leaf with the earliest deadline, else
// the leaf that link sharing finds.
func (h *HFSC) Dequeue(now unit.Instant) (Packet, bool) {
	i, realTime := -1, true
	for _, j := range h.leaves {
		c := &h.classes[j]
		if c.busy && c.RealTime.set() && c.e <= int64(now) && (i < 0 || c.d < h.classes[i].d) {
			i = j
		}
	}
	if i < 0 {
		if i, realTime = h.share(int64(now)), false; i < 0 {
			return Packet{}, false
		}
	}
	c := &h.classes[i]
	p := c.take()
	wire := int64(h.framing.Wire(p.Size))
	if realTime {
		c.served += wire
	}
	head, more := c.peek(now)
	c.busy = more
	h.account(i, wire, !more)
	if more && c.RealTime.set() {
		h.due(c, head, realTime)
	}
	return p, true
}

// share descends from the link to the leaf whose virtual time is least, among
// classes that fit their limits. It returns −1 if none does.
func (h *HFSC) share(now int64) int {
	i := 0
	for len(h.classes[i].children) > 0 {
		parent := &h.classes[i]
		best := -1
		for _, j := range parent.children {
			c := &h.classes[j]
			if c.active > 0 && c.fit <= now && (best < 0 || c.vt < h.classes[best].vt) {
				best = j
			}
		}
		if best < 0 {
			return -1
		}
		parent.childMinVT = max(parent.childMinVT, h.classes[best].vt)
		i = best
	}
	return i
}

// Next implements Queue: when the first head packet becomes eligible, or the
// limits let link sharing go on.
func (h *HFSC) Next(now unit.Instant) (unit.Instant, bool) {
	next, some := far, false
	for _, i := range h.leaves {
		c := &h.classes[i]
		some = some || c.busy
		if c.busy && c.RealTime.set() {
			next = min(next, c.e)
		}
	}
	if link := &h.classes[0]; link.active > 0 {
		next = min(next, link.childFit)
	}
	return max(now, unit.Instant(next)), some
}

// Len implements Queue.
func (h *HFSC) Len() int {
	n := 0
	for _, i := range h.leaves {
		n += h.classes[i].Len()
	}
	return n
}

// Stats implements Queue: the sum of the leaves'.
func (h *HFSC) Stats() Stats {
	var sum Stats
	for _, i := range h.leaves {
		sum = sum.plus(h.classes[i].Stats())
	}
	return sum
}

// ClassStats returns the counters of one leaf's queue.
func (h *HFSC) ClassStats(leaf int) Stats { return h.classes[h.leaves[leaf]].Stats() }

var _ Queue = (*HFSC)(nil)
