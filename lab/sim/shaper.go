package sim

import (
	"fmt"

	"unbloat/lab/aqm"
	"unbloat/unit"
)

// MakeQueue makes the queue of a shaper, which must call drop for every packet
// that it drops. The queue holds packets back by itself (aqm.HTB, aqm.Cake, …).
type MakeQueue func(drop aqm.DropFunc) (aqm.Queue, error)

// Shaping is what the home's router does in one direction.
type Shaping struct {
	Queue MakeQueue // nil: nothing, packets pass
	// MergeAcks thins out acknowledgements: one that finds an earlier one of
	// its connection in the queue takes its place there. CAKE's ack-filter
	// does much the same, but keeps the place at the tail.
	MergeAcks bool
	// Rules give packets a code point of their own; the first that matches counts.
	Rules []Rule
	// Mark gives every packet its code point instead, if it is not nil.
	Mark Mark
}

// Seen is what a router sees of a packet, and of the flow that it belongs to.
type Seen struct {
	Flow     int64     // tells flows apart; connections have numbers from 0, streams below
	Host     uint32    // key of the home's machine
	Size     unit.Size // of the frame
	Opened   Direction // in which the flow's first packet went
	Datagram bool      // UDP, or QUIC or uTP over it; else TCP
	Swarm    bool      // uTP: the home has one port for all of its peers
	Port     uint16    // of the far end; 0: any
	Ack      bool      // an acknowledgement without data
}

// Mark decides a packet's code point when it comes to the router.
type Mark func(now unit.Instant, p Seen) uint8

// Match is a kind of packet, by what can be seen of it alone.
type Match uint8

// Matches.
const (
	MatchAck      Match = iota // acknowledgements without data
	MatchSmallUDP              // datagrams in IP packets shorter than 256 bytes
)

// Rule gives packets of one kind a code point, as nftables would before a qdisc.
type Rule struct {
	Match Match
	DSCP  uint8
}

// smallUDP is the first frame that is not a small datagram.
const smallUDP = 256 + 14

// see returns what a router sees of a packet. A connection was opened by the
// home, which asked for what it downloads.
func (n *Network) see(p *packet, k *keys) Seen {
	s := Seen{Flow: int64(p.owner), Host: k.source, Size: unit.Size(p.size), Opened: Up, Ack: p.kind == kindAck}
	if p.kind == kindStream {
		x := n.streams[p.owner]
		s.Flow, s.Opened, s.Datagram, s.Port = ^int64(x.flow), x.opened, true, x.port
		return s
	}
	c := &n.conns[p.owner].params
	s.Swarm = c.Control == LEDBAT
	s.Datagram = s.Swarm || c.Datagram
	return s
}

// mark returns the code point that the rules give a packet, or 0.
func (s *shaper) mark(p *packet) uint8 {
	for _, r := range s.rules {
		if r.Match == MatchAck && p.kind == kindAck || r.Match == MatchSmallUDP && p.kind == kindStream && p.size < smallUDP {
			return r.DSCP
		}
	}
	return 0
}

// shaper is the router in one direction. Upstream it stands before the modem,
// downstream behind it.
type shaper struct {
	direction Direction
	source    int
	queue     aqm.Queue
	merge     bool
	rules     []Rule
	marks     Mark
}

// Shape replaces what the router does in a direction. Packets that wait in the
// former queue are lost, as when Linux replaces a qdisc.
func (n *Network) Shape(d Direction, s Shaping) error {
	var q aqm.Queue
	if s.Queue != nil {
		var err error
		if q, err = s.Queue(n.dropped); err != nil {
			return err
		}
	}
	h := &n.shapers[d]
	for id := range n.packets.all {
		if p := &n.packets.all[id]; p.has(noteShaping) && n.leaving(p) == d {
			n.lose(uint32(id))
		}
	}
	h.queue, h.merge, h.rules, h.marks = q, s.MergeAcks, s.Rules, s.Mark
	n.due[h.source] = never
	return nil
}

// A RateSetter is a queue whose rate can be changed in place, such as aqm.Cake.
type RateSetter interface{ SetRate(unit.Rate) error }

// SetRate changes the rate of a direction's shaper in place. What waits stays. The
// error says that the direction has no shaper, or none that can.
func (n *Network) SetRate(d Direction, r unit.Rate) error {
	h := &n.shapers[d]
	q, ok := h.queue.(RateSetter)
	if !ok {
		return fmt.Errorf("sim: the rate %s can't be changed in place", d)
	}
	if err := q.SetRate(r); err != nil {
		return err
	}
	n.pump(h)
	return nil
}

// Shaper returns the counters of a direction's shaper; they are zero without one.
func (n *Network) Shaper(d Direction) aqm.Stats {
	if q := n.shapers[d].queue; q != nil {
		return q.Stats()
	}
	return aqm.Stats{}
}

// leaving returns the direction in which a packet travels.
func (n *Network) leaving(p *packet) Direction {
	switch p.kind {
	case kindData:
		return n.conns[p.owner].params.Direction
	case kindAck:
		return n.conns[p.owner].params.Direction.reverse()
	}
	d := n.streams[p.owner].params.Direction
	if p.has(noteBack) {
		return d.reverse()
	}
	return d
}

// dropped is the DropFunc of a shaper's queue.
func (n *Network) dropped(_ unit.Instant, p aqm.Packet, _ aqm.Reason) { n.lose(uint32(p.ID)) }

// shape gives a packet to the router.
func (n *Network) shape(s *shaper, id uint32) {
	if s.queue == nil {
		n.pass(s, id)
		return
	}
	p := &n.packets.all[id]
	if s.merge && p.kind == kindAck && n.mergeAck(p, id) {
		return
	}
	key := *n.keysOf(p)
	dscp := s.mark(p)
	if dscp == 0 && p.kind == kindStream {
		dscp = n.streams[p.owner].dscp
	}
	if s.marks != nil {
		dscp = s.marks(n.now, n.see(p, &key))
	}
	if s.direction == Down {
		key.source, key.destination = key.destination, key.source
	}
	p.notes |= noteShaping
	s.queue.Enqueue(n.now, aqm.Packet{
		ID: uint64(id), Size: unit.Size(p.size), Flow: key.flow, Source: key.source, Destination: key.destination,
		DSCP: dscp, ECN: p.ecn,
	})
	n.pump(s)
}

// keptAcks is how many acknowledgements of a connection wait before more are
// merged: CAKE's filter, unless told to be aggressive, leaves as many.
const keptAcks = 2

// mergeAck puts what a new acknowledgement says in the place of the last one of
// the same connection that waits, if enough do, and says whether it did.
func (n *Network) mergeAck(p *packet, id uint32) bool {
	c := n.conns[p.owner]
	waits := func(id uint32) bool {
		old := &n.packets.all[id]
		return id != 0 && old.has(noteShaping) && old.kind == kindAck && old.owner == p.owner
	}
	for i, k := range c.waitingAcks {
		if !waits(k) {
			copy(c.waitingAcks[i:], c.waitingAcks[i+1:])
			c.waitingAcks[keptAcks-1] = 0
			break
		}
	}
	for i, k := range c.waitingAcks {
		if !waits(k) {
			c.waitingAcks[i] = id
			return false
		}
	}
	last := c.waitingAcks[keptAcks-1]
	old := &n.packets.all[last]
	if old.size != p.size || (p.notes^old.notes)&noteECE != 0 {
		return false
	}
	old.seq, old.sent, old.echo, old.sacks = p.seq, p.sent, p.echo, p.sacks
	n.packets.put(id)
	return true
}

// pump lets go what the shaper's queue lets go now.
func (n *Network) pump(s *shaper) {
	for {
		at, ok := s.queue.Next(n.now)
		if !ok {
			n.due[s.source] = never
			return
		}
		if at > n.now {
			n.due[s.source] = at
			return
		}
		q, ok := s.queue.Dequeue(n.now)
		if !ok {
			if at, ok = s.queue.Next(n.now); !ok {
				n.due[s.source] = never
			} else {
				n.due[s.source] = max(at, n.now+1) // never stand still
			}
			return
		}
		id := uint32(q.ID)
		p := &n.packets.all[id]
		p.ecn = q.ECN
		p.notes &^= noteShaping
		n.pass(s, id)
	}
}

// A Stamped is a TCP packet that passes the router's WAN, with its timestamps (RFC 7323).
type Stamped struct {
	Direction Direction
	Flow      uint64
	Server    int          // flows with the same number go to servers that are equally far away
	Sent      unit.Instant // when it left its sender
	Echo      unit.Instant // Sent of what it answers; 0: nothing yet
	Seq, Ack  uint32       // sequence number of its first byte, and of the next one that it expects
	Length    uint32       // of its payload
}

// Tap lets f see every TCP packet on the WAN: those up as they leave the shaper, those
// down as they come from the line. QUIC's datagrams have no timestamps, and are not
// shown. nil ends it.
func (n *Network) Tap(f func(now unit.Instant, p Stamped)) { n.tap = f }

// tapped shows a packet to the tap.
func (n *Network) tapped(d Direction, p *packet) {
	if n.tap == nil || p.kind == kindStream {
		return
	}
	c := n.conns[p.owner]
	if c.params.Datagram {
		return
	}
	out := Stamped{Direction: d, Flow: uint64(p.owner), Server: int(c.keys.wires), Sent: p.sent, Echo: p.echo}
	number := uint32(p.seq) * uint32(c.params.Payload) // wraps, as in TCP
	if p.kind == kindData {
		out.Seq, out.Length = number, uint32(c.params.Payload)
	} else {
		out.Ack = number
	}
	n.tap(n.now, out)
}

// pass hands a packet on from the router.
func (n *Network) pass(s *shaper, id uint32) {
	if s.direction == Up {
		n.tapped(Up, &n.packets.all[id])
	}
	if s.direction == Up {
		n.enqueue(&n.modems[Up], id)
	} else {
		n.deliver(id)
	}
}
