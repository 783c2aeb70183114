package aqm

import (
	"fmt"

	"unbloat/unit"
)

// StartTimeParams sets start-time fair queueing up. CoDel is as for FQCoDel:
// Packets is the limit of all flows together.
type StartTimeParams struct {
	CoDel CoDelParams
}

// DefaultStartTime returns the dialect's CoDel with FQ-CoDel's limit.
func DefaultStartTime(d Dialect) StartTimeParams {
	return StartTimeParams{CoDel: DefaultFQCoDel(d).CoDel}
}

// stFlow is one flow of StartTime.
type stFlow struct {
	codelQueue
	tag   uint64 // start of its head packet, in bytes of virtual time; its finish when idle
	key   uint64 // what it is served by: the tag, or earlier after it was idle
	order uint64 // when it became active, counted; 0 once it has been served
	busy  bool   // in the heap
}

// StartTime is start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996)
// with CoDel in each flow. A flow that stays under its fair share waits for
// about one packet, however many others are greedy; deficit round robin makes
// it wait a whole round once it has been served.
//
// Each flow has one tag, charged when a packet is served: tags given to
// packets on arrival would charge a flow for what CoDel drops and starve it.
// Flows have places in CAKE's set-associative hash, so that few share one.
type StartTime struct {
	store
	law   codelLaw
	limit int
	hash  setHash
	flows []stFlow
	heap  []uint32 // active flows, the smallest key first
	now   uint64   // virtual time: the key of the packet last served
	most  uint64   // largest finish so far; virtual time after idleness
	count uint64   // activations so far
}

// NewStartTime returns an empty queue, or an error that names the bad parameter.
func NewStartTime(p StartTimeParams) (*StartTime, error) {
	law, err := newCoDelLaw(p.CoDel, p.CoDel.MTU)
	if err != nil {
		return nil, fmt.Errorf("start-time fair queueing: %w", err)
	}
	return &StartTime{
		store: newStore(p.CoDel.Drop), law: law, limit: p.CoDel.Packets,
		flows: make([]stFlow, setPlaces),
	}, nil
}

// Enqueue implements Queue. Over the limit, the flow with most bytes loses its head.
func (q *StartTime) Enqueue(now unit.Instant, p Packet) {
	i, _ := q.hash.find(p.Flow, func(i uint32) bool { return q.flows[i].busy })
	f := &q.flows[i]
	n := q.admit(now, p)
	f.largest = max(f.largest, uint32(p.Size))
	q.push(&f.chain, n)
	if !f.busy {
		if len(q.heap) == 0 {
			q.now = q.most
		}
		f.tag = max(f.tag, q.now)
		// A flow that was idle may start up to an MTU early, but its tag does
		// not forget it: over time it gets no more than its share. Without
		// this, flows that keep equal tags would make virtual time stand still
		// for a round, and a flow served in that round would wait for its end.
		f.key = max(q.now, f.tag-min(f.tag, uint64(q.law.mtu)))
		q.count++
		f.order = q.count
		f.busy = true
		q.insert(i)
	}
	if q.stats.Packets <= q.limit {
		return
	}
	fat := i
	for _, j := range q.heap {
		if q.flows[j].bytes > q.flows[fat].bytes {
			fat = j
		}
	}
	q.drop(now, q.pop(&q.flows[fat].chain), Overlimit)
}

// Dequeue implements Queue.
func (q *StartTime) Dequeue(now unit.Instant) (Packet, bool) {
	for len(q.heap) > 0 {
		i := q.heap[0]
		f := &q.flows[i]
		n := q.law.dequeue(&q.store, &f.codelQueue, now)
		if n == 0 { // idle: it was left in the heap with its last packet
			q.removeFirst()
			continue
		}
		q.now = max(q.now, f.key)
		q.bill(f, q.nodes[n].Size)
		if f.head == 0 {
			q.removeFirst()
		} else {
			q.sink()
		}
		return q.send(n), true
	}
	return Packet{}, false
}

// bill charges a flow for a packet in its turn. It goes behind any flow that
// becomes active at the same key.
func (q *StartTime) bill(f *stFlow, size unit.Size) {
	f.tag += uint64(size)
	f.key, f.order = f.tag, 0
	q.most = max(q.most, f.tag)
}

// first returns the key of the flow whose packet is at the head of the one that
// is served next; false when the queue is empty.
func (q *StartTime) first() (uint32, bool) {
	for len(q.heap) > 0 {
		if head := q.flows[q.heap[0]].head; head != 0 {
			return q.nodes[head].Flow, true
		}
		q.removeFirst()
	}
	return 0, false
}

// charge charges the flow that is served next for a packet that it sent past
// this queue.
func (q *StartTime) charge(size unit.Size) {
	q.bill(&q.flows[q.heap[0]], size)
	q.sink()
}

// dequeueOf is Dequeue out of turn, for the flow with that key; or Dequeue, if
// that flow lost its place to another.
func (q *StartTime) dequeueOf(now unit.Instant, key uint32) (Packet, bool) {
	i, ok := q.hash.lookup(key)
	if !ok || !q.flows[i].busy {
		return q.Dequeue(now)
	}
	f := &q.flows[i]
	n := q.law.dequeue(&q.store, &f.codelQueue, now)
	if n == 0 { // its place in the heap is cleared when it comes up
		return q.Dequeue(now)
	}
	f.tag += uint64(q.nodes[n].Size)
	q.most = max(q.most, f.tag)
	return q.send(n), true
}

// Next implements Queue: it never holds a packet back.
func (q *StartTime) Next(now unit.Instant) (unit.Instant, bool) { return q.next(now) }

// before says whether flow i is served before flow j: the smaller key first,
// then the flow that was idle last.
func (q *StartTime) before(i, j uint32) bool {
	a, b := &q.flows[i], &q.flows[j]
	if a.key != b.key {
		return a.key < b.key
	}
	return a.order > b.order
}

// insert puts flow i into the heap.
func (q *StartTime) insert(i uint32) {
	h := append(q.heap, i)
	at := len(h) - 1
	for at > 0 && q.before(i, h[(at-1)/2]) {
		h[at] = h[(at-1)/2]
		at = (at - 1) / 2
	}
	h[at] = i
	q.heap = h
}

// removeFirst takes the first flow out of the heap.
func (q *StartTime) removeFirst() {
	q.flows[q.heap[0]].busy = false
	last := len(q.heap) - 1
	q.heap[0] = q.heap[last]
	q.heap = q.heap[:last]
	q.sink()
}

// sink moves the first flow of the heap down to where it belongs.
func (q *StartTime) sink() {
	h, at := q.heap, 0
	for {
		child := 2*at + 1
		if child+1 < len(h) && q.before(h[child+1], h[child]) {
			child++
		}
		if child >= len(h) || !q.before(h[child], h[at]) {
			return
		}
		h[at], h[child] = h[child], h[at]
		at = child
	}
}

var _ Queue = (*StartTime)(nil)
