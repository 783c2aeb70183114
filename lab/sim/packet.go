package sim

import (
	"unbloat/lab/aqm"
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

// notes are what else is to be known of a packet.
type notes uint8

const (
	noteDup     notes = 1 << iota // ACK: a duplicate has arrived (DSACK, RFC 2883)
	noteECE                       // ACK: congestion was experienced
	noteCWR                       // data: the window was reduced
	noteBack                      // stream: on its way back
	noteShaping                   // is in a shaper's queue
)

// packet is one frame on its way. Packets live in a slab and are named by
// their index, which the queues of package aqm carry as Packet.ID.
type packet struct {
	sent  unit.Instant // data: when it left its sender; ACK: when it left the receiver
	echo  unit.Instant // sent of the segment that caused an ACK, or of the last ACK that a data's sender saw (RFC 7323 timestamps)
	owner uint32       // index of the connection or stream
	seq   int32        // data: segment; ACK: the segment expected next; stream: number
	size  int32        // frame in bytes, as aqm.Packet.Size
	kind  kind
	ecn   aqm.ECN
	notes notes
	sacks runs // ACK
}

func (p *packet) has(n notes) bool { return p.notes&n != 0 }

// mostRuns is how many runs an acknowledgement reports at most.
const mostRuns = 3

// runs are the SACK blocks of an acknowledgement, the newest first (RFC 2018).
type runs struct {
	spans [mostRuns]span
	n     uint8
}

// slab holds all packets. Index 0 is not used: it means "none".
type slab struct {
	all  []packet
	free []uint32
}

// take returns an unused packet, cleared.
func (s *slab) take() (uint32, *packet) {
	if len(s.free) == 0 {
		if len(s.all) == 0 {
			s.all = make([]packet, 1)
		}
		s.all = append(s.all, packet{})
		s.free = append(s.free, uint32(len(s.all)-1))
	}
	last := len(s.free) - 1
	id := s.free[last]
	s.free = s.free[:last]
	p := &s.all[id]
	*p = packet{}
	return id, p
}

// put gives a packet back.
func (s *slab) put(id uint32) {
	s.all[id].notes = 0
	s.free = append(s.free, id)
}

// inUse returns how many packets are on their way.
func (s *slab) inUse() int { return max(len(s.all)-1, 0) - len(s.free) }
