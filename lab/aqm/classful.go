package aqm

import (
	"errors"
	"fmt"
	"math"

	"unbloat/unit"
)

// ClassfulParams sets Classful up.
type ClassfulParams struct {
	Classes []ClassParams    // a parent before those below it; the first has none
	Framing Framing          // of all
	Of      func(Packet) int // the class of a packet, which has a queue
}

// ClassParams is one class.
type ClassParams struct {
	Parent        int       // its place in the list; -1: none
	Rate, Ceil    unit.Rate // what it is sure of, and has at most
	Burst, CBurst unit.Size // bytes on the wire that may follow each other at once, at Rate and at Ceil
	Prio          int       // lower goes first; of classes with a queue all differ
	Queue         Queue     // nil: it has classes below it
}

// Classful is Linux's HTB with classes (sch_htb.c): a class sends what its rate
// allows, those of the lowest Prio first, and above that what a class above it has
// left, up to its ceiling. As there, what leaves a class for its own rate is served
// before anything that borrows, and a class whose bucket is not in debt may go into
// debt by one packet.
//
// Each class with a queue has a Prio of its own, so the kernel's round robin between
// those of one Prio does not come up here.
type Classful struct {
	params  ClassfulParams
	classes []htbClass
	order   []int // classes with a queue, first to last by Prio
}

type htbClass struct {
	ClassParams
	level           int   // 0 with a queue; as in the kernel more, the closer to the root
	tokens, ctokens int64 // ns, at filled
	buffer, cbuffer int64
	filled          unit.Instant
}

// htbDepth is how deep classes may stand (TC_HTB_MAXDEPTH).
const htbDepth = 8

// NewClassful returns an empty one, or an error that names the bad parameter.
func NewClassful(p ClassfulParams) (*Classful, error) {
	if p.Of == nil || len(p.Classes) == 0 {
		return nil, errors.New("classful: needs classes, and what tells the class of a packet")
	}
	if err := p.Framing.check(); err != nil {
		return nil, fmt.Errorf("classful: %w", err)
	}
	h := &Classful{params: p}
	for i, c := range p.Classes {
		bad := func(format string, args ...any) error {
			return fmt.Errorf("classful: class %d: "+format, append([]any{i}, args...)...)
		}
		switch {
		case c.Parent >= i || c.Parent < -1 || (c.Parent < 0) != (i == 0):
			return nil, bad("parent %d; one before it, and none for the first alone", c.Parent)
		case c.Parent >= 0 && p.Classes[c.Parent].Queue != nil:
			return nil, bad("its parent has a queue")
		case c.Rate < 512 || c.Ceil < c.Rate || c.Ceil > 1e12:
			return nil, bad("rate of %d and ceiling of %d bit/s; 512 to 1e12 are possible, and no ceiling below the rate", int64(c.Rate), int64(c.Ceil))
		case c.Burst < 1 || c.CBurst < 1:
			return nil, bad("needs a burst of at least one packet")
		}
		x := htbClass{ClassParams: c, buffer: tokensOf(c.Rate, c.Burst), cbuffer: tokensOf(c.Ceil, c.CBurst)}
		x.tokens, x.ctokens = x.buffer, x.cbuffer
		if c.Queue == nil {
			x.level = htbDepth - 1
			if c.Parent >= 0 {
				x.level = h.classes[c.Parent].level - 1
			}
			if x.level < 1 {
				return nil, bad("stands too deep")
			}
		}
		h.classes = append(h.classes, x)
		if c.Queue == nil {
			continue
		}
		at := len(h.order)
		for at > 0 && h.classes[h.order[at-1]].Prio >= c.Prio {
			if at--; h.classes[h.order[at]].Prio == c.Prio {
				return nil, bad("has the prio %d of another", c.Prio)
			}
		}
		h.order = append(h.order, 0)
		copy(h.order[at+1:], h.order[at:])
		h.order[at] = i
	}
	if len(h.order) == 0 {
		return nil, errors.New("classful: no class has a queue")
	}
	return h, nil
}

// Enqueue implements Queue.
func (h *Classful) Enqueue(now unit.Instant, p Packet) {
	h.classes[h.params.Of(p)].Queue.Enqueue(now, p)
}

// at returns a class's buckets now.
func (c *htbClass) at(now unit.Instant) (tokens, ctokens int64) {
	gone := min(int64(now-c.filled), maxTokens)
	return min(c.tokens+gone, c.buffer), min(c.ctokens+gone, c.cbuffer)
}

// lender returns the class for whose rate a class may send now: itself, or one
// above it; -1: none.
func (h *Classful) lender(now unit.Instant, i int) int {
	for ; i >= 0; i = h.classes[i].Parent {
		tokens, ctokens := h.classes[i].at(now)
		if ctokens < 0 {
			return -1
		}
		if tokens >= 0 {
			return i
		}
	}
	return -1
}

// Dequeue implements Queue.
func (h *Classful) Dequeue(now unit.Instant) (Packet, bool) {
	var empty uint64 // classes whose queue has dropped all that it had
	for {
		best, from := -1, -1
		for at, i := range h.order {
			if empty&(1<<at) != 0 || h.classes[i].Queue.Len() == 0 {
				continue
			}
			l := h.lender(now, i)
			if l >= 0 && (best < 0 || h.classes[l].level < h.classes[from].level) {
				best, from = at, l
			}
		}
		if best < 0 {
			return Packet{}, false
		}
		if p, ok := h.classes[h.order[best]].Queue.Dequeue(now); ok {
			h.charge(now, h.order[best], h.classes[from].level, p)
			return p, true
		}
		empty |= 1 << best
	}
}

// charge takes a packet from the buckets of its class and those above it. Below the
// one that lent only the ceiling's is charged.
func (h *Classful) charge(now unit.Instant, i, level int, p Packet) {
	wire := h.params.Framing.Wire(p.Size)
	for ; i >= 0; i = h.classes[i].Parent {
		c := &h.classes[i]
		tokens, ctokens := c.at(now)
		if c.level >= level {
			tokens = max(tokens-tokensOf(c.Rate, wire), 1-maxTokens)
		}
		c.tokens, c.ctokens, c.filled = tokens, max(ctokens-tokensOf(c.Ceil, wire), 1-maxTokens), now
	}
}

// ready returns when a class may send at the earliest, if nothing else does.
func (h *Classful) ready(now unit.Instant, i int) unit.Instant {
	if i < 0 {
		return math.MaxInt64
	}
	c := &h.classes[i]
	tokens, ctokens := c.at(now)
	own := now + unit.Instant(max(-tokens, 0))
	return max(now+unit.Instant(max(-ctokens, 0)), min(own, h.ready(now, c.Parent)))
}

// Next implements Queue.
func (h *Classful) Next(now unit.Instant) (unit.Instant, bool) {
	first, any := unit.Instant(math.MaxInt64), false
	for _, i := range h.order {
		if h.classes[i].Queue.Len() > 0 {
			first, any = min(first, h.ready(now, i)), true
		}
	}
	if !any {
		return 0, false
	}
	return first, true
}

// Len implements Queue.
func (h *Classful) Len() int { return h.Stats().Packets }

// Stats implements Queue.
func (h *Classful) Stats() Stats {
	var s Stats
	for _, i := range h.order {
		s = s.plus(h.classes[i].Queue.Stats())
	}
	return s
}

var _ Queue = (*Classful)(nil)
