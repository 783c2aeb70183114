package sim

import (
	"unbloat/aqm"
	"unbloat/unit"
)

// kind says whose packet it is and what it means.
type kind uint8

const (
	kindData   kind = iota // a segment of a TCP connection
	kindAck                // its acknowledgement
	kindStream             // a datagram of a Stream
)

// span is a run of segments, from the first up to but not including the last.
type span struct{ from, to int32 }

// packet is one frame on its way. Packets live in a slab and are named by
// their index, which the queues of package aqm carry as Packet.ID.
type packet struct {
	sent    unit.Instant // data: when it left its sender; ACK: when it left the receiver
	echo    unit.Instant // ACK: sent of the segment that caused it (RFC 7323 timestamps)
	sacks   [3]span      // ACK: runs that arrived out of order, the newest first (RFC 2018)
	owner   uint32       // index of the connection or stream
	seq     int32        // data: segment; ACK: the segment expected next; stream: number
	size    int32        // frame in bytes, as aqm.Packet.Size
	kind    kind
	wire    uint8 // index of the wires it takes
	nsacks  uint8
	ecn     aqm.ECN
	dup     bool // ACK: a copy of what was there has arrived (DSACK, RFC 2883)
	ece     bool // ACK: congestion was experienced
	cwr     bool // data: the window was reduced
	shaping bool // is in a shaper's queue
	back    bool // stream: on its way back
}

// frame is what links need of a packet, so that they do not have to look for it
// in memory: it may have been sent long ago.
type frame struct {
	id   uint32
	size int32
	conn int32 // index of the connection it belongs to; −1: a stream's
	wire uint8 // index of the wires it takes
	kind kind
}

// frameOf returns the frame of a packet.
func (n *Network) frameOf(id uint32) frame {
	p := &n.packets.all[id]
	f := frame{id, p.size, int32(p.owner), p.wire, p.kind}
	if p.kind == kindStream {
		f.conn = -1
	}
	return f
}

// slab holds all packets. Index 0 is not used: it means "none".
type slab struct {
	all  []packet
	free []uint32
}

// take returns an unused packet, cleared.
func (s *slab) take() (uint32, *packet) {
	if n := len(s.free); n > 0 {
		id := s.free[n-1]
		s.free = s.free[:n-1]
		p := &s.all[id]
		*p = packet{}
		return id, p
	}
	if len(s.all) == 0 {
		s.all = append(s.all, packet{})
	}
	s.all = append(s.all, packet{})
	id := uint32(len(s.all) - 1)
	return id, &s.all[id]
}

// put gives a packet back.
func (s *slab) put(id uint32) { s.free = append(s.free, id) }

// inUse returns how many packets are on their way.
func (s *slab) inUse() int { return max(len(s.all)-1, 0) - len(s.free) }
