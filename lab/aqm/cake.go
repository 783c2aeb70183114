package aqm

import (
	"errors"
	"math/rand/v2"

	"unbloat/unit"
)

// cakeSet is the rotation a flow is in.
type cakeSet uint8

const (
	setNone     cakeSet = iota // idle
	setSparse                  // new: served before the bulk flows
	setWaiting                 // sparse and empty, but in the bulk rotation to pay its debt
	setBulk                    // has had its quantum and wants more
	setDecaying                // empty; only COBALT's memory of it fades
)

// cakeFlow is one queue of a tin.
type cakeFlow struct {
	chain
	cobaltState
	deficit      int32
	host         [2]uint16 // places of its source and its destination in cakeTin.hosts
	before, next uint16    // neighbours in its rotation, see cakeTin.flows
	set          cakeSet
}

// cakeHosts counts the bulk flows of each host, as source or as destination.
type cakeHosts struct {
	setHash
	bulk [setPlaces]uint16
}

// The rotations of a tin are rings through three further entries of its flows.
const (
	ringNew = setPlaces + iota
	ringOld
	ringDecaying
	ringEnd
)

// cakeTin is one class of traffic.
type cakeTin struct {
	flows        [ringEnd]cakeFlow // the last three are the heads of the rings
	hash         setHash
	hosts        [2]cakeHosts // sources and destinations
	cobalt       cobaltParams
	pace         fixedRate    // the tin's share of the rate
	next         unit.Instant // until when it has used its share
	packets      int
	bulk, sparse int   // flows in these states; waiting ones count as sparse
	quantum      int32 // bytes of one flow a round, before it is shared
	weight       int32 // bytes of the tin a round, when nothing is shaped
	deficit      int32
}

// Cake is CAKE: a shaper that knows the link layer, tins for code points,
// fairness among hosts and flows, and COBALT in each queue (sch_cake.c).
//
// Left out are what needs a packet's bytes or the system (the ACK filter, GSO
// splitting, NAT look-up, washing: the caller's keys and code points say what
// counts) and autorate-ingress.
type Cake struct {
	store
	params      CakeParams
	tins        []cakeTin
	tinOf       [64]uint8
	pace        fixedRate
	shaped      bool
	nextAt      unit.Instant // when the shaper lets the next packet go
	failsafe    unit.Instant // the same without the charge of dropped ones, 1.5 times as slow
	memoryLimit int64
	current     int // tin whose turn it is, when nothing is shaped
	random      *rand.PCG
}

// NewCake returns an empty CAKE, or an error that names the bad parameter.
func NewCake(p CakeParams) (*Cake, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	shares := p.Tins.shares(p.Rate)
	q := &Cake{
		params: p, tins: make([]cakeTin, len(shares)), tinOf: p.Tins.index(),
		shaped: p.Rate > 0, memoryLimit: p.memoryLimit(), random: rand.NewPCG(p.Seed, 0x6361_6b65),
	}
	q.store = newStore(p.Drop)
	for i, s := range shares {
		t := &q.tins[i]
		t.configure(p, s)
		for ring := uint16(ringNew); ring < ringEnd; ring++ {
			t.flows[ring].before, t.flows[ring].next = ring, ring
		}
	}
	q.pace = q.tins[0].pace
	return q, nil
}

// Enqueue implements Queue.
func (q *Cake) Enqueue(now unit.Instant, p Packet) {
	if q.stats.Packets == 0 && q.nextAt < now {
		q.nextAt, q.failsafe = now, now
	}
	t := &q.tins[q.tinOf[p.DSCP&63]]
	if t.packets == 0 {
		t.next = max(t.next, now)
	}
	place := t.classify(&p, q.params.Isolation)
	f := &t.flows[place]
	n := q.admit(now, p)
	q.push(&f.chain, n)
	t.packets++
	switch f.set {
	case setNone, setDecaying:
		t.move(place, ringNew)
		f.set = setSparse
		t.sparse++
		f.deficit = q.share(t, f)
	case setWaiting: // it came back before its debt was paid
		t.sparse--
		t.makeBulk(f, q.params.Isolation)
	}
	for q.memory > q.memoryLimit {
		q.overflow(now)
	}
}

// overflow drops the head of the queue with most bytes.
func (q *Cake) overflow(now unit.Instant) {
	var fat *cakeFlow
	var tin *cakeTin
	most := uint32(0)
	for i := range q.tins {
		t := &q.tins[i]
		if t.packets == 0 {
			continue
		}
		for j := range setPlaces {
			if f := &t.flows[j]; f.bytes > most {
				fat, tin, most = f, t, f.bytes
			}
		}
	}
	n := q.pop(&fat.chain)
	tin.packets--
	fat.full(&tin.cobalt, now)
	if q.params.Ingress {
		q.charge(tin, q.nodes[n].Size, now, true)
	}
	q.drop(now, n, Overlimit)
}

// charge advances the shapers by one packet, and returns its bytes on the wire.
func (q *Cake) charge(t *cakeTin, size unit.Size, now unit.Instant, dropped bool) int32 {
	wire := q.params.Framing.Wire(size)
	if q.shaped {
		own := unit.Instant(t.pace.time(wire))
		if t.next < now {
			t.next += own
		} else if t.next < now+own {
			t.next = now + own
		}
		all := unit.Instant(q.pace.time(wire))
		q.nextAt += all
		if !dropped {
			q.failsafe += all + all>>1
		}
	}
	return int32(wire)
}

// Next implements Queue.
func (q *Cake) Next(now unit.Instant) (unit.Instant, bool) {
	return max(now, min(q.nextAt, q.failsafe)), q.stats.Packets > 0
}

// share returns the quantum of f: the tin's, divided by the number of bulk
// flows of the busier of its hosts, and rounded up or down by chance so that
// the fractions are not lost.
func (q *Cake) share(t *cakeTin, f *cakeFlow) int32 {
	load := uint32(1)
	for side := range t.hosts {
		if q.params.Isolation.counts(side) {
			load = max(load, uint32(t.hosts[side].bulk[f.host[side]]))
		}
	}
	return int32((uint32(t.quantum)*(65535/load) + uint32(q.random.Uint64()>>48)) >> 16)
}

// classify returns the place of p's queue, and finds its hosts if it is new there.
func (t *cakeTin) classify(p *Packet, by Isolation) uint16 {
	key := by.key(p)
	if by == NoIsolation {
		return 0
	}
	place, newcomer := t.hash.find(key, func(i uint32) bool { return t.flows[i].set != setNone })
	if !newcomer {
		return uint16(place)
	}
	f := &t.flows[place]
	bulk := f.set == setBulk // a collision: the queue changes hosts while it is counted
	if bulk {
		t.countBulk(f, by, -1)
	}
	for side, key := range [2]uint32{p.Source, p.Destination} {
		if h := &t.hosts[side]; by.counts(side) {
			place, _ := h.find(key, func(i uint32) bool { return h.bulk[i] > 0 })
			f.host[side] = uint16(place)
		}
	}
	if bulk {
		t.countBulk(f, by, 1)
	}
	return uint16(place)
}

// countBulk adds d to the bulk flows of f's hosts.
func (t *cakeTin) countBulk(f *cakeFlow, by Isolation, d int) {
	for side := range t.hosts {
		if by.counts(side) {
			t.hosts[side].bulk[f.host[side]] += uint16(d)
		}
	}
}

// makeBulk counts f as a bulk flow from now on.
func (t *cakeTin) makeBulk(f *cakeFlow, by Isolation) {
	f.set = setBulk
	t.bulk++
	t.countBulk(f, by, 1)
}

// move takes the flow at place out of its ring, if any, and to the end of ring.
func (t *cakeTin) move(place, ring uint16) {
	t.leave(place)
	f, head := &t.flows[place], &t.flows[ring]
	f.before, f.next = head.before, ring
	t.flows[head.before].next = place
	head.before = place
}

// leave takes the flow at place out of its ring, if it is in one.
func (t *cakeTin) leave(place uint16) {
	f := &t.flows[place]
	if f.set == setNone {
		return
	}
	t.flows[f.before].next = f.next
	t.flows[f.next].before = f.before
}

// first returns the first flow of a ring, or the ring itself if that is empty.
func (t *cakeTin) first(ring uint16) uint16 { return t.flows[ring].next }

var _ Queue = (*Cake)(nil)

// SetRate changes the rate in place, as `tc qdisc change` does: what waits stays. The
// error names a rate that is not possible; then nothing has changed.
func (q *Cake) SetRate(r unit.Rate) error {
	p := q.params
	p.Rate = r
	if err := p.check(); err != nil {
		return err
	}
	if !q.shaped || r == 0 {
		return errors.New("cake: a queue with a rate stays one with a rate, and one without stays without")
	}
	q.params, q.memoryLimit = p, p.memoryLimit()
	for i, s := range p.Tins.shares(r) {
		q.tins[i].configure(p, s)
	}
	q.pace = q.tins[0].pace
	return nil
}

// configure gives a tin its share of the rate, and what follows from it.
func (t *cakeTin) configure(p CakeParams, s tinShare) {
	t.weight = s.weight
	t.quantum = 1514
	mtuTime := int64(0)
	if p.Rate > 0 {
		// A millisecond's worth at most, so that slow links take turns
		// within a packet (sch_cake.c: rate in bytes >> 12).
		t.quantum = int32(max(300, min(int64(s.rate/8)>>12, 1514)))
		t.pace = newFixedRate(s.rate)
		mtuTime = t.pace.time(p.MTU)
	}
	t.cobalt = newCobaltParams(int64(p.Target), int64(p.Interval), mtuTime)
}
