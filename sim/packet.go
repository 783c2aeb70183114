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

// notes are what else is to be known of a packet.
type notes uint8

const (
	noteDup     notes = 1 << iota // ACK: a copy of what was there has arrived (DSACK, RFC 2883)
	noteECE                       // ACK: congestion was experienced
	noteCWR                       // data: the window was reduced
	noteSacks                     // ACK: the slab has its runs
	noteBack                      // stream: on its way back
	noteShaping                   // is in a shaper's queue
	noteUsed                      // its place in the slab is taken
)

// packet is one frame on its way. Packets live in a slab and are named by
// their index, which the queues of package aqm carry as Packet.ID.
type packet struct {
	sent  unit.Instant // data: when it left its sender; ACK: when it left the receiver
	echo  unit.Instant // ACK: sent of the segment that caused it (RFC 7323 timestamps)
	owner uint32       // index of the connection or stream
	seq   int32        // data: segment; ACK: the segment expected next; stream: number
	size  int32        // frame in bytes, as aqm.Packet.Size
	kind  kind
	wire  uint8 // index of the wires it takes
	ecn   aqm.ECN
	notes notes
}

func (p *packet) has(n notes) bool { return p.notes&n != 0 }

// mostRuns is how many runs an acknowledgement tells of at most.
const mostRuns = 3

// runs are those that an acknowledgement says arrived out of order, the newest
// first (RFC 2018). Few have any, so they are not in the packet.
type runs struct {
	spans [mostRuns]span
	n     uint8
}

// slab holds all packets. Index 0 is not used: it means "none". Places are taken
// in turn.
type slab struct {
	all  []packet // its length is a power of two
	runs []runs   // by index too; of those with noteSacks
	last uint32   // the place taken last
	used int
}

// take returns an unused packet, cleared.
func (s *slab) take() (uint32, *packet) {
	if 4*(s.used+1) > 3*len(s.all) {
		s.grow()
	}
	mask := uint32(len(s.all) - 1)
	id := s.last
	for {
		if id = (id + 1) & mask; id != 0 && !s.all[id].has(noteUsed) {
			break
		}
	}
	s.last = id
	s.used++
	p := &s.all[id]
	*p = packet{notes: noteUsed}
	return id, p
}

// grow doubles the slab; the new half is taken next.
func (s *slab) grow() {
	old := len(s.all)
	more := make([]packet, max(64, 2*old))
	copy(more, s.all)
	s.all = more
	s.last = uint32(max(old-1, 0))
}

// put gives a packet back.
func (s *slab) put(id uint32) {
	s.all[id].notes = 0
	s.used--
}

// inUse returns how many packets are on their way.
func (s *slab) inUse() int { return s.used }

// tell gives an acknowledgement its runs.
func (s *slab) tell(id uint32, p *packet, r runs) {
	if r.n == 0 {
		p.notes &^= noteSacks
		return
	}
	if len(s.runs) < len(s.all) {
		s.runs = append(s.runs, make([]runs, len(s.all)-len(s.runs))...)
	}
	p.notes |= noteSacks
	s.runs[id] = r
}

// told returns the runs of an acknowledgement.
func (s *slab) told(id uint32, p *packet) runs {
	if !p.has(noteSacks) {
		return runs{}
	}
	return s.runs[id]
}
