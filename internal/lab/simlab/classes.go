package simlab

import (
	"net/netip"

	"unbloat/internal/classify"
	"unbloat/internal/plan"
	"unbloat/sim"
	"unbloat/unit"
)

// classifier gives packets the tins of a plan's classes by the rules of package
// classify, over its own memory of sets and connections. Every packet is metered: what
// the simulator shows of one has no sequence number by which a router looks at some
// alone. Acknowledgements are not left out here, and what the simulator's loads
// send asks no name server and has no marks; of what explicit rules look at it has
// the protocol, and the far port of calls and games.
type classifier struct {
	table  *classify.Table
	memory *classify.Memory
	tins   [2]map[plan.Class]uint8 // by direction: code points, for CAKE's precedence tins
	flows  map[int64]*classify.Connection
}

// Ports of the home's end and the far one. BitTorrent has one port for all its peers.
const (
	swarmPort = 6881
	farPort   = 443
)

// newClassifier returns nil if the plan has no classes that CAKE holds.
func newClassifier(p plan.Plan) *classifier {
	if p.Classes == nil {
		return nil
	}
	policy := p.Policy()
	policy.EveryPacket, policy.Limits.Acks = true, 0
	k := &classifier{table: classify.Build(policy), flows: map[int64]*classify.Connection{}}
	for d, s := range []struct {
		shaper *plan.Shaper
		shares []plan.Share
	}{{p.Up, p.Classes.Up}, {p.Down, p.Classes.Down}} {
		if s.shaper == nil || s.shaper.AQM != plan.CAKE || s.shares == nil {
			continue
		}
		k.tins[d] = map[plan.Class]uint8{}
		for _, share := range s.shares {
			k.tins[d][share.Class] = codePoint(share.Tin)
		}
	}
	return k
}

// codePoint returns what CAKE's precedence puts into a tin: it goes by the upper three bits.
func codePoint(t plan.Tin) uint8 { return uint8(t-plan.TinRest) << 3 }

// mark returns how a direction's packets are marked; nil: not by classes.
func (k *classifier) mark(d sim.Direction) sim.Mark {
	if k == nil || k.tins[d] == nil {
		return nil
	}
	direction := plan.DirectionUp
	if d == sim.Down {
		direction = plan.DirectionDown
	}
	byMark := d == sim.Down && k.table.Policy().DownByMark
	return func(now unit.Instant, p sim.Seen) uint8 {
		if k.memory == nil {
			k.memory = classify.NewMemory(k.table, now)
		}
		packet, c := packetOf(direction, p), k.connection(d, p)
		before := c.Mark
		lane := k.table.Decide(now, &packet, c, k.memory).Lane
		if byMark { // the shaper came first: it saw the mark as it was
			lane = k.table.ByMark(before)
		}
		if lane == nil {
			return k.tins[d][plan.Normal]
		}
		return codePoint(plan.Tin(lane.Tin))
	}
}

// packetOf is a packet as the rules see it.
func packetOf(d plan.Direction, p sim.Seen) classify.Packet {
	out := classify.Packet{Direction: d, Protocol: classify.TCP, Home: address(p.Host), Far: address(uint32(p.Flow)),
		HomePort: uint16(p.Flow), FarPort: farPort, Length: p.Size - plan.EthernetHeader, Flags: classify.ACK}
	if p.Datagram {
		if out.Protocol = classify.UDP; p.Swarm {
			out.HomePort = swarmPort
		}
		if p.Port != 0 {
			out.FarPort = p.Port
		}
	}
	if !p.Ack {
		out.Flags |= classify.PSH
	}
	return out
}

func address(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// connection counts a packet, as connection tracking does.
func (k *classifier) connection(d sim.Direction, p sim.Seen) *classify.Connection {
	c := k.flows[p.Flow]
	if c == nil {
		c = &classify.Connection{}
		k.flows[p.Flow] = c
	}
	if c.ReplyPacket = d != p.Opened; c.ReplyPacket {
		c.Replied++
		c.Answered = true
	} else {
		c.Sent++
	}
	c.Bytes += p.Size - plan.EthernetHeader
	return c
}
