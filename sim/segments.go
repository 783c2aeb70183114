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
	c.segments = refit(c.segments, size, c.una, c.nxt)
	if c.model != nil {
		c.model.flights = refit(c.model.flights, size, c.una, c.nxt)
	}
}

// refit moves the entries of a ring to a longer one; both lengths are powers of two.
func refit[T any](ring []T, size int, from, to int32) []T {
	longer := make([]T, size)
	for i := from; i < to; i++ {
		longer[int(i)&(size-1)] = ring[int(i)&(len(ring)-1)]
	}
	return longer
}
