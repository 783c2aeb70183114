package aqm

import (
	"fmt"

	"unbloat/unit"
)

// fqFlow is one bucket of FQ-CoDel.
type fqFlow struct {
	codelQueue
	deficit int32
	next    uint32 // next flow of its list, index + 1; 0 ends the list
	active  bool   // in one of the lists
}

// flowList is a FIFO of flows. Links are index + 1, so that 0 means "none".
type flowList struct{ head, tail uint32 }

// FQCoDel is deficit round robin over flows with CoDel in each of them; flows
// that build no queue go first (RFC 8290).
type FQCoDel struct {
	store
	law     codelLaw
	params  FQCoDelParams
	limit   int
	flows   []fqFlow
	fresh   flowList // new flows, served first
	old     flowList
	quantum int32
	minimum int32 // a flow is served from this deficit on
}

// NewFQCoDel returns an empty queue, or an error that names the bad parameter.
func NewFQCoDel(p FQCoDelParams) (*FQCoDel, error) {
	if p.Flows < 1 || p.Flows > 1<<16 {
		return nil, fmt.Errorf("fq_codel: %d flows; 1 to 65536 are possible", p.Flows)
	}
	if p.Quantum < 1 || p.Quantum > 1<<20 {
		return nil, fmt.Errorf("fq_codel: quantum of %d bytes; 1 to 1048576 are possible", p.Quantum)
	}
	if p.Memory < 0 || p.Batch < 0 {
		return nil, fmt.Errorf("fq_codel: negative memory or batch")
	}
	law, err := newCoDelLaw(p.CoDel, p.Quantum)
	if err != nil {
		return nil, fmt.Errorf("fq_codel: %w", err)
	}
	q := &FQCoDel{
		law: law, params: p, limit: p.CoDel.Packets, quantum: int32(max(p.Quantum, law.leastQuantum)), minimum: 1,
		flows: make([]fqFlow, p.Flows),
	}
	if law.fixedLimit > 0 {
		q.limit = law.fixedLimit - 1
	}
	if law.strictDeficit {
		q.minimum = 0
	}
	if q.params.Batch == 0 {
		q.params.Batch = 64
	}
	q.store = newStore(p.CoDel.Drop)
	return q, nil
}

// Enqueue implements Queue.
func (q *FQCoDel) Enqueue(now unit.Instant, p Packet) {
	n := q.admit(now, p)
	i := p.Flow % uint32(len(q.flows))
	f := &q.flows[i]
	f.largest = max(f.largest, uint32(p.Size))
	q.push(&f.chain, n)
	if !f.active {
		f.active = true
		f.deficit = q.quantum
		if q.law.freshStart {
			f.dropping, f.firstAbove = false, 0
		}
		q.append(&q.fresh, i)
	}
	if q.stats.Packets > q.limit || q.params.Memory > 0 && q.memory > int64(q.params.Memory) {
		q.overflow(now)
	}
}

// overflow makes room at the expense of the fattest flow.
func (q *FQCoDel) overflow(now unit.Instant) {
	byPackets := q.law.relief == dropOneCount
	var fat *fqFlow
	most := uint32(0)
	for i := range q.flows { // the first of equals
		size := q.flows[i].bytes
		if byPackets {
			size = q.flows[i].packets
		}
		if size > most {
			fat, most = &q.flows[i], size
		}
	}
	switch q.law.relief {
	case dropHalf:
		var dropped int
		for gone := uint32(0); dropped == 0 || dropped < q.params.Batch && gone < most/2; dropped++ {
			n := q.pop(&fat.chain)
			gone += uint32(q.nodes[n].Size)
			q.drop(now, n, Overlimit)
		}
		if q.law.countDrops {
			fat.count += uint32(dropped)
		}
	case dropHalfCount:
		batch := max(1, min(fat.packets/2, uint32(q.params.Batch)))
		for range batch {
			q.drop(now, q.pop(&fat.chain), Overlimit)
		}
	default:
		q.drop(now, q.pop(&fat.chain), Overlimit)
	}
}

// Dequeue implements Queue.
func (q *FQCoDel) Dequeue(now unit.Instant) (Packet, bool) {
	for {
		list := &q.fresh
		if list.head == 0 {
			list = &q.old
			if list.head == 0 {
				return Packet{}, false
			}
		}
		i := list.head - 1
		f := &q.flows[i]
		if f.deficit < q.minimum {
			f.deficit += q.quantum
			q.remove(list)
			q.append(&q.old, i)
			continue
		}
		if n := q.law.dequeue(&q.store, &f.codelQueue, now); n != 0 {
			f.deficit -= int32(q.nodes[n].Size)
			return q.send(n), true
		}
		q.remove(list)
		// A new flow passes through the old ones before it may be new again,
		// or flows could starve the others by pausing (RFC 8290 section 4.2).
		if list == &q.fresh && (q.old.head != 0 || q.law.alwaysOld) {
			q.append(&q.old, i)
		} else {
			f.active = false
		}
	}
}

// Next implements Queue: FQ-CoDel never holds a packet back.
func (q *FQCoDel) Next(now unit.Instant) (unit.Instant, bool) { return q.next(now) }

// append puts flow i at the end of list.
func (q *FQCoDel) append(list *flowList, i uint32) {
	q.flows[i].next = 0
	if list.head == 0 {
		list.head = i + 1
	} else {
		q.flows[list.tail-1].next = i + 1
	}
	list.tail = i + 1
}

// remove takes the first flow off list.
func (q *FQCoDel) remove(list *flowList) { list.head = q.flows[list.head-1].next }

var _ Queue = (*FQCoDel)(nil)
