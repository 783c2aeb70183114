package simlab

import (
	"time"

	"unbloat/internal/plan"
	"unbloat/sim"
	"unbloat/unit"
)

// classifier gives packets the tins of a plan's classes by how their flows
// behave, as the nftables rules of package mechanism/nft do (docs/classes.md).
// Left out are explicit rules, names and trusted marks: what the simulator's
// loads send has none.
type classifier struct {
	behaviour plan.Behaviour
	tins      [2]map[plan.Class]uint8 // by direction: code points, for CAKE's precedence tins
	acks      [2]uint8
	flows     map[int64]*flow
	hosts     map[uint32]*hostMeters
}

// flow is what is remembered of a connection or stream.
type flow struct {
	bytes   unit.Size // of IP packets, both ways (ct bytes)
	counted bool
	bulk    bool
	replied bool
	ways    [2]way
}

// way is what is remembered of one direction of a flow.
type way struct {
	packets, bytes limit // calm
	busy           unit.Instant
	metered, known bool
	class          uint8 // of its last packet, which the next one from the line gets
}

// hostMeters are those of one machine of the home.
type hostMeters struct {
	heavy, partners limit
	swarm           bool // its port of uTP has many partners
}

// limit is nftables' `limit rate`: a bucket that fills in time.
type limit struct {
	tokens float64
	at     unit.Instant
}

// take takes cost from a bucket that gains rate a second, if it has that.
func (l *limit) take(now unit.Instant, cost, rate, burst float64) bool {
	l.tokens = min(l.tokens+now.Sub(l.at).Seconds()*rate, burst)
	l.at = now
	if l.tokens < cost {
		return false
	}
	l.tokens -= cost
	return true
}

const (
	ackBelow = 128              // IP bytes
	busyFor  = 10 * time.Second // after a flow was not calm
)

// newClassifier returns nil if the plan has no classes that CAKE holds.
func newClassifier(p plan.Plan) *classifier {
	if p.Classes == nil {
		return nil
	}
	k := &classifier{behaviour: p.Classes.Behaviour, flows: map[int64]*flow{}, hosts: map[uint32]*hostMeters{}}
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
		k.acks[d] = codePoint(plan.AckTin(s.shares))
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
	return func(now unit.Instant, p sim.Seen) uint8 {
		f := k.flows[p.Flow]
		if f == nil {
			f = &flow{}
			k.flows[p.Flow] = f
		}
		class := k.class(now, d, p, f)
		w := &f.ways[d]
		before, known := w.class, w.known
		w.class, w.known = class, true
		if d == sim.Down && known {
			return before // the connection's mark is older than this packet
		}
		return class
	}
}

// class decides as the chains up_class and down_class do.
func (k *classifier) class(now unit.Instant, d sim.Direction, p sim.Seen, f *flow) uint8 {
	size := p.Size - plan.EthernetHeader
	f.bytes += size
	f.replied = f.replied || d != p.Opened
	tins, b := k.tins[d], &k.behaviour
	if p.Datagram {
		h := k.host(now, p.Host)
		if p.Flow >= 0 && f.bytes == size && !h.partners.take(now, 1, float64(b.Peers)/60, float64(b.Peers)) {
			h.swarm = true
		}
		switch {
		case p.Flow >= 0 && h.swarm:
			return tins[plan.Bulk]
		case !f.replied:
			return tins[plan.Normal]
		}
		return k.calm(now, d, plan.Voice, size, f)
	}
	first := b.FirstUp
	if d == sim.Down {
		first = b.FirstBytes
	}
	switch {
	case p.Ack && size < ackBelow:
		return k.acks[d]
	case f.bytes <= first:
		return tins[plan.Interactive]
	case size <= b.SmallPacket:
		return k.calm(now, d, plan.Interactive, size, f)
	}
	return k.data(now, d, p.Host, f)
}

// calm tells calm flows, whose small packets have the given class, from busy ones.
func (k *classifier) calm(now unit.Instant, d sim.Direction, small plan.Class, size unit.Size, f *flow) uint8 {
	w, b := &f.ways[d], &k.behaviour
	rate := float64(b.CalmRate) / 8
	packets, bytes := float64(b.CalmPackets/2+1), max(rate/2, 3000)
	if !w.metered {
		w.metered, w.packets, w.bytes = true, limit{packets, now}, limit{bytes, now}
	}
	if now >= w.busy && w.packets.take(now, 1, float64(b.CalmPackets), packets) && w.bytes.take(now, float64(size), rate, bytes) {
		if size <= b.SmallPacket {
			return k.tins[d][small]
		}
		return k.tins[d][plan.Interactive]
	}
	if now >= w.busy {
		w.busy = now.Add(busyFor)
	}
	if size < ackBelow {
		return k.acks[d]
	}
	return k.data(now, d, 0, f)
}

// data tells what has run long, and the many heavy connections of a machine.
func (k *classifier) data(now unit.Instant, d sim.Direction, host uint32, f *flow) uint8 {
	b := &k.behaviour
	if f.bytes > b.HeavyBytes && !f.counted {
		f.counted = true
		f.bulk = f.bulk || !k.host(now, host).heavy.take(now, 1, float64(max(b.HeavyOfHost/4, 1))/60, float64(b.HeavyOfHost))
	}
	if f.bulk || f.bytes > b.LongBytes {
		return k.tins[d][plan.Bulk]
	}
	return k.tins[d][plan.Normal]
}

// host returns a machine's meters.
func (k *classifier) host(now unit.Instant, key uint32) *hostMeters {
	h := k.hosts[key]
	if h == nil {
		h = &hostMeters{heavy: limit{float64(k.behaviour.HeavyOfHost), now}, partners: limit{float64(k.behaviour.Peers), now}}
		k.hosts[key] = h
	}
	return h
}
