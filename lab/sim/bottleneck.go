package sim

import (
	"unbloat/lab/aqm"
	"unbloat/unit"
)

// Bottleneck is the slowest link of the way in one direction, and the dumb
// queue in front of it: a modem, or the provider's end of the line.
type Bottleneck struct {
	// Rate 0 is an outage: nothing passes, and what comes waits or is dropped.
	Rate unit.Rate
	// Buffer is how many bytes, counted by Framing, may wait; a packet that
	// would exceed it is dropped.
	Buffer unit.Size
	// HeadDrop is how many packets may wait, and there is no Buffer: what comes is taken,
	// and what waits longest is dropped for it (Linux pfifo_head_drop). 0: see Buffer.
	HeadDrop int
	Framing  aqm.Framing
	// Burst is how many bytes may pass at once after the link was idle. The
	// lab's modem, Linux's token bucket filter, has 1600: a frame that finds
	// the link idle passes at once. 0 makes frames take their time, as on a
	// real link, where a frame has arrived when its last bit has.
	Burst unit.Size
}

// modem is a Bottleneck at work.
type modem struct {
	Bottleneck
	direction Direction
	source    int
	line      ring[uint32] // packets
	bytes     unit.Size
	tokens    int64        // ns of the rate, at filled
	filled    unit.Instant // for Burst 0: when the link becomes free
	full      int64        // tokens of a full bucket
	counts    LinkStats
}

// LinkStats counts what a Bottleneck did.
type LinkStats struct {
	Offered, Sent, Dropped                uint64
	OfferedBytes, SentBytes, DroppedBytes unit.Size // of frames, without framing
	Packets                               int       // in the queue now
	Backlog                               unit.Size // their bytes, by the framing
}

// configure takes new parameters; packets that wait stay.
func (m *modem) configure(b Bottleneck) {
	m.Bottleneck = b
	if b.Rate == 0 {
		m.full, m.tokens = 0, 0
		return
	}
	m.full = int64(b.Rate.Time(b.Burst))
	m.tokens = min(m.tokens, m.full)
}

// cost returns what a frame of that size occupies, and for how long.
func (m *modem) cost(size int32) (wire unit.Size, ns int64) {
	wire = m.Framing.Wire(unit.Size(size))
	ns = int64(m.Rate.Time(wire))
	if m.Burst > 0 {
		ns = min(ns, m.full) // what is longer than the bucket empties it
	}
	return wire, ns
}

// enqueue offers a packet to the bottleneck.
func (n *Network) enqueue(m *modem, id uint32) {
	size := n.packets.all[id].size
	wire, _ := m.cost(size)
	m.counts.Offered++
	m.counts.OfferedBytes += unit.Size(size)
	switch {
	case m.HeadDrop > 0:
		if m.line.len >= m.HeadDrop {
			head := *m.line.at(0)
			m.line.pop()
			first, _ := m.cost(n.packets.all[head].size)
			m.bytes -= first
			n.drop(m, head)
		}
	case m.bytes+wire > m.Buffer && (m.Burst > 0 || m.line.len > 0):
		n.drop(m, id)
		return
	}
	m.bytes += wire
	m.line.push(id)
	if m.line.len > 1 {
		return
	}
	if m.Burst == 0 {
		m.filled = max(m.filled, n.now)
	}
	n.release(m)
}

// drop loses a packet in the queue, or on its way in.
func (n *Network) drop(m *modem, id uint32) {
	m.counts.Dropped++
	m.counts.DroppedBytes += unit.Size(n.packets.all[id].size)
	n.lose(id)
}

// release lets all packets go whose time has come, and notes when the next
// one's will.
func (n *Network) release(m *modem) {
	if m.Rate == 0 {
		n.due[m.source] = never
		return
	}
	for m.line.len > 0 {
		id := *m.line.at(0)
		p := &n.packets.all[id]
		wire, cost := m.cost(p.size)
		at := m.filled + unit.Instant(cost)
		if m.Burst > 0 {
			at = max(n.now, at-unit.Instant(m.tokens))
		}
		if at > n.now {
			n.due[m.source] = at
			return
		}
		m.line.pop()
		m.bytes -= wire
		m.counts.Sent++
		m.counts.SentBytes += unit.Size(p.size)
		if m.Burst == 0 {
			m.filled = at
		} else {
			m.tokens = min(m.full, m.tokens+int64(n.now-m.filled)) - cost
			m.filled = n.now
		}
		if m.direction == Up {
			n.carry(n.wires[Up][n.keysOf(p).wires], id)
		} else {
			n.tapped(Down, p)
			n.shape(&n.shapers[Down], id)
		}
	}
	n.due[m.source] = never
}

func (m *modem) stats() LinkStats {
	s := m.counts
	s.Packets, s.Backlog = m.line.len, m.bytes
	return s
}
