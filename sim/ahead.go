package sim

import (
	"time"
	"unsafe"

	"unbloat/internal/near"
	"unbloat/unit"
)

// How many packets before its arrival what one needs is asked for: first what
// is known of it and its connection, then what that points to.
const (
	farAhead  = 24
	nearAhead = 8
	// After a loss any segment may be looked at, but of large windows only some are asked for.
	mostNear = 64
)

// lines asks for lines of a connection.
func (n *Network) lines(conn uint32, from, count int) {
	near.Lines(unsafe.Add(unsafe.Pointer(n.conn(conn)), 64*from), count)
}

// fetch asks for what a packet's arrival will need.
func (n *Network) fetch(f frame) {
	near.Lines(unsafe.Pointer(&n.packets.all[f.id]), 1)
	switch f.kind {
	case kindData:
		n.lines(uint32(f.conn), 0, receiverLines)
	case kindAck:
		n.lines(uint32(f.conn), sharedLine, senderLines)
	}
}

// fetchKeys asks for what a packet's coming to a shaper will need.
func (n *Network) fetchKeys(f frame) {
	near.Lines(unsafe.Pointer(&n.packets.all[f.id]), 1)
	if f.conn >= 0 {
		n.lines(uint32(f.conn), sharedLine, 1)
	}
}

// fetchMore asks for what the sender knows of the segments that an
// acknowledgement is about, and of those that it will send; and for where the
// receiver files its goodput, when that is due.
func (n *Network) fetchMore(f frame) {
	switch f.kind {
	case kindData:
		c := n.conn(uint32(f.conn))
		if s := n.shapers[c.direction.reverse()].foresight; s != nil {
			s.Soon(c.keys.flow) // for the acknowledgement
		}
		if k := len(c.bins); n.now >= c.binEnd-unit.Instant(time.Millisecond) && k > 0 {
			near.Lines(unsafe.Pointer(&c.bins[k-1]), 2)
			n.lines(uint32(f.conn), rangesLine, 1)
		}
		if c.highest > c.expected {
			n.lines(uint32(f.conn), rangesLine, 1)
		}
	case kindAck:
		c := n.conn(uint32(f.conn))
		if c.sacked == 0 && c.state == stateOpen {
			near.Lines(unsafe.Pointer(c.at(c.una)), 1)
			near.Lines(unsafe.Pointer(c.at(c.nxt)), 1)
			return
		}
		near.Lines(unsafe.Pointer(&c.segments[0]), min(len(c.segments), mostNear)/segmentsALine)
		near.Lines(unsafe.Pointer(c.rare), lossLines)
		if n.packets.all[f.id].has(noteSacks) {
			near.Lines(unsafe.Pointer(&n.packets.runs[f.id]), 1)
		}
	}
}

// fetchTimer asks for what a timer's end will need: most are moved again.
func (n *Network) fetchTimer(e timer) {
	switch e.task {
	case taskDelayedAck:
		n.lines(e.owner, 0, receiverLines)
	case taskRetransmit:
		n.lines(e.owner, alarmLine, 1)
	case taskPace:
		n.lines(e.owner, sharedLine, senderLines)
	}
}
