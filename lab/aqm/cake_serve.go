package aqm

import (
	"math"

	"unbloat/unit"
)

// Dequeue implements Queue.
func (q *Cake) Dequeue(now unit.Instant) (Packet, bool) {
	first := true // the first look of a dequeue goes to a decaying flow
	for q.stats.Packets > 0 {
		if q.nextAt > now && q.failsafe > now {
			break
		}
		t := q.turn(now)
		if t == nil {
			break
		}
		if n := q.serve(t, now, &first); n != 0 {
			return q.send(n), true
		}
	}
	return Packet{}, false
}

// turn returns the tin to serve, or nil if none has flows.
func (q *Cake) turn(now unit.Instant) *cakeTin {
	if !q.shaped {
		return q.nextTin()
	}
	// The last tin that is within its share, else the one that will be next.
	var best *cakeTin
	soonest := int64(math.MaxInt64)
	for i := range q.tins {
		t := &q.tins[i]
		if t.bulk+t.sparse == 0 {
			continue
		}
		if wait := int64(t.next - now); wait <= 0 || wait <= soonest {
			best, soonest = t, wait
		}
	}
	return best
}

// nextTin gives each tin its weight in turn.
func (q *Cake) nextTin() *cakeTin {
	busy := false
	for i := range q.tins {
		busy = busy || q.tins[i].bulk+q.tins[i].sparse > 0
	}
	if !busy {
		return nil
	}
	t := &q.tins[q.current]
	for t.deficit < 0 || t.bulk+t.sparse == 0 {
		if t.deficit <= 0 {
			t.deficit += t.weight
		}
		q.current = (q.current + 1) % len(q.tins)
		t = &q.tins[q.current]
	}
	return t
}

// serve takes a packet of the tin and charges it. It returns 0 when a flow was
// found empty: then another tin may be next.
func (q *Cake) serve(t *cakeTin, now unit.Instant, first *bool) uint32 {
	for {
		place := t.pick(first)
		if place >= setPlaces {
			return 0
		}
		f := &t.flows[place]
		if f.deficit <= 0 {
			q.nextRound(t, place)
			continue
		}
		n, again := q.pull(t, f, now)
		if again {
			continue
		}
		if n == 0 {
			t.retire(place, q.params.Isolation, now)
			return 0
		}
		wire := q.charge(t, q.nodes[n].Size, now, false)
		f.deficit -= wire
		t.deficit -= wire
		return n
	}
}

// pick returns the flow whose turn it is: sparse ones before bulk ones, and
// once in a dequeue one that fades. A place of a ring means there is none.
func (t *cakeTin) pick(first *bool) uint16 {
	if *first {
		*first = false
		if p := t.first(ringDecaying); p < setPlaces {
			return p
		}
	}
	for _, ring := range [...]uint16{ringNew, ringOld, ringDecaying} {
		if p := t.first(ring); p < setPlaces {
			return p
		}
	}
	return ringEnd
}

// nextRound gives a flow that has used its quantum another one, at the end of
// the bulk rotation.
func (q *Cake) nextRound(t *cakeTin, place uint16) {
	f := &t.flows[place]
	t.move(place, ringOld)
	if f.set == setSparse {
		if f.head != 0 {
			t.sparse--
			t.makeBulk(f, q.params.Isolation)
		} else {
			f.set = setWaiting
		}
	}
	f.deficit += q.share(t, f)
}

// pull takes packets off f until COBALT lets one pass. The last packet of a
// queue is never dropped. again means that, in ingress mode, a dropped packet
// was charged, and the choice of flow is open again.
func (q *Cake) pull(t *cakeTin, f *cakeFlow, now unit.Instant) (n uint32, again bool) {
	bulk := int64(0)
	if q.params.Ingress {
		bulk = int64(t.bulk)
	}
	for {
		n = q.pop(&f.chain)
		if n == 0 {
			f.empty(&t.cobalt, now)
			return 0, false
		}
		t.packets--
		random := uint32(0)
		if f.pDrop > 0 {
			random = uint32(q.random.Uint64() >> 32)
		}
		if !f.shouldDrop(&t.cobalt, &q.store, n, now, bulk, random) || f.head == 0 {
			return n, false
		}
		if q.params.Ingress {
			wire := q.charge(t, q.nodes[n].Size, now, true)
			f.deficit -= wire
			t.deficit -= wire
		}
		q.drop(now, n, Signal)
		if q.params.Ingress {
			return 0, true
		}
	}
}

// retire takes an empty flow out of the rotation. While COBALT still remembers
// something, the flow stays where its memory fades.
func (t *cakeTin) retire(place uint16, by Isolation, now unit.Instant) {
	f := &t.flows[place]
	switch f.set {
	case setBulk:
		t.bulk--
		t.countBulk(f, by, -1)
	case setSparse, setWaiting:
		t.sparse--
	}
	if f.atRest(now) {
		t.leave(place)
		f.set = setNone
	} else {
		t.move(place, ringDecaying)
		f.set = setDecaying
	}
}
