package classify

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"time"

	"unbloat/unit"
)

// Own is what the BPF program of package platform/linux/bpf remembers, apart
// from connection tracking: for each direction a table of connections, one of
// machines, and one of ports. It is State, and knows connections too.
//
// A table is an array of buckets of four places. What has not been seen for a
// while is gone, and leaves its place to a newcomer; a newcomer that finds none is
// a stranger, whom no limit protects. So a flood pushes out nobody. Of connections,
// one that is answered may take the place of one that nobody has answered.
//
// A direction writes its own tables alone, and reads the other's. Its policy is
// Apart, with EveryPacket.
type Own struct {
	Ticks  Ticks
	Places Places
	Seed   uint32 // of the hashes: the program's random one

	limits []OwnBucket
	sides  [2]side
	turns  uint
	half   *place // the connection of the last packet, in its direction
	other  *place // and in the other; nil: nothing has come there
	way    Direction
	twin   []int // by a set's index: one for IPv4 and IPv6, as a machine's number has no family
}

// Ticks is how many jiffies the kernel has a second (HZ).
type Ticks int64

// Places are how many buckets each of a direction's tables has. Each is a power of
// two, and each bucket has WaysOfBucket places.
type Places struct{ Flows, Machines, Ports int }

// FirstOf returns what a connection carries first in a direction.
func (l Limits) FirstOf(d Direction) unit.Size { return l.first(d) }

// LightMask returns the bits of a packet's length that only packets have that are
// longer than a small one.
func (l Limits) LightMask() uint32 { return l.lightMask() }

// Stay returns how long a set keeps a key; 0 if there is no such set.
func (t *Table) Stay(set string) time.Duration {
	for _, s := range t.Sets {
		if s.Name == set {
			return s.Timeout
		}
	}
	return 0
}

// WaysOfBucket is how many places a bucket has.
const WaysOfBucket = 4

// PlacesFor returns room for so many flows. CAKE has 1024 hosts at most.
func PlacesFor(flows int) Places {
	n := 16
	for n*WaysOfBucket < flows && n < 1<<16 {
		n *= 2
	}
	return Places{Flows: n, Machines: min(max(n/8, 16), 1024/WaysOfBucket), Ports: max(n/4, 16)}
}

// For how long a place is kept after its last packet. An answered datagram is that
// of a conversation, with connection tracking's usual time; TCP's are longer quiet.
const (
	KeepUnanswered = 30 * time.Second
	KeepDatagrams  = 2 * time.Minute
	KeepStream     = 5 * time.Minute
	KeepMachine    = 5 * time.Minute
	KeepPort       = time.Minute
)

// An OwnRate is a Rate in whole numbers that need no division: what a bucket gains
// in a tick, what a packet or a byte costs, and what it holds.
type OwnRate struct{ Gain, Cost, Most uint64 }

// Rate returns a rate in ticks.
func (h Ticks) Rate(r Rate) OwnRate {
	per := uint64(r.Per/time.Second) * uint64(h)
	most := uint64(r.Burst)
	if r.Bytes {
		most += uint64(r.N)
	}
	return OwnRate{Gain: uint64(r.N), Cost: per, Most: per * most}
}

// Of returns a time in ticks, rounded up.
func (h Ticks) Of(d time.Duration) uint64 {
	return uint64((int64(d)*int64(h) + int64(time.Second) - 1) / int64(time.Second))
}

// moments are the ticks of limits that are Even: 1024 ns.
const moments Ticks = 1e9 >> 10

// Clock returns by which ticks a limit counts where those of the kernel are h.
func (l *Limit) Clock(h Ticks) Ticks {
	if l.Even {
		return moments
	}
	return h
}

// Moment is an instant in the ticks of limits that are Even.
func Moment(t unit.Instant) uint64 { return moments.now(t) }

// now is an instant as the program counts it.
func (h Ticks) now(t unit.Instant) uint64 {
	return uint64(int64(t) / (int64(time.Second) / int64(h)))
}

// Rates returns those that the table's steps ask of a set; nil if none does.
func (t *Table) Rates(set string) []Rate {
	for _, c := range t.Chains {
		for _, s := range c.Steps {
			for _, x := range s.If {
				if m, ok := x.(Meter); ok && m.Set.Name == set {
					return m.Rates
				}
			}
		}
	}
	return nil
}

// An OwnBucket holds tokens.
type OwnBucket struct{ Tokens, At uint64 }

// longest is how many ticks fill every bucket.
const longest = 1 << 24

// exceeds takes the cost of so many units, if the bucket has that.
func (b *OwnBucket) exceeds(now uint64, r OwnRate, units uint64) bool {
	past := uint64(0)
	if now > b.At {
		past = min(now-b.At, longest)
	}
	b.Tokens, b.At = min(b.Tokens+r.Gain*past, r.Most), now
	if b.Tokens < r.Cost*units {
		return true
	}
	b.Tokens -= r.Cost * units
	return false
}

// A place is one of a bucket.
type place struct {
	key  Key
	keep uint64 // until then it is taken
	// Of a connection: what this direction has carried.
	bytes, packets uint64
	mark           uint32
	machine        uint16
	answered       bool

	until   map[int]uint64       // of sets, by their index
	buckets map[int][2]OwnBucket // of sets with meters
	since   uint64
}

type ways [WaysOfBucket]place

// A side is what one direction remembers, by the kind of its keys.
type side struct {
	flows, machines, ports []ways
}

// NewOwn returns an empty one for a table whose policy is Apart.
func NewOwn(t *Table, hz Ticks, places Places, seed uint32) *Own {
	o := &Own{Ticks: hz, Places: places, Seed: seed, limits: make([]OwnBucket, len(t.Limits))}
	for i := range o.sides {
		o.sides[i] = side{make([]ways, places.Flows), make([]ways, places.Machines), make([]ways, places.Ports)}
	}
	type kind struct {
		what string
		of   Direction
	}
	first := map[kind]int{}
	for i, s := range t.Sets {
		k := kind{strings.TrimRight(strings.TrimSuffix(s.Name, "_"+string(s.Direction)), "46"), s.Direction}
		if _, ok := first[k]; !ok {
			first[k] = i
		}
		o.twin = append(o.twin, first[k])
	}
	for i, l := range t.Limits {
		o.limits[i].Tokens = l.Clock(hz).Rate(l.Rate).Most
	}
	return o
}

// Connection counts a packet, and returns its connection with it. A packet of what
// arrives gets the machine's number that the other direction has learned. After
// Decide, Keep remembers the connection's mark.
func (o *Own) Connection(now unit.Instant, p *Packet) *Connection {
	o.half, o.other, o.way = nil, nil, p.Direction
	c := &Connection{}
	if p.Protocol != TCP && p.Protocol != UDP {
		return c
	}
	at, d := o.Ticks.now(now), p.Direction.index()
	k := Key{Home: p.Home, Far: p.Far, HomePort: p.HomePort, FarPort: p.FarPort, Protocol: p.Protocol}
	i := o.flowHash(k) & uint32(o.Places.Flows-1)
	other := o.sides[1-d].flows[i].find(k, at)
	if other != nil && p.Direction == Down {
		p.Machine = other.machine
	}
	o.other = other
	f, _ := o.sides[d].flows[i].take(k, at, other != nil)
	if f == nil {
		return c
	}
	f.bytes += uint64(p.Length)
	f.packets++
	f.machine, f.answered = p.Machine, other != nil
	keep := KeepStream
	switch {
	case other == nil:
		keep = KeepUnanswered
	case p.Protocol == UDP:
		keep = KeepDatagrams
	}
	f.keep = max(f.keep, at+o.Ticks.Of(keep))
	o.half = f
	c.Sent, c.Bytes, c.Mark = f.packets, unit.Size(f.bytes), f.mark
	if other != nil {
		c.Answered = true
		c.Replied, c.Bytes, c.Mark = other.packets, c.Bytes+unit.Size(other.bytes), c.Mark|other.mark
	}
	return c
}

// Keep remembers the mark of the connection that Connection returned last.
func (o *Own) Keep(c *Connection) {
	if o.half != nil {
		o.half.mark = c.Mark
	}
}

// find returns a key's place that is taken; nil if there is none.
func (b *ways) find(k Key, now uint64) *place {
	for i := range b {
		if b[i].key == k && b[i].keep > now {
			return &b[i]
		}
	}
	return nil
}

// take returns a key's place, or gives it one; nil if there is no room. fresh is
// true if it is new.
func (b *ways) take(k Key, now uint64, answered bool) (p *place, fresh bool) {
	for i := range b {
		if b[i].key == k {
			if p = &b[i]; p.keep > now {
				return p, false
			}
			break
		}
	}
	if p == nil {
		for i := range b {
			w := &b[i]
			if (w.keep <= now || answered && !w.answered) && (p == nil || w.keep < p.keep) {
				p = w
			}
		}
	}
	if p == nil {
		return nil, false
	}
	*p = place{key: k, since: now, until: map[int]uint64{}, buckets: map[int][2]OwnBucket{}}
	return p, true
}

// place returns that of a set's key, which it makes unless only an existing one
// will do.
func (o *Own) place(now uint64, s *Set, k Key, existing bool) *place {
	t := &o.sides[s.Direction.index()]
	switch s.Key {
	case FlowKey:
		if s.Direction != o.way {
			return o.other
		}
		return o.half
	case HomeAddress:
		m, _ := t.machines[o.machineHash(k)&uint32(o.Places.Machines-1)].take(k, now, true)
		if m != nil {
			m.keep, m.answered = now+o.Ticks.Of(KeepMachine), true
		}
		return m
	}
	b := &t.ports[o.portHash(k)&uint32(o.Places.Ports-1)]
	if existing {
		return b.find(k, now)
	}
	p, _ := b.take(k, now, true)
	if p != nil {
		p.keep, p.answered = max(p.keep, now+o.Ticks.Of(KeepPort)), true
	}
	return p
}

// Holds reports whether a set has a key now.
func (o *Own) Holds(now unit.Instant, s *Set, k Key) bool {
	at := o.Ticks.now(now)
	p := o.place(at, s, k, true)
	return p != nil && p.until[o.twin[s.index]] > at
}

// Remember adds a key to a set, or has it stay for another timeout.
func (o *Own) Remember(now unit.Instant, s *Set, k Key, again bool) bool {
	at := o.Ticks.now(now)
	p := o.place(at, s, k, false)
	if p == nil {
		return false
	}
	if i := o.twin[s.index]; again || p.until[i] <= at {
		p.until[i] = at + o.Ticks.Of(s.Timeout)
	}
	p.keep = max(p.keep, p.until[o.twin[s.index]])
	return true
}

// Meter charges the meters of a key; the first that does not fit ends it.
func (o *Own) Meter(now unit.Instant, s *Set, k Key, rates []Rate, bytes unit.Size) bool {
	at := o.Ticks.now(now)
	p := o.place(at, s, k, false)
	if p == nil {
		return false
	}
	b, met := p.buckets[o.twin[s.index]]
	if !met {
		for i, r := range rates {
			b[i] = OwnBucket{Tokens: o.Ticks.Rate(r).Most, At: p.since}
		}
	}
	p.until[o.twin[s.index]] = at + o.Ticks.Of(s.Timeout)
	defer func() { p.buckets[o.twin[s.index]] = b }()
	for i, r := range rates {
		units := uint64(1)
		if r.Bytes {
			units = uint64(bytes)
		}
		if b[i].exceeds(at, o.Ticks.Rate(r), units) != r.Over {
			return false
		}
	}
	return true
}

// Exceeds charges a limit that all share.
func (o *Own) Exceeds(now unit.Instant, l *Limit) bool {
	clock := l.Clock(o.Ticks)
	return o.limits[l.index].exceeds(clock.now(now), clock.Rate(l.Rate), 1) == l.Rate.Over
}

// Alternate is true for every second call.
func (o *Own) Alternate() bool {
	o.turns++
	return o.turns%2 == 1
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
func hashOf(h uint64) uint32 { return uint32(h * golden >> 32) }

func (o *Own) ofHome(k Key) uint64 { return mixed(uint64(o.Seed), k.Home) }

func (o *Own) flowHash(k Key) uint32 {
	return hashOf(mix(mixed(o.ofHome(k), k.Far), uint64(k.Protocol)<<32|uint64(k.HomePort)<<16|uint64(k.FarPort)))
}

func (o *Own) machineHash(k Key) uint32 {
	if k.Machine == 0 {
		return hashOf(o.ofHome(k))
	}
	var number [8]byte // the last word of an address
	binary.NativeEndian.PutUint32(number[4:], uint32(k.Machine))
	return hashOf(mix(mix(uint64(o.Seed), 0), binary.NativeEndian.Uint64(number[:])))
}

func (o *Own) portHash(k Key) uint32 { return hashOf(mix(o.ofHome(k), uint64(k.HomePort))) }
