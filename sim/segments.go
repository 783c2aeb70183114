package sim

import "unbloat/unit"

// segment flags.
const (
	segSacked  = 1 << iota
	segLost    // taken for lost; cleared when it is delivered after all
	segResent  // a retransmission of it is under way
	segTwice   // has been retransmitted
	segLimited // sent while the application, not the window, was the limit
)

// segment is what the sender knows of one that is not acknowledged yet.
type segment struct {
	sent  unit.Instant // last transmission
	flags uint8
}

// at returns a segment between una and nxt.
func (c *Conn) at(i int32) *segment { return &c.segments[i&int32(len(c.segments)-1)] }

// grow makes room for more segments than are out.
func (c *Conn) grow() {
	size := 2 * len(c.segments)
	if len(c.segments) == fewSegments {
		if cap(c.spacious) < size {
			c.spacious = make([]segment, size)
		}
		move(c.spacious[:size], c.segments, c.una, c.nxt)
		c.segments = c.spacious[:size]
	} else {
		c.segments = refit(c.segments, size, c.una, c.nxt)
		c.spacious = c.segments
	}
	if c.model != nil {
		c.model.flights = refit(c.model.flights, size, c.una, c.nxt)
	}
}

// shrink makes the ring half as large, so that a window that has become small
// goes round in little memory.
func (c *Conn) shrink() {
	size := len(c.segments) / 2
	if size == fewSegments {
		move(c.inConn[:], c.segments, c.una, c.nxt)
		c.segments = c.inConn[:]
	} else {
		c.segments = refit(c.segments, size, c.una, c.nxt)
	}
	if c.model != nil {
		c.model.flights = refit(c.model.flights, size, c.una, c.nxt)
	}
}

// roomy says whether a ring of segments is worth shrinking.
func (c *Conn) roomy() bool {
	return len(c.segments) > fewSegments && int(c.nxt-c.una) <= len(c.segments)/4
}

// refit gives a ring another length, a power of two that its entries fit into,
// in the same memory if there is enough: an entry's new place is its old one, or
// one that no other entry has.
func refit[T any](ring []T, size int, from, to int32) []T {
	other := ring[:min(size, cap(ring))]
	if len(other) < size {
		other = make([]T, size)
	}
	move(other, ring, from, to)
	return other
}

// move puts the entries of a ring where they belong in one of another length.
func move[T any](to, from []T, first, end int32) {
	for i := first; i < end; i++ {
		to[int(i)&(len(to)-1)] = from[int(i)&(len(from)-1)]
	}
}
