package classify

import (
	"encoding/binary"
	"net/netip"
)

// What is remembered, for each direction: a table of flows, one of machines, and one of
// ports. A table is an array of buckets of four places. What has not been seen for a
// while is gone, and leaves its place to a newcomer; a newcomer that finds none is a
// stranger, whom nothing protects. So a flood pushes out nobody. Of flows, one that is
// answered may take the place of one that nobody has answered. A direction writes its
// own tables alone, and reads the other's.

// An estimate is what came within the last window of time: bytes or packets.
type estimate struct{ window, at, over uint64 } // over: bytes since it went above a bound

// add counts n more, and returns what is in a window of 2^shift ticks.
func (e *estimate) add(n uint64, shift uint, now uint64) uint64 {
	past := uint64(0)
	if now > e.at {
		past = now - e.at
	}
	if past>>shift > 0 {
		e.window = 0
	} else {
		e.window -= e.window * past >> shift
	}
	e.at = now
	e.window += n
	return e.window
}

// exceeds adds n more to the window, and reports whether more than patience bytes have come
// since it went above a bound.
func (e *estimate) exceeds(n, most, patience uint64, shift uint, now uint64) bool {
	if e.add(n, shift, now) <= most {
		e.over = 0
		return false
	}
	e.over += n
	return e.over > patience
}

// A bucket holds tokens.
type bucket struct{ tokens, at uint64 }

// longest is how many ticks fill every bucket.
const longest = 1 << 24

func (r Bucket) full(now uint64) bucket { return bucket{r.Most, now} }

// exceeds takes the cost of one from the bucket, if that has it.
func (b *bucket) exceeds(r *Bucket, now uint64) bool {
	past := uint64(0)
	if now > b.at {
		past = min(now-b.at, longest)
	}
	b.tokens, b.at = min(b.tokens+r.Gain*past, r.Most), now
	if b.tokens < r.Cost {
		return true
	}
	b.tokens -= r.Cost
	return false
}

// A FlowKey is a flow by its ends.
type FlowKey struct {
	Home, Far         netip.Addr
	HomePort, FarPort uint16
	Protocol          uint8
}

// A flow is one direction of one.
type flow struct {
	key          FlowKey
	keep         uint64 // until then it is there
	bytes        uint64
	light        estimate // its bytes in a second
	lightPackets estimate // and its packets
	rate         estimate // its bytes in a quarter of a second
	small        estimate // its packets that speak; of TCP its acknowledgements
	busy         uint64   // until then it is not light
	mixed        uint64   // until then it has large packets too
	speaks       uint64   // until then it does
	elastic      uint64   // until then it does not go first
	struck       uint64   // until then it counts how often it was elastic
	strikes      uint64
	machine      uint16
	answered     bool
	heavy, bulk  bool
	named        uint8 // up: the lane that a rule gives what arrives
}

// A machine is one of the home's.
type machine struct {
	key       machineKey
	keep      uint64
	crowd     uint64 // until then its flows are not light
	speaks    uint64 // until then one of its flows does
	first     estimate
	light     estimate
	steady    estimate
	datagrams estimate
	names     estimate
	heavy     bucket
}

type machineKey struct {
	home   netip.Addr
	number uint16 // in place of the address
}

// A port is one of a machine of the home.
type port struct {
	key      portKey
	keep     uint64
	swarm    uint64 // until then it is one
	partners bucket
}

type portKey struct {
	home netip.Addr
	port uint16
}

// A side is what one direction remembers.
type side struct {
	flows    [][WaysOfBucket]flow
	machines [][WaysOfBucket]machine
	ports    [][WaysOfBucket]port
}

// find returns the place in a bucket that has the key and is taken; nil if there is none.
func find[T any](b *[WaysOfBucket]T, is func(*T) bool) *T {
	for i := range b {
		if is(&b[i]) {
			return &b[i]
		}
	}
	return nil
}

// room returns the place that a newcomer may take: of those that are free the one that
// would be given up first; nil if there is none.
func room[T any](b *[WaysOfBucket]T, keep func(*T) (until uint64, free bool)) *T {
	var out *T
	least := ^uint64(0)
	for i := range b {
		if until, free := keep(&b[i]); free && until < least {
			out, least = &b[i], until
		}
	}
	return out
}

func (c *Classifier) findFlow(d Direction, k FlowKey, hash uint32) *flow {
	f := find(&by(d, &c.sides[1], &c.sides[0]).flows[hash&c.n.FlowMask], func(f *flow) bool { return f.key == k })
	if f == nil || f.keep <= c.now {
		return nil
	}
	return f
}

// takeFlow returns a flow's place, a new one if it has none; nil if there is no room.
func (c *Classifier) takeFlow(d Direction, k FlowKey, hash uint32, answered bool) *flow {
	b := &by(d, &c.sides[1], &c.sides[0]).flows[hash&c.n.FlowMask]
	f := find(b, func(f *flow) bool { return f.key == k })
	if f != nil && f.keep > c.now {
		return f
	}
	if f == nil {
		f = room(b, func(f *flow) (uint64, bool) { return f.keep, f.keep <= c.now || answered && !f.answered })
	}
	if f != nil {
		*f = flow{key: k}
	}
	return f
}

func (c *Classifier) takeMachine(d Direction, k machineKey, hash uint32) *machine {
	b := &by(d, &c.sides[1], &c.sides[0]).machines[hash&c.n.MachineMask]
	m := find(b, func(m *machine) bool { return m.key == k })
	if m == nil {
		m = room(b, func(m *machine) (uint64, bool) { return m.keep, m.keep <= c.now })
	}
	if m == nil {
		return nil
	}
	if m.keep <= c.now {
		*m = machine{key: k, heavy: c.of(d).Heavy.full(c.now)}
	}
	m.keep = c.now + c.n.MachineFor
	return m
}

// swarms reports whether a direction has found a port to be a swarm's.
func (c *Classifier) swarms(d Direction, k portKey, hash uint32) bool {
	p := find(&by(d, &c.sides[1], &c.sides[0]).ports[hash&c.n.PortMask], func(p *port) bool { return p.key == k })
	return p != nil && p.swarm > c.now
}

// partner counts a port's new partner; beyond the allowed number it is a swarm's.
func (c *Classifier) partner(d Direction, k portKey, hash uint32) {
	b := &by(d, &c.sides[1], &c.sides[0]).ports[hash&c.n.PortMask]
	p := find(b, func(p *port) bool { return p.key == k })
	if p == nil {
		p = room(b, func(p *port) (uint64, bool) { return p.keep, p.keep <= c.now })
	}
	if p == nil {
		return
	}
	peers := &c.of(d).Peers
	if p.keep <= c.now {
		*p = port{key: k, partners: peers.full(c.now)}
	}
	p.keep = max(p.keep, c.now+c.n.PortFor)
	if p.partners.exceeds(peers, c.now) {
		p.swarm = c.now + c.n.SwarmFor
		p.keep = max(p.keep, p.swarm)
	}
}

// The hashes are the program's. Words are in the machine's own order, as it reads
// them from packets.

const golden = 0x9e3779b97f4a7c15

func mix(h, word uint64) uint64 {
	h = (h ^ word) * golden
	return h ^ h>>32
}

func mixed(h uint64, a netip.Addr) uint64 {
	b := a.As16()
	return mix(mix(h, binary.NativeEndian.Uint64(b[:8])), binary.NativeEndian.Uint64(b[8:]))
}

// hashOf brings the upper bits down to those that the tables' masks take.
func hashOf(h uint64) uint32 { return uint32((h ^ h>>29) * golden >> 32) }

func (c *Classifier) ofHome(home netip.Addr) uint64 { return mixed(uint64(c.n.Seed), home) }

func (c *Classifier) flowHash(k FlowKey) uint32 {
	return hashOf(mix(mixed(c.ofHome(k.Home), k.Far), uint64(k.Protocol)<<32|uint64(k.HomePort)<<16|uint64(k.FarPort)))
}

func (c *Classifier) machineHash(k machineKey) uint32 {
	if k.number == 0 {
		return hashOf(c.ofHome(k.home))
	}
	var number [8]byte // the last word of an address
	binary.NativeEndian.PutUint32(number[4:], uint32(k.number))
	return hashOf(mix(mix(uint64(c.n.Seed), 0), binary.NativeEndian.Uint64(number[:])))
}

func (c *Classifier) portHash(k portKey) uint32 {
	return hashOf(mix(c.ofHome(k.home), uint64(k.port)))
}
