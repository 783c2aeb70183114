package aqm

import "unbloat/unit"

// ahead lets a shaper see the next packet of a queue before it may go. Seeing
// it takes it off the queue, as Linux's qdisc_peek_dequeued does; it still
// counts as queued.
type ahead struct {
	inner Queue
	held  Packet
	holds bool
}

// peek returns the next packet.
func (a *ahead) peek(now unit.Instant) (Packet, bool) {
	if !a.holds {
		a.held, a.holds = a.inner.Dequeue(now)
	}
	return a.held, a.holds
}

// take returns the packet that peek found.
func (a *ahead) take() Packet {
	a.holds = false
	return a.held
}

// Len returns how many packets are queued.
func (a *ahead) Len() int {
	if a.holds {
		return a.inner.Len() + 1
	}
	return a.inner.Len()
}

// Stats returns the counters.
func (a *ahead) Stats() Stats {
	s := a.inner.Stats()
	if a.holds {
		s.Sent--
		s.SentBytes -= a.held.Size
		s.Packets++
		s.Backlog += a.held.Size
	}
	return s
}
