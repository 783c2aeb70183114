package aqm

import (
	"fmt"
	"math"
	"time"

	"unbloat/unit"
)

// openBSDIntervals is how many entries OpenBSD's table of gaps has.
const openBSDIntervals = 399

// openBSDInterval is the interval that table is made for, in ns.
const openBSDInterval = int64(100 * time.Millisecond)

// never is a threshold that no sojourn time exceeds.
const never = math.MaxInt64

// codelState is what CoDel remembers of one queue. Times are in the law's ticks.
type codelState struct {
	firstAbove int64 // when dropping may start; 0 while the delay is below target
	dropNext   int64 // when the next packet is due to be dropped
	count      uint32
	lastCount  uint32 // count when dropping last began
	largest    uint32 // largest packet ever enqueued (dummynet)
	root       uint16 // 1/√count as a fraction of 2^16 (Linux, dummynet)
	dropping   bool
}

// codelQueue is one queue under CoDel.
type codelQueue struct {
	chain
	codelState
}

// codelLaw is CoDel's parameters and a dialect's way of applying them. It is
// shared by all the queues of an FQ-CoDel.
type codelLaw struct {
	traits
	target, interval, grace, ceThreshold int64 // ticks
	mtu, quantum                         int64 // bytes
	ecn                                  bool
	gaps                                 []uint32 // OpenBSD's table, in ns
}

// newCoDelLaw checks p and converts it to the dialect's ticks, rounded down.
func newCoDelLaw(p CoDelParams, quantum unit.Size) (codelLaw, error) {
	if p.Dialect > NS3 {
		return codelLaw{}, fmt.Errorf("codel: no dialect %d", p.Dialect)
	}
	// 4 s keeps interval² inside 64 bits; dummynet allows 5 s of target.
	if p.Target < 0 || p.Target > 4*time.Second {
		return codelLaw{}, fmt.Errorf("codel: target %v is not within 0 to 4s", p.Target)
	}
	if p.Interval < time.Microsecond*2 || p.Interval > 4*time.Second {
		return codelLaw{}, fmt.Errorf("codel: interval %v is not within 2µs to 4s", p.Interval)
	}
	if p.MTU < 0 || p.MTU > maxPacketSize {
		return codelLaw{}, fmt.Errorf("codel: MTU of %d bytes", p.MTU)
	}
	if p.CEThreshold < 0 {
		return codelLaw{}, fmt.Errorf("codel: CE threshold %v is negative", p.CEThreshold)
	}
	if p.Packets < 1 {
		return codelLaw{}, fmt.Errorf("codel: limit of %d packets", p.Packets)
	}
	l := codelLaw{traits: p.Dialect.traits(), mtu: int64(p.MTU), quantum: int64(quantum)}
	l.ecn = p.ECN && !l.noECN
	target, interval := p.Target, p.Interval
	if l.law == lawTable {
		target, interval = l.makeGaps(target, interval)
	}
	l.target, l.interval = l.span(target), l.span(interval)
	l.grace = 16 * l.interval
	if l.fixedGrace {
		l.grace = int64(1600 * time.Millisecond)
	}
	l.ceThreshold = never
	if p.CEThreshold > 0 {
		l.ceThreshold = l.span(p.CEThreshold)
	}
	return l, nil
}

// makeGaps fills OpenBSD's table, 100 ms/√n rounded to the nearest ns, and
// returns the target and interval it enforces: an interval of at least 100 ms,
// and a target of at least 5 ms or, for longer intervals, a fraction of them
// (fq_codel.c codel_initparams).
func (l *codelLaw) makeGaps(target, interval time.Duration) (time.Duration, time.Duration) {
	l.gaps = make([]uint32, openBSDIntervals)
	scale := uint64(1000) // thousandths
	if int64(interval) > openBSDInterval {
		share := interval / 20
		if l.fixedGrace {
			share = interval / 5 // 1.16 says 5 % in its comment and takes 20 %
		}
		target = max(target, share)
		scale = uint64(interval) * 1000 / uint64(openBSDInterval)
	} else {
		target = max(target, 5*time.Millisecond)
		interval = time.Duration(openBSDInterval)
	}
	for i := range l.gaps {
		twice := isqrt(4 * uint64(openBSDInterval) * uint64(openBSDInterval) / uint64(i+1))
		l.gaps[i] = uint32((twice + 1) / 2 * scale / 1000)
	}
	return target, interval
}

// span converts a duration to ticks, rounded down.
func (l *codelLaw) span(d time.Duration) int64 {
	if l.microns {
		return int64(d) / 1000
	}
	return int64(d) >> l.shift
}

// ticks reads the dialect's clock at an instant.
func (l *codelLaw) ticks(at unit.Instant) int64 {
	if l.serial {
		return int64(uint32(at >> l.shift))
	}
	if l.microns {
		return int64(at) / int64(l.tick) * (int64(l.tick) / 1000)
	}
	return int64(at)
}

// since returns a − b, as a signed 32-bit number where the clock has 32 bits.
func (l *codelLaw) since(a, b int64) int64 {
	if l.serial {
		return int64(int32(uint32(a - b)))
	}
	return a - b
}

// add returns t + d on the dialect's clock.
func (l *codelLaw) add(t, d int64) int64 {
	if l.serial {
		return int64(uint32(t + d))
	}
	return t + d
}

// take pops the head packet of q and says whether CoDel may drop it now
// (dodequeue of RFC 8289 section 5.5). It returns 0 when q is empty.
func (l *codelLaw) take(s *store, q *codelQueue, now int64) (n uint32, due bool) {
	n = s.pop(&q.chain)
	if n == 0 {
		// Linux forgot this until March 2026 (commit 815980fe6dbb, in 6.12.y
		// and 6.19.y too): every other packet of a sparse flow was dropped.
		q.firstAbove = 0
		return 0, false
	}
	p := &s.nodes[n].Packet
	if l.since(now, l.ticks(p.Enqueued)) < l.target || l.small(s, q, p) {
		q.firstAbove = 0
		return n, false
	}
	if q.firstAbove == 0 {
		q.firstAbove = l.add(now, l.interval)
		return n, false
	}
	late := l.since(now, q.firstAbove)
	return n, late > 0 || late == 0 && l.atOnce
}

// small says whether the backlog behind p is too small to signal.
func (l *codelLaw) small(s *store, q *codelQueue, p *Packet) bool {
	flow := int64(q.bytes)
	switch l.exempt {
	case wholeToMTU:
		return int64(s.stats.Backlog) <= l.mtu
	case flowToMTU:
		return flow <= l.mtu
	case flowBelowMTU:
		return flow < l.mtu
	case flowToLargest:
		return flow <= max(int64(q.largest), dummynetLargest)
	case flowToQuantum:
		return flow+int64(p.Size) <= l.quantum
	default: // restToQuantum
		return flow <= l.quantum
	}
}

// dequeue returns the next packet of q to send, or 0, after dropping what the
// control law condemns.
func (l *codelLaw) dequeue(s *store, q *codelQueue, at unit.Instant) uint32 {
	now := l.ticks(at)
	n, due := l.take(s, q, now)
	switch {
	case q.dropping && !due:
		q.dropping = false
	case q.dropping:
		n = l.goOn(s, q, n, now, at)
	case due:
		n = l.enter(s, q, n, now, at)
	}
	if n != 0 && l.ceThreshold != never {
		if l.since(now, l.ticks(s.nodes[n].Enqueued)) > l.ceThreshold && s.nodes[n].ECN != CE {
			s.mark(n)
		}
	}
	return n
}

// goOn drops (or marks) while in dropping state and the next drop is due. A
// large backlog can make several due at once.
func (l *codelLaw) goOn(s *store, q *codelQueue, n uint32, now int64, at unit.Instant) uint32 {
	for drops := 0; q.dropping && l.since(now, q.dropNext) >= 0; {
		if drops++; l.maxDrops > 0 && drops > l.maxDrops {
			q.dropNext = l.add(now, l.gap(&q.codelState))
			break
		}
		if !l.countLate {
			l.raise(&q.codelState)
		}
		if l.ecn && s.mark(n) {
			if l.countLate {
				l.raise(&q.codelState)
			}
			q.dropNext = l.add(q.dropNext, l.gap(&q.codelState))
			break
		}
		s.drop(at, n, Signal)
		var due bool
		n, due = l.take(s, q, now)
		if !due {
			q.dropping = false
			break
		}
		if l.countLate {
			l.raise(&q.codelState)
		}
		q.dropNext = l.add(q.dropNext, l.gap(&q.codelState))
	}
	return n
}

// enter drops (or marks) the first packet and enters dropping state. If that
// state was left only lately, the drop rate that worked then is resumed.
func (l *codelLaw) enter(s *store, q *codelQueue, n uint32, now int64, at unit.Instant) uint32 {
	if !l.ecn || !s.mark(n) {
		s.drop(at, n, Signal)
		n, _ = l.take(s, q, now)
	}
	q.dropping = true
	passed := l.since(now, q.dropNext)
	count := uint32(1)
	if l.minusTwo {
		if q.count > 2 && passed >= 0 && passed < 8*l.interval {
			count = q.count - 2
		}
	} else {
		delta := q.count - q.lastCount
		if l.narrow {
			delta = uint32(uint16(delta))
		}
		if delta > 1 && l.since(passed, l.grace) < 0 {
			count = delta
		}
	}
	q.count, q.lastCount = count, count
	if l.law == lawNewton16 {
		if count == 1 {
			q.root = math.MaxUint16
		} else {
			q.root = newton16(q.root, count)
		}
	}
	q.dropNext = l.add(now, l.gap(&q.codelState))
	return n
}

// raise counts one more drop.
func (l *codelLaw) raise(c *codelState) {
	c.count++
	if l.narrow {
		c.count = uint32(uint16(c.count))
	}
	if l.law == lawNewton16 {
		c.root = newton16(c.root, c.count)
	}
}

// gap returns interval/√count in ticks, as the dialect computes it.
func (l *codelLaw) gap(c *codelState) int64 {
	switch l.law {
	case lawNewton16:
		return max(l.minimumGap, int64(uint64(l.interval)*uint64(c.root)>>16))
	case lawTable:
		i := c.count // C's unsigned min: a count of 0 becomes the last entry
		if !l.fromTwo {
			i--
		}
		return int64(l.gaps[min(i, openBSDIntervals-1)])
	case lawDummynet:
		if c.count == 1 {
			c.root = 1 << 16 * 7 / 10 // its guess for the step to count 2
			return l.interval
		}
		root := uint64(c.root)
		x := (3<<32 - uint64(c.count)*(root*root)) >> 9
		root = root * x >> 24
		c.root = uint16(root)
		return int64(uint64(l.interval) * root >> 16)
	default: // lawExact
		return int64(isqrt(uint64(l.interval) * uint64(l.interval) / uint64(c.count)))
	}
}

// newton16 takes one Newton step from root towards 1/√count, both as
// fractions of 2^16, with the widths and truncations of codel_Newton_step in
// codel_impl.h. Like the original it wraps when the guess is far off.
func newton16(root uint16, count uint32) uint16 {
	r := uint64(root) << 16
	x := 3<<32 - uint64(count)*(r*r>>32)
	return uint16(x >> 2 * r >> 31 >> 16)
}

// isqrt returns √x, rounded down.
func isqrt(x uint64) uint64 {
	var root uint64
	for bit := uint64(1) << 62; bit != 0; bit >>= 2 {
		if x >= root+bit {
			x -= root + bit
			root = root>>1 + bit
		} else {
			root >>= 1
		}
	}
	return root
}

// CoDel is a FIFO under controlled delay (RFC 8289). A packet that finds the
// queue full is dropped at its tail.
type CoDel struct {
	store
	law   codelLaw
	limit int
	queue codelQueue
}

// NewCoDel returns an empty queue, or an error that names the bad parameter.
// Where the dialect looks at a quantum, MTU takes its place.
func NewCoDel(p CoDelParams) (*CoDel, error) {
	law, err := newCoDelLaw(p, p.MTU)
	if err != nil {
		return nil, err
	}
	return &CoDel{store: newStore(p.Drop), law: law, limit: p.Packets}, nil
}

// Enqueue implements Queue.
func (q *CoDel) Enqueue(now unit.Instant, p Packet) {
	n := q.admit(now, p)
	q.queue.largest = max(q.queue.largest, uint32(p.Size))
	if q.stats.Packets > q.limit {
		q.refuse(now, n, Overlimit)
		return
	}
	q.push(&q.queue.chain, n)
}

// Dequeue implements Queue.
func (q *CoDel) Dequeue(now unit.Instant) (Packet, bool) {
	n := q.law.dequeue(&q.store, &q.queue, now)
	if n == 0 {
		return Packet{}, false
	}
	return q.send(n), true
}

// Next implements Queue: CoDel never holds a packet back.
func (q *CoDel) Next(now unit.Instant) (unit.Instant, bool) { return q.next(now) }

var _ Queue = (*CoDel)(nil)
