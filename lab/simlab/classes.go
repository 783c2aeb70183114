package simlab

import (
	"net/netip"
	"time"

	"unbloat/internal/cure/classify"
	"unbloat/internal/cure/plan"
	"unbloat/lab/sim"
	"unbloat/unit"
)

// classifier gives packets the tins of a plan's classes by the table of package classify,
// as the BPF program does. Acknowledgements are not left out here, and what the simulator's loads
// send asks no name server and has no marks; of what explicit rules look at it has
// the protocol, and the far port of calls and games.
type classifier struct {
	table *classify.Classifier
	rules []plan.Rule
	tins  [2]map[plan.Class]uint8 // by direction: code points, for CAKE's precedence tins
}

// Ports of the home's end and the far one. BitTorrent has one port for all its peers.
const (
	swarmPort = 6881
	farPort   = 443
)

// newClassifier returns nil if the plan has no classes that a program judges in CAKE.
func newClassifier(p plan.Plan) *classifier {
	if !p.Classes.ByBPF() {
		return nil
	}
	policy := p.Policy()
	policy.Limits.Acks = 0
	k := &classifier{rules: p.Classes.Rules, table: classify.New(policy, classify.Setting{Places: classify.PlacesFor(policy.Limits.Flows), Seed: 1})}
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
	return func(now unit.Instant, p sim.Seen) uint8 {
		packet := packetOf(direction, p)
		if direction == plan.DirectionUp {
			packet.Named, packet.NamedDown = k.named(packet, plan.DirectionUp), k.named(packet, plan.DirectionDown)
		}
		lane := k.table.Decide(now.Add(time.Hour), &packet).Lane // a router has been up for a while
		if lane == nil {
			return k.tins[d][plan.Normal]
		}
		return codePoint(plan.Tin(lane.Tin))
	}
}

// named is the tin that nftables' rules give a packet that leaves, or what comes back; 0: none.
func (k *classifier) named(p classify.Packet, d plan.Direction) uint8 {
	p.Direction = d
	i := classify.Match(k.rules, &p, 0, func(int, bool) bool { return false })
	side := sim.Up
	if d == plan.DirectionDown {
		side = sim.Down
	}
	if i < 0 || k.tins[side] == nil {
		return 0
	}
	return k.tins[side][k.rules[i].Class]>>3 + uint8(plan.TinRest)
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
