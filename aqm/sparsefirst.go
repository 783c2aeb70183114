package aqm

import (
	"errors"
	"fmt"
	"math/bits"

	"unbloat/unit"
)

// SparseFirstParams sets SparseFirst up. DefaultSparseFirst fills it.
type SparseFirstParams struct {
	StartTime StartTimeParams // of both lanes; its limit holds for each
	Rate      unit.Rate       // what the link carries, or the shaper before it
	// FlowRate and FlowBurst say what is sparse: a flow that at no time sends
	// more than FlowBurst + FlowRate × t. A burst below the longest packet
	// keeps flows of full packets out, however few they send.
	FlowRate  unit.Rate
	FlowBurst unit.Size
	// Share is how much of Rate all sparse flows together may take before
	// others, in 1/16; the rest of them waits as the others do.
	Share int
	Seed  uint64 // mixed into flow keys, so that nobody can choose ones that collide
}

// DefaultSparseFirst returns what suits calls on a link of that rate: flows of
// a fortieth of it, but at least 100 kbit/s, together at most the half.
func DefaultSparseFirst(d Dialect, rate unit.Rate) SparseFirstParams {
	return SparseFirstParams{
		StartTime: DefaultStartTime(d), Rate: rate,
		FlowRate: max(rate/40, 100*unit.KbitPerSecond), FlowBurst: 600, Share: 8,
	}
}

// sparseFlow is what is known of one flow.
type sparseFlow struct {
	tokens int64 // bytes × 8e9, as of filled
	filled unit.Instant
	ahead  int32 // packets in the first lane
	queued int32 // packets in the lane of the others
}

// SparseFirst is start-time fair queueing with a bounded guarantee: flows that
// stay sparse have a lane of their own, which goes first up to a share of the
// rate. A fair queue alone gives a call no more than its fair share, which among
// 200 flows on a slow link is less than it needs.
//
// While the sparse flows together want more than their share, the threshold
// sinks, down to three quarters: whoever keeps just below it loses the guarantee
// before a call does that needs less. Flows that send as a call does cannot be
// told from one; too many of them get their fair share of the lane.
//
// Both lanes are StartTime, so that sparse flows are fair to each other when
// they are too many. A flow whose packets wait in the second lane stays there
// until they are gone, and what it still has in the first goes before, so that
// nothing is reordered.
type SparseFirst struct {
	params      SparseFirstParams
	first, rest *StartTime
	owed        int // packets in the first lane of flows that have others in the second
	flows       []sparseFlow
	rate        int64 // FlowRate, or less while there is not enough for all
	adapted     unit.Instant
	starved     bool  // since adapted: the first lane had to wait for its share
	most        int64 // tokens of a flow's full bucket
	lane        int64 // what the first lane may send now, bytes × 8e9 × 16
	laneMost    int64
	filled      unit.Instant
}

const (
	adaptEvery   = unit.Instant(100e6) // between two looks at the threshold
	laneSpan     = 50e6                // ns of the lane's share that it may save up
	sparsePlaces = 16384               // a call among 200 flows shares its place once in 80 times
	mixFactor    = 0x9E3779B1
	unmixFactor  = 0xE8B2F51 // mixFactor × unmixFactor = 1 modulo 2³²
	leastSparse  = 3         // quarters of FlowRate to which the threshold sinks at most
	sinkOf       = 128       // by this part a step
	riseOf       = 1024
	penalty      = int64(1e9) // ns that a flow is not sparse after it sent too much
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
	q := &SparseFirst{params: p, flows: make([]sparseFlow, sparsePlaces), most: int64(p.FlowBurst) * tokenUnit}
	q.laneMost = max(int64(p.StartTime.CoDel.MTU)*tokenUnit*16, int64(p.Rate)*int64(p.Share)*laneSpan)
	q.rate = int64(p.FlowRate)
	for i := range q.flows {
		q.flows[i].tokens = q.most
	}
	q.lane = q.laneMost
	first, rest := p.StartTime, p.StartTime
	first.CoDel.MTU = p.FlowBurst
	first.CoDel.Drop, rest.CoDel.Drop = q.dropped(q.leftFirst), q.dropped(q.left)
	var err error
	if q.first, err = NewStartTime(first); err == nil {
		q.rest, err = NewStartTime(rest)
	}
	if err != nil {
		return nil, fmt.Errorf("sparse first: %w", err)
	}
	return q, nil
}

// dropped returns what a lane tells of its drops.
func (q *SparseFirst) dropped(left func(Packet)) DropFunc {
	return func(now unit.Instant, p Packet, why Reason) {
		left(p)
		if tell := q.params.StartTime.CoDel.Drop; tell != nil {
			p.Flow = q.unmix(p.Flow)
			tell(now, p, why)
		}
	}
}

// entry returns what is known of the flow with a mixed key.
func (q *SparseFirst) entry(key uint32) *sparseFlow { return &q.flows[key%sparsePlaces] }

// Enqueue implements Queue.
func (q *SparseFirst) Enqueue(now unit.Instant, p Packet) {
	p.Flow = q.mix(p.Flow)
	q.adapt(now)
	f := q.entry(p.Flow)
	passed := min(int64(now-f.filled), q.most/q.rate+penalty)
	f.tokens = min(q.most, f.tokens+passed*q.rate)
	f.filled = now
	cost := int64(p.Size) * tokenUnit
	if f.queued == 0 && f.tokens >= cost {
		f.tokens -= cost
		f.ahead++
		q.first.Enqueue(now, p)
		return
	}
	if f.tokens >= 0 { // too much at once: for a second it is like the others
		f.tokens = -q.rate * penalty
	}
	if f.queued == 0 {
		q.owed += int(f.ahead)
	}
	f.queued++
	q.rest.Enqueue(now, p)
}

// left takes in that a packet is no longer in the lane of the others.
func (q *SparseFirst) left(p Packet) {
	f := q.entry(p.Flow)
	f.queued--
	if f.queued == 0 {
		q.owed -= int(f.ahead)
	}
}

// leftFirst takes in that a packet is no longer in the first lane.
func (q *SparseFirst) leftFirst(p Packet) {
	f := q.entry(p.Flow)
	f.ahead--
	if f.queued > 0 {
		q.owed--
	}
}

// Dequeue implements Queue.
func (q *SparseFirst) Dequeue(now unit.Instant) (Packet, bool) {
	rate := int64(q.params.Rate) * int64(q.params.Share)
	passed := min(int64(now-q.filled), q.laneMost/rate+1)
	q.lane = min(q.laneMost, q.lane+passed*rate)
	q.filled = now
	if q.lane > 0 || q.owed > 0 || q.rest.Len() == 0 {
		if p, ok := q.first.Dequeue(now); ok {
			q.leftFirst(p)
			q.lane -= int64(p.Size) * tokenUnit * 16
			p.Flow = q.unmix(p.Flow)
			return p, true
		}
	} else if q.first.Len() > 0 {
		q.starved = true
	}
	p, ok := q.rest.Dequeue(now)
	if ok {
		q.left(p)
	} else {
		p, ok = q.first.Dequeue(now)
		if !ok {
			return p, false
		}
		q.leftFirst(p)
	}
	p.Flow = q.unmix(p.Flow)
	return p, ok
}

// adapt lowers the threshold while the sparse flows want more than their share,
// and raises it again afterwards.
func (q *SparseFirst) adapt(now unit.Instant) {
	if now-q.adapted < adaptEvery {
		return
	}
	q.adapted = now
	full := int64(q.params.FlowRate)
	if q.starved {
		q.rate = max(q.rate-q.rate/sinkOf, full/4*leastSparse, 1)
	} else {
		q.rate = min(q.rate+q.rate/riseOf+1, full)
	}
	q.starved = false
}

// mix turns a flow key into another that only who knows the seed can foresee;
// unmix undoes it.
func (q *SparseFirst) mix(key uint32) uint32 {
	return bits.RotateLeft32((key^uint32(q.params.Seed))*mixFactor+uint32(q.params.Seed>>32), 16)
}

func (q *SparseFirst) unmix(key uint32) uint32 {
	return (bits.RotateLeft32(key, -16)-uint32(q.params.Seed>>32))*unmixFactor ^ uint32(q.params.Seed)
}

// Next implements Queue: it never holds a packet back.
func (q *SparseFirst) Next(now unit.Instant) (unit.Instant, bool) { return now, q.Len() > 0 }

// Len implements Queue.
func (q *SparseFirst) Len() int { return q.first.Len() + q.rest.Len() }

// Stats implements Queue: the sum of both lanes'.
func (q *SparseFirst) Stats() Stats { return q.first.Stats().plus(q.rest.Stats()) }

var _ Queue = (*SparseFirst)(nil)
