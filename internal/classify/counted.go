package classify

import (
	"net/netip"
	"time"

	"unbloat/unit"
)

// A Count is what a flow has carried in one direction since it began.
type Count struct {
	Packets uint64
	Bytes   unit.Size // of IP packets
}

// A CountedFlow is a flow as a router's table of states shows it: its ends, and
// counters.
type CountedFlow struct {
	Protocol  uint8
	Home, Far netip.AddrPort
	Opened    Direction // in which its first packet went
	Up, Down  Count
}

// Counted classifies flows by counters that are read now and then. It is for
// routers that can't look at each packet by these rules: their rules look a flow up
// in a table, and a program fills that.
//
// What came since the last reading is walked through the table as packets of equal
// size, evenly spread over the time between the readings, all flows side by side.
// So the limits, the crowd and the trials of steady flows are those of Build. It
// differs from a packet's own class in three ways: a flow keeps the class of the
// last reading until the next; it has one class for all of its packets in a
// direction; and what is over before it is read twice has none. So there are no
// first bytes either.
//
// It is not safe for concurrent use.
type Counted struct {
	table  *Table
	memory *Memory
	flows  map[FlowID]*countedFlow
	turn   uint32
	at     unit.Instant
	begun  bool
	now    []*countedFlow // those of this reading that carried something
}

// A FlowID tells flows apart.
type FlowID struct {
	Protocol  uint8
	Home, Far netip.AddrPort
}

// A countedFlow is what is known of one.
type countedFlow struct {
	FlowID
	opened Direction
	count  [2]Count // by direction: up, down
	fresh  [2]pieces
	conn   Connection
	lane   [2]*Lane
	active [2]unit.Instant
	turn   uint32
}

// pieces is what came in a direction since the last reading, as packets.
type pieces struct {
	n     int64
	bytes unit.Size
}

// Bounds of Counted.
const (
	// steps is how many steps the time between two readings has.
	steps = 32
	// mostPieces is the most packets that stand for what a flow sent in a direction
	// within a second: more than any limit of packets allows. Of more, each is larger.
	mostPieces = 1024
	// idleFor is how long a silent flow keeps its class.
	idleFor = 20 * time.Second
)

// NewCounted returns one that has read nothing. Limits that need each packet's
// place in its connection are left out.
func NewCounted(p Policy) *Counted {
	p.EveryPacket, p.DownByMark = true, false
	p.Limits.Acks, p.Limits.FirstBytes, p.Limits.FirstUp = 0, 0, 0
	return &Counted{table: Build(p), flows: map[FlowID]*countedFlow{}}
}

// Read takes a reading of all flows. Those that are missing are forgotten. What the
// first reading shows was carried before, and gives no flow a class. No more flows
// than four times the policy's limit are remembered.
func (c *Counted) Read(now unit.Instant, all []CountedFlow) {
	first := !c.begun
	if first {
		c.memory, c.begun, c.at = NewMemory(c.table, now), true, now
	}
	c.turn++
	c.now = c.now[:0]
	for i := range all {
		c.take(now, &all[i], first)
	}
	for id, f := range c.flows {
		if f.turn != c.turn {
			delete(c.flows, id)
		}
	}
	if !first && now > c.at {
		c.walk(now)
	}
	c.at = now
}

// take files one flow of a reading.
func (c *Counted) take(now unit.Instant, x *CountedFlow, first bool) {
	id := FlowID{x.Protocol, x.Home, x.Far}
	f := c.flows[id]
	count := [2]Count{x.Up, x.Down}
	if f != nil && f.turn == c.turn { // a router may show a flow once for each interface
		return
	}
	if f != nil && (count[0].Packets < f.count[0].Packets || count[1].Packets < f.count[1].Packets) {
		f = nil // another one with the same ends
	}
	if f == nil {
		if _, known := c.flows[id]; !known && len(c.flows) >= 4*max(c.table.policy.Limits.Flows, 16) {
			return
		}
		f = &countedFlow{FlowID: id, opened: x.Opened}
		c.flows[id] = f
		if first {
			f.older(count)
		}
	}
	f.turn = c.turn
	period := max(now.Sub(c.at), time.Millisecond)
	most := max(int64(mostPieces*period/time.Second), 2*steps)
	carried := false
	for d := range count {
		n := int64(count[d].Packets - f.count[d].Packets)
		f.fresh[d] = pieces{min(n, most), max(count[d].Bytes-f.count[d].Bytes, 0)}
		if n > 0 {
			carried = true
			f.active[d] = now
		} else if now.Sub(f.active[d]) > idleFor {
			f.lane[d] = nil
		}
	}
	f.count = count
	if carried {
		c.now = append(c.now, f)
	}
}

// older takes what a flow carried before anything was read.
func (f *countedFlow) older(count [2]Count) {
	f.count = count
	i := f.opened.index()
	f.conn = Connection{Sent: count[i].Packets, Replied: count[1-i].Packets, Bytes: count[0].Bytes + count[1].Bytes, Answered: count[1-i].Packets > 0}
}

// walk walks what came since the last reading through the table.
func (c *Counted) walk(now unit.Instant) {
	period := now.Sub(c.at)
	for step := range int64(steps) {
		at := c.at.Add(period * time.Duration(step) / steps)
		for _, f := range c.now {
			// The one that opened it comes first, or nobody would be answered.
			for _, d := range [2]int{f.opened.index(), 1 - f.opened.index()} {
				x := f.fresh[d]
				// Few packets come in the last steps, so that a step has all or none.
				for k := x.n * step / steps; k < x.n*(step+1)/steps; k++ {
					c.packet(at, f, d, unit.Size((k+1)*int64(x.bytes)/x.n-k*int64(x.bytes)/x.n))
				}
			}
		}
	}
}

// packet walks one packet through the table.
func (c *Counted) packet(at unit.Instant, f *countedFlow, d int, length unit.Size) {
	p := Packet{Direction: Up, Protocol: f.Protocol, Home: f.Home.Addr(), Far: f.Far.Addr(), HomePort: f.Home.Port(), FarPort: f.Far.Port(), Length: length, Flags: ACK}
	if d == Down.index() {
		p.Direction = Down
	}
	if f.fresh[d].bytes > UsualAck*unit.Size(f.fresh[d].n) {
		p.Flags |= PSH
	}
	if f.conn.ReplyPacket = d != f.opened.index(); f.conn.ReplyPacket {
		f.conn.Replied++
		f.conn.Answered = true
	} else {
		f.conn.Sent++
	}
	f.conn.Bytes += length
	f.lane[d] = c.table.Decide(at, &p, &f.conn, c.memory).Lane
}

// Each calls yield with each flow that has a class other than normal in a direction,
// until that returns false. The order is random. Acknowledgements, which a rule can
// tell by themselves, give a flow no class.
func (c *Counted) Each(yield func(f FlowID, d Direction, class Class) bool) {
	for id, f := range c.flows {
		for i, d := range [2]Direction{Up, Down} {
			if l := f.lane[i]; l != nil && l.Name != AcksLane && l.Class != Normal && !yield(id, d, l.Class) {
				return
			}
		}
	}
}
