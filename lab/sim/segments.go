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
	sent   unit.Instant // last transmission
	flags  uint8
	flight flight // BBR's
}

// at returns a segment between una and nxt.
func (c *Conn) at(i int32) *segment { return &c.segments[i&int32(len(c.segments)-1)] }

// grow makes room for more segments than are out.
func (c *Conn) grow() {
	longer := make([]segment, 2*len(c.segments))
	for i := c.una; i < c.nxt; i++ {
		longer[int(i)&(len(longer)-1)] = *c.at(i)
	}
	c.segments = longer
}
