package sim

import (
	"errors"
	"time"

	"unbloat/unit"
)

// A Talker is one end of a Talk. The simulator calls it, and nobody else.
type Talker interface {
	// Wake returns the frames to send now, with their bytes as aqm.Packet.Size,
	// and when to be woken again; an instant that is not after now: never.
	Wake(now unit.Instant) (frames []unit.Size, next unit.Instant)
	// Hear tells that the n-th frame of the other end has arrived, counted from 0.
	// Lost frames are never told of.
	Hear(now unit.Instant, n int)
}

// TalkParams describe a flow of datagrams whose ends decide themselves what they
// send and when: a call, or a game. The home opens it.
type TalkParams struct {
	Host       int // which machine of the home, from 1
	Home, Away Talker
	Start      unit.Instant // when both are woken first
	Stop       unit.Instant // after which neither is woken; 0: never
	ExtraRTT   time.Duration
	Port       uint16 // of the far end; 0: any
	DSCP       uint8  // with which both ends mark; a shaper's rules come first
}

// AddTalk adds a flow of datagrams both ways.
func (n *Network) AddTalk(p TalkParams) error {
	switch {
	case p.Home == nil || p.Away == nil:
		return errors.New("sim: a talk has two ends")
	case p.Start < n.now:
		return errors.New("sim: a talk starts in the past")
	}
	w, err := n.wiresFor(p.ExtraRTT)
	if err != nil {
		return err
	}
	flow := uint32(len(n.streams))
	k := keys{n.hash(), hostKey(p.Host), n.hash(), uint8(w)}
	for i, end := range []struct {
		d           Direction
		talk, hears Talker
	}{{Up, p.Home, p.Away}, {Down, p.Away, p.Home}} {
		s := &Stream{params: StreamParams{Direction: end.d, Host: p.Host, Start: p.Start, Stop: p.Stop},
			index: flow + uint32(i), flow: flow, opened: Up, port: p.Port, dscp: p.DSCP, keys: k, talker: end.talk, listener: end.hears}
		n.streams = append(n.streams, s)
		n.timers.push(p.Start, s.index, taskTick)
	}
	return nil
}

// talk wakes the end that sends, and sends what it has.
func (s *Stream) talk(n *Network, at unit.Instant) {
	frames, next := s.talker.Wake(at)
	if next > at {
		n.timers.push(next, s.index, taskTick)
	}
	for _, size := range frames {
		id, p := n.packets.take()
		p.kind, p.owner, p.size = kindStream, s.index, int32(size)
		p.seq = int32(len(s.sent))
		s.sent = append(s.sent, Datagram{Sent: n.now})
		n.send(s.params.Direction, id)
	}
}
