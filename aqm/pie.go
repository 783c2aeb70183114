package aqm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"unbloat/unit"
)

// pieOne is probability 1 (sch_pie, pie.h MAX_PROB).
const pieOne = uint64(math.MaxUint64 >> 8)

// PIEParams sets PIE up. DefaultPIE fills it as RFC 8033 and Linux do.
type PIEParams struct {
	Target  time.Duration // acceptable delay, 15 ms
	Update  time.Duration // between two looks at the delay, 15 ms
	Burst   time.Duration // allowance for a burst after idleness, 150 ms
	Alpha   int           // weight of the delay over target, in 1/16 per second; 2
	Beta    int           // weight of the delay's rise, in 1/16 per second; 20
	MTU     unit.Size     // fewer than two of these are never dropped from
	Packets int           // limit, 1000
	ECN     bool          // mark while the probability is at most 1/10
	Seed    uint64        // of the chance
	Drop    DropFunc      // told of each drop; may be nil
}

// DefaultPIE returns the parameters of RFC 8033 section 4 and sch_pie.c.
func DefaultPIE() PIEParams {
	return PIEParams{
		Target: 15 * time.Millisecond, Update: 15 * time.Millisecond, Burst: 150 * time.Millisecond,
		Alpha: 2, Beta: 20, MTU: 1514, Packets: 1000,
	}
}

// PIE drops at random, with a probability that a proportional-integral
// controller derives from the delay (RFC 8033). The delay is that of the last
// packet served, by its time stamp, as Linux takes it by default (sch_pie.c
// without dq_rate_estimator).
type PIE struct {
	store
	params   PIEParams
	queue    chain
	prob     uint64 // of a drop, of pieOne
	accrued  uint64 // sum of prob since the last drop (RFC 8033 section 5.4)
	delay    int64  // of the last packet served, ns
	delayOld int64  // at the last update
	burst    int64  // left of the allowance, ns
	served   unit.Instant
	update   unit.Instant // the next one
	started  bool
	random   *rand.PCG
}

// NewPIE returns an empty queue, or an error that names the bad parameter.
func NewPIE(p PIEParams) (*PIE, error) {
	switch {
	case p.Target <= 0 || p.Target > 10*time.Second:
		return nil, fmt.Errorf("pie: target %v is not within 1ns to 10s", p.Target)
	case p.Update < time.Millisecond || p.Update > 10*time.Second:
		return nil, fmt.Errorf("pie: update interval %v is not within 1ms to 10s", p.Update)
	case p.Burst < 0 || p.Burst > 10*time.Second:
		return nil, fmt.Errorf("pie: burst allowance %v is not within 0 to 10s", p.Burst)
	case p.Alpha < 0 || p.Alpha > 32 || p.Beta < 0 || p.Beta > 32: // tc-pie(8)
		return nil, fmt.Errorf("pie: alpha %d or beta %d is not within 0 to 32", p.Alpha, p.Beta)
	case p.MTU < 1 || p.MTU > maxPacketSize:
		return nil, fmt.Errorf("pie: MTU of %d bytes", p.MTU)
	case p.Packets < 1:
		return nil, fmt.Errorf("pie: limit of %d packets", p.Packets)
	}
	return &PIE{
		store: newStore(p.Packets, p.Drop), params: p, burst: int64(p.Burst),
		random: rand.NewPCG(p.Seed, 0x7069_65),
	}, nil
}

// Enqueue implements Queue: here PIE drops, before the packet takes a place.
func (q *PIE) Enqueue(now unit.Instant, p Packet) {
	q.catchUp(now)
	n := q.admit(now, p)
	if q.stats.Packets > q.params.Packets {
		q.accrued = 0
		q.refuse(now, n, Overlimit)
		return
	}
	if q.dropEarly(p.Size) && !(q.params.ECN && q.prob <= pieOne/10 && q.mark(n)) {
		q.accrued = 0
		q.refuse(now, n, Signal)
		return
	}
	q.push(&q.queue, n)
}

// dropEarly draws a lot for a packet of that size (RFC 8033 section 4.1).
func (q *PIE) dropEarly(size unit.Size) bool {
	backlog := q.stats.Backlog - size
	if q.burst > 0 || q.delay < int64(q.params.Target)/2 && q.prob < pieOne/5 || backlog < 2*q.params.MTU {
		return false
	}
	if q.prob == 0 {
		q.accrued = 0
	} else if q.accrued > math.MaxUint64-q.prob {
		q.accrued = math.MaxUint64
	} else {
		q.accrued += q.prob
	}
	// Without these bounds drops would come in clumps (RFC 8033 section 5.4).
	if q.accrued < pieOne/100*85 {
		return false
	}
	if q.accrued >= pieOne/2*17 || q.random.Uint64()>>8 < q.prob {
		q.accrued = 0
		return true
	}
	return false
}

// Dequeue implements Queue.
func (q *PIE) Dequeue(now unit.Instant) (Packet, bool) {
	q.catchUp(now)
	n := q.pop(&q.queue)
	if n == 0 {
		return Packet{}, false
	}
	q.delay = int64(now - q.nodes[n].Enqueued)
	if q.stats.Packets == 0 {
		q.delay = 0
	}
	q.burst = max(0, q.burst-int64(now-q.served))
	q.served = now
	return q.send(n), true
}

// catchUp runs the updates that were due up to now. After a long pause only
// the last ones matter: the probability has decayed to nothing by then.
func (q *PIE) catchUp(now unit.Instant) {
	const most = 4096
	step := unit.Instant(q.params.Update)
	if !q.started {
		q.started, q.update, q.served = true, now+step, now
	}
	if behind := int64(now-q.update) / int64(step); behind > most {
		q.update += unit.Instant(behind-most) * step
	}
	for ; q.update <= now; q.update += step {
		q.control()
	}
}

// control moves the probability (RFC 8033 section 4.2, sch_pie.c
// pie_calculate_probability).
func (q *PIE) control() {
	delay := min(q.delay, int64(10*time.Second))
	fresh := true
	if delay == 0 && q.stats.Packets > 0 {
		fresh = false
	}
	// The gains are smaller while the probability is small.
	alpha := int64(q.params.Alpha) * int64(pieOne/1e9) >> 4
	beta := int64(q.params.Beta) * int64(pieOne/1e9) >> 4
	if q.prob < pieOne/10 {
		alpha, beta = alpha>>1, beta>>1
		for power := uint64(100); power <= 1e6 && q.prob < pieOne/power; power *= 10 {
			alpha, beta = alpha>>2, beta>>2
		}
	}
	delta := alpha*(delay-int64(q.params.Target)) + beta*(delay-q.delayOld)
	if delta > int64(pieOne/50) && q.prob >= pieOne/10 {
		delta = int64(pieOne / 50)
	}
	if delay > int64(250*time.Millisecond) {
		delta += int64(pieOne / 50)
	}
	switch {
	case delta < 0 && uint64(-delta) > q.prob:
		q.prob = 0
	case delta > 0 && q.prob+uint64(delta) > pieOne:
		q.prob = pieOne
		fresh = false
	default:
		q.prob += uint64(delta)
	}
	if delay == 0 && q.delayOld == 0 && fresh {
		q.prob -= q.prob >> 6
	}
	half := int64(q.params.Target) / 2
	if delay < half && q.delayOld < half && q.prob == 0 {
		q.burst, q.accrued = int64(q.params.Burst), 0
	}
	q.delayOld = delay
}

// Next implements Queue: PIE never holds a packet back.
func (q *PIE) Next(now unit.Instant) (unit.Instant, bool) { return q.next(now) }

var _ Queue = (*PIE)(nil)
