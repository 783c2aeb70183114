package aqm

import (
	"errors"
	"fmt"
	"math/bits"

	"unbloat/unit"
)

// SparseFirstParams sets SparseFirst up. DefaultSparseFirst fills it.
type SparseFirstParams struct {
	StartTime StartTimeParams // of all lanes; its limit holds for each
	Rate      unit.Rate       // what the link carries, or the shaper before it
	// FlowRate and FlowBurst say what is sparse: a flow that at no time sends
	// more than FlowBurst + FlowRate × t. A burst below the longest packet
	// keeps flows of full packets out, however few they send.
	FlowRate  unit.Rate
	FlowBurst unit.Size
	// Share is how much of Rate all sparse flows together may take before
	// others, in 1/16; what exceeds it waits as the others do.
	Share int
	Seed  uint64 // mixed into flow keys, so that nobody can choose ones that collide
}

// DefaultSparseFirst returns what suits calls on a link of that rate: flows of
// a fortieth of it, but at least 100 kbit/s, together at most half.
func DefaultSparseFirst(d Dialect, rate unit.Rate) SparseFirstParams {
	return SparseFirstParams{
		StartTime: DefaultStartTime(d), Rate: rate,
		FlowRate: max(rate/40, 100*unit.KbitPerSecond), FlowBurst: 600, Share: 8,
	}
}

// sparseFlow is what is known of one flow.
type sparseFlow struct {
	key    uint32 // mixed
	lane   uint8  // of the first lanes: where its packets wait
	ahead  int32  // packets there
	queued int32  // packets in the lane of the others
	tokens int64  // bytes × 8e9, as of filled
	used   int64  // bytes that it sent in the last second or so
	filled unit.Instant
}

// SparseFirst is start-time fair queueing with a bounded guarantee: flows that
// stay sparse have lanes of their own, which go first up to a share of the
// rate. A fair queue alone gives a call no more than its fair share, which among
// 200 flows on a slow link is less than it needs.
//
// Among sparse flows, those go first that used least in the last second, by
// eighths of FlowRate; flows of the same eighth are fair to each other. So flows
// that abuse the guarantee, keeping just below the threshold, stand behind a
// call, however many they are; and together they have no more than the share, so
// that all others keep the rest. Flows that send as a call does cannot be told
// from one; too many of them get their fair share of the lane.
//
// A flow whose packets wait in the lane of the others stays there until they
// are gone; when its turn comes there, what it still has in a first lane goes
// before, so that nothing is reordered.
type SparseFirst struct {
	params   SparseFirstParams
	lanes    [sparseLanes]*StartTime
	rest     *StartTime
	flows    []sparseFlow      // in sets of sparseWays
	strange  [sparseSets]int32 // packets in the lane of the others of flows without an entry
	most     int64             // tokens of a flow's full bucket
	lane     int64             // what the first lanes may send now, bytes × 8e9 × 16
	laneMost int64
	filled   unit.Instant
}

const (
	laneSpan    = 50e6 // ns of the lanes' share that they may save up
	sparseLanes = 8
	laneLimit   = 1000 // packets in one of the first lanes
	sparseSets  = 1024 // of the table of flows,
	sparseWays  = 4    // so that a call and one of 200 flows never have to share a place
	mixFactor   = 0x9E3779B1
	unmixFactor = 0xE8B2F51  // mixFactor × unmixFactor = 1 modulo 2³²
	penalty     = int64(1e9) // ns that a flow is not sparse after it sent too much
	usedSpan    = int64(1e9) // ns after which use is forgotten
)

// tokenUnit is one byte in tokens: a rate in bit/s earns its own value each ns.
const tokenUnit = 8e9

// NewSparseFirst returns an empty queue, or an error that names the bad parameter.
func NewSparseFirst(p SparseFirstParams) (*SparseFirst, error) {
	switch {
	case p.Rate < 512 || p.Rate > 2e9 || p.FlowRate < 512 || p.FlowRate > p.Rate:
		return nil, fmt.Errorf("sparse first: rates of %d and %d bit/s; 512 ≤ flow rate ≤ rate ≤ 2e9 is possible", int64(p.FlowRate), int64(p.Rate))
	case p.FlowBurst < 1 || p.FlowBurst > maxPacketSize:
		return nil, errors.New("sparse first: a flow's burst is between 1 byte and 64 KiB")
	case p.Share < 1 || p.Share > 16:
		return nil, errors.New("sparse first: the share is between 1 and 16 sixteenths")
	}
	q := &SparseFirst{params: p, flows: make([]sparseFlow, sparseSets*sparseWays), most: int64(p.FlowBurst) * tokenUnit}
	q.laneMost = max(int64(p.StartTime.CoDel.MTU)*tokenUnit*16, int64(p.Rate)*int64(p.Share)*laneSpan)
	for i := range q.flows {
		q.flows[i].tokens = q.most
	}
	q.lane = q.laneMost
	first, rest := p.StartTime, p.StartTime
	first.CoDel.MTU, first.CoDel.Packets = p.FlowBurst, min(laneLimit, first.CoDel.Packets)
	first.CoDel.Drop, rest.CoDel.Drop = q.dropped(q.leftFirst), q.dropped(q.left)
	var err error
	if q.rest, err = NewStartTime(rest); err != nil {
		return nil, fmt.Errorf("sparse first: %w", err)
	}
	for i := range q.lanes {
		if q.lanes[i], err = NewStartTime(first); err != nil {
			return nil, fmt.Errorf("sparse first: %w", err)
		}
	}
	return q, nil
}

// dropped returns the DropFunc of a lane.
func (q *SparseFirst) dropped(left func(Packet)) DropFunc {
	return func(now unit.Instant, p Packet, why Reason) {
		left(p)
		if tell := q.params.StartTime.CoDel.Drop; tell != nil {
			p.Flow = q.unmix(p.Flow)
			tell(now, p, why)
		}
	}
}

// entry returns what is known of the flow with a mixed key, nil for nothing.
func (q *SparseFirst) entry(key uint32) *sparseFlow {
	set := q.flows[key%sparseSets*sparseWays:][:sparseWays]
	for i := range set {
		if set[i].key == key {
			return &set[i]
		}
	}
	return nil
}

// claim returns the entry of a flow, in the place of the one that was idle for
// longest if it is new; nil if no place is free.
func (q *SparseFirst) claim(key uint32) *sparseFlow {
	if f := q.entry(key); f != nil {
		return f
	}
	if q.strange[key%sparseSets] > 0 { // perhaps its own: they must not be overtaken
		return nil
	}
	set := q.flows[key%sparseSets*sparseWays:][:sparseWays]
	var idle *sparseFlow
	for i := range set {
		if f := &set[i]; f.ahead+f.queued == 0 && (idle == nil || f.filled < idle.filled) {
			idle = f
		}
	}
	if idle != nil {
		*idle = sparseFlow{key: key, tokens: q.most}
	}
	return idle
}

// Enqueue implements Queue.
func (q *SparseFirst) Enqueue(now unit.Instant, p Packet) {
	p.Flow = q.mix(p.Flow)
	f := q.claim(p.Flow)
	if f == nil {
		q.strange[p.Flow%sparseSets]++
		q.rest.Enqueue(now, p)
		return
	}
	rate := int64(q.params.FlowRate)
	passed := int64(now - f.filled)
	f.filled = now
	f.tokens = min(q.most, f.tokens+min(passed, q.most/rate+penalty)*rate)
	f.used += int64(p.Size) - f.used*min(passed, usedSpan)/usedSpan
	cost := int64(p.Size) * tokenUnit
	if f.queued == 0 && f.tokens >= cost {
		f.tokens -= cost
		if f.ahead == 0 {
			f.lane = uint8(min(f.used*8*sparseLanes/rate, sparseLanes-1))
		}
		f.ahead++
		q.lanes[f.lane].Enqueue(now, p)
		return
	}
	if f.tokens >= 0 { // too much at once: for a second it is like the others
		f.tokens = -rate * penalty
	}
	f.queued++
	q.rest.Enqueue(now, p)
}

// left notes that a packet is no longer in the lane of the others.
func (q *SparseFirst) left(p Packet) {
	if f := q.entry(p.Flow); f != nil {
		f.queued--
	} else {
		q.strange[p.Flow%sparseSets]--
	}
}

// leftFirst notes that a packet is no longer in a first lane.
func (q *SparseFirst) leftFirst(p Packet) { q.entry(p.Flow).ahead-- }

// Dequeue implements Queue.
func (q *SparseFirst) Dequeue(now unit.Instant) (Packet, bool) {
	rate := int64(q.params.Rate) * int64(q.params.Share)
	passed := min(int64(now-q.filled), 2*q.laneMost/rate+1)
	q.lane = min(q.laneMost, q.lane+passed*rate)
	q.filled = now
	for {
		if q.lane > 0 || q.rest.Len() == 0 {
			for _, l := range q.lanes {
				if p, ok := l.Dequeue(now); ok {
					q.lane = max(q.lane-int64(p.Size)*tokenUnit*16, -q.laneMost)
					return q.sent(p, q.leftFirst)
				}
			}
		}
		key, ok := q.rest.first()
		if !ok {
			return Packet{}, false
		}
		if f := q.entry(key); f != nil && f.ahead > 0 {
			if p, ok := q.lanes[f.lane].dequeueOf(now, key); ok {
				q.rest.charge(p.Size)
				return q.sent(p, q.leftFirst)
			}
		} else if p, ok := q.rest.Dequeue(now); ok {
			return q.sent(p, q.left)
		}
	}
}

// sent takes a packet out of the accounts, and gives it its own key back.
func (q *SparseFirst) sent(p Packet, left func(Packet)) (Packet, bool) {
	left(p)
	p.Flow = q.unmix(p.Flow)
	return p, true
}

// mix turns a flow key into one that nobody can predict without the seed; unmix
// undoes it.
func (q *SparseFirst) mix(key uint32) uint32 {
	return bits.RotateLeft32((key^uint32(q.params.Seed))*mixFactor+uint32(q.params.Seed>>32), 16)
}

func (q *SparseFirst) unmix(key uint32) uint32 {
	return (bits.RotateLeft32(key, -16)-uint32(q.params.Seed>>32))*unmixFactor ^ uint32(q.params.Seed)
}

// Next implements Queue: it never holds a packet back.
func (q *SparseFirst) Next(now unit.Instant) (unit.Instant, bool) { return now, q.Len() > 0 }

// Len implements Queue.
func (q *SparseFirst) Len() int {
	n := q.rest.Len()
	for _, l := range q.lanes {
		n += l.Len()
	}
	return n
}

// Stats implements Queue: the sum of all lanes'.
func (q *SparseFirst) Stats() Stats {
	sum := q.rest.Stats()
	for _, l := range q.lanes {
		sum = sum.plus(l.Stats())
	}
	return sum
}

var _ Queue = (*SparseFirst)(nil)
