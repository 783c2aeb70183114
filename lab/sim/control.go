package sim

import "unbloat/unit"

// control is a congestion control: what makes the window grow and shrink. BBR
// is one that sets the window and the pace itself (see bbr.go).
type control interface {
	// start is called when the connection begins to send.
	start(c *Conn, now unit.Instant)
	// sample is called for every acknowledgement, before the state changes.
	sample(c *Conn, a *ack)
	// grow enlarges the window after a.delivered segments arrived in open state.
	grow(c *Conn, a *ack)
	// reduce returns the window to go down to after a loss or a mark.
	reduce(c *Conn, now unit.Instant) int32
	recovery
}

// recovery is called when a loss is over, or ended in a timeout.
type recovery interface {
	// timeout is called after a retransmission timeout.
	timeout(c *Conn, now unit.Instant)
	// recovered is called when all that was lost has arrived.
	recovered(c *Conn)
}

// slowStart grows the window by a segment for each one delivered, up to
// ssthresh, and returns how many of the delivered are left over.
func (c *Conn) slowStart(delivered int32) int32 {
	to := min(c.cwnd+delivered, c.ssthresh)
	delivered -= to - c.cwnd
	c.cwnd = to
	return delivered
}

// addSegments is additive increase: one segment for each w delivered; count
// carries the fraction (tcp_cong_avoid_ai).
func (c *Conn) addSegments(count *int32, w, delivered int32) {
	if *count >= w {
		*count = 0
		c.cwnd++
	}
	*count += delivered
	if *count >= w {
		c.cwnd += *count / w
		*count %= w
	}
}

// reno is RFC 5681.
type reno struct{ count int32 }

func (r *reno) start(*Conn, unit.Instant) {}
func (r *reno) sample(*Conn, *ack)        {}

func (r *reno) grow(c *Conn, a *ack) {
	left := a.delivered
	if c.cwnd < c.ssthresh {
		left = c.slowStart(left)
	}
	if left > 0 {
		c.addSegments(&r.count, c.cwnd, left)
	}
}

func (r *reno) reduce(c *Conn, _ unit.Instant) int32 { return max(c.cwnd/2, 2) }
func (r *reno) timeout(*Conn, unit.Instant)          { r.count = 0 }
func (r *reno) recovered(*Conn)                      {}
