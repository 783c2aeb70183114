package aqm

import (
	"errors"
	"fmt"

	"unbloat/unit"
)

// WeightedParams sets Weighted up.
type WeightedParams struct {
	Queues  []Queue          // none of them may hold its packets back
	Weights []int            // of each, 1 to 100
	Of      func(Packet) int // the queue of a packet, from 0
}

// Weighted is WF2Q+ (Bennett and Zhang, INFOCOM 1996) over a few queues, as
// dummynet's scheduler of that name: of the queues that have not been ahead of
// their weight it serves the one whose first packet would end first. A queue that
// sends less than its weight allows waits for about one packet.
//
// The length of the next packet decides, so each queue's first packet is taken off
// it when it becomes the first, and still counts as queued. CoDel then does not see
// how long it waits there.
type Weighted struct {
	params WeightedParams
	lanes  []weightedLane
	v      int64 // virtual time, in bytes × weightScale of all queues together
	sum    int64
}

// weightScale keeps what divisions by a weight round away small.
const weightScale = 1 << 16

type weightedLane struct {
	held   Packet
	holds  bool
	weight int64
	s, f   int64 // virtual start and end of the first packet
}

// NewWeighted returns an empty one, or an error that names the bad parameter.
func NewWeighted(p WeightedParams) (*Weighted, error) {
	if len(p.Queues) == 0 || len(p.Queues) != len(p.Weights) || p.Of == nil {
		return nil, errors.New("weighted: needs queues, a weight for each, and what tells the queue of a packet")
	}
	w := &Weighted{params: p}
	for i, n := range p.Weights {
		if n < 1 || n > 100 {
			return nil, fmt.Errorf("weighted: weight %d of queue %d is not within 1 to 100", n, i)
		}
		w.lanes = append(w.lanes, weightedLane{weight: int64(n)})
		w.sum += int64(n)
	}
	return w, nil
}

// Enqueue implements Queue.
func (w *Weighted) Enqueue(now unit.Instant, p Packet) {
	i := w.params.Of(p)
	w.params.Queues[i].Enqueue(now, p)
	if !w.lanes[i].holds {
		w.lanes[i].s = max(w.lanes[i].f, w.v)
		w.hold(now, i)
	}
}

// hold takes the next packet off a queue. Its start is that of the lane.
func (w *Weighted) hold(now unit.Instant, i int) {
	l := &w.lanes[i]
	if l.held, l.holds = w.params.Queues[i].Dequeue(now); l.holds {
		l.f = l.s + int64(l.held.Size)*weightScale/l.weight
	}
}

// Dequeue implements Queue.
func (w *Weighted) Dequeue(now unit.Instant) (Packet, bool) {
	first := int64(-1)
	for i := range w.lanes {
		if l := &w.lanes[i]; l.holds && (first < 0 || l.s < first) {
			first = l.s
		}
	}
	if first < 0 {
		return Packet{}, false
	}
	w.v = max(w.v, first)
	at := -1
	for i := range w.lanes {
		if l := &w.lanes[i]; l.holds && l.s <= w.v && (at < 0 || l.f < w.lanes[at].f) {
			at = i
		}
	}
	l := &w.lanes[at]
	p := l.held
	w.v += int64(p.Size) * weightScale / w.sum
	l.s = l.f
	w.hold(now, at)
	return p, true
}

// Next implements Queue: Weighted never holds a packet back.
func (w *Weighted) Next(now unit.Instant) (unit.Instant, bool) {
	for i := range w.lanes {
		if w.lanes[i].holds {
			return now, true
		}
	}
	return 0, false
}

// Len implements Queue.
func (w *Weighted) Len() int { return w.Stats().Packets }

// Stats implements Queue.
func (w *Weighted) Stats() Stats {
	var s Stats
	for i, q := range w.params.Queues {
		s = s.plus(q.Stats())
		if l := &w.lanes[i]; l.holds {
			s = s.holding(l.held)
		}
	}
	return s
}

var _ Queue = (*Weighted)(nil)
