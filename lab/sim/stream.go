package sim

import (
	"errors"
	"time"

	"unbloat/lab/aqm"
	"unbloat/unit"
)

// StreamParams describe datagrams at regular intervals: probes, one half of a
// call or both, or a flood.
type StreamParams struct {
	Direction Direction
	Host      int           // which machine of the home, from 1
	Interval  time.Duration // at least 1 µs; 0: only when Send is called
	Frame     unit.Size     // bytes as aqm.Packet.Size: UDP payload + 42
	Echo      bool          // the other end sends each one back
	BackFrame unit.Size     // what it sends back; 0: as much as came
	Start     unit.Instant
	Stop      unit.Instant // 0: never
	ExtraRTT  time.Duration
	FlowKey   uint32 // hash of the flow; 0: at random
	ECN       aqm.ECN
}

// Fate says what became of a datagram.
type Fate uint8

// Fates. A one-way datagram that arrived is Arrived, an echoed one Answered.
const (
	UnderWay Fate = iota
	Arrived       // at the far end; an echoed one is on its way back
	Answered      // and the answer has come
	LostOut       // on its way out
	LostBack      // on its way back
)

// Datagram is the life of one.
type Datagram struct {
	Sent unit.Instant
	Turn unit.Instant // when it was at the far end
	Back unit.Instant // when its answer was back
	Fate Fate
}

// Stream is a running stream of datagrams.
type Stream struct {
	params StreamParams
	index  uint32
	flow   uint32 // index of the stream that stands for the flow: of a talk's two, the first
	opened Direction
	port   uint16 // of the far end; 0: any
	dscp   uint8  // what the ends themselves mark with
	keys   keys
	sent   []Datagram

	talker, listener Talker // of a talk: who sends, and who receives
}

// AddStream adds a stream of datagrams.
func (n *Network) AddStream(p StreamParams) (*Stream, error) {
	switch {
	case p.Interval != 0 && p.Interval < time.Microsecond:
		return nil, errors.New("sim: a stream needs an interval of at least 1 µs")
	case p.Frame < 1 || p.Frame > 64<<10:
		return nil, errors.New("sim: a stream's frames have 1 byte to 64 KiB")
	case p.BackFrame < 0 || p.BackFrame > 64<<10:
		return nil, errors.New("sim: a stream's answers have at most 64 KiB")
	case p.Start < n.now:
		return nil, errors.New("sim: a stream starts in the past")
	}
	w, err := n.wiresFor(p.ExtraRTT)
	if err != nil {
		return nil, err
	}
	s := &Stream{params: p, index: uint32(len(n.streams)), flow: uint32(len(n.streams)), opened: p.Direction}
	s.keys = keys{p.FlowKey, hostKey(p.Host), n.hash(), uint8(w)}
	if p.FlowKey == 0 {
		s.keys.flow = n.hash()
	}
	n.streams = append(n.streams, s)
	if p.Interval > 0 {
		n.timers.push(p.Start, s.index, taskTick)
	}
	return s, nil
}

// Send sends a datagram of a stream now, beside those that its interval sends.
func (n *Network) Send(s *Stream) { s.send(n) }

// tick sends the next datagram.
func (s *Stream) tick(n *Network, e timer) {
	if s.params.Stop > 0 && e.at >= s.params.Stop {
		return
	}
	if s.talker != nil {
		s.talk(n, e.at)
		return
	}
	n.timers.push(e.at.Add(s.params.Interval), s.index, taskTick)
	s.send(n)
}

func (s *Stream) send(n *Network) {
	id, p := n.packets.take()
	p.kind, p.owner, p.size, p.ecn = kindStream, s.index, int32(s.params.Frame), s.params.ECN
	p.seq = int32(len(s.sent))
	s.sent = append(s.sent, Datagram{Sent: n.now})
	n.send(s.params.Direction, id)
}

// arrived handles a datagram at the far end, or its answer at this one.
func (s *Stream) arrived(n *Network, id uint32) {
	p := &n.packets.all[id]
	d := &s.sent[p.seq]
	if p.has(noteBack) {
		d.Back, d.Fate = n.now, Answered
		n.packets.put(id)
		return
	}
	d.Turn, d.Fate = n.now, Arrived
	if !s.params.Echo {
		seq := p.seq
		n.packets.put(id)
		if s.listener != nil {
			s.listener.Hear(n.now, int(seq))
		}
		return
	}
	p.notes |= noteBack
	if s.params.BackFrame > 0 {
		p.size = int32(s.params.BackFrame)
	}
	p.ecn = s.params.ECN
	n.send(s.params.Direction.reverse(), id)
}

// lost notes that a datagram is lost.
func (s *Stream) lost(p *packet) {
	d := &s.sent[p.seq]
	d.Fate = LostOut
	if p.has(noteBack) {
		d.Fate = LostBack
	}
}

// Sent returns the datagrams that have been sent, in order. The slice is the
// stream's own.
func (s *Stream) Sent() []Datagram { return s.sent }
