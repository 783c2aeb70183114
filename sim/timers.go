package sim

import (
	"math"
	"math/bits"

	"unbloat/unit"
)

// never is an instant that does not come.
const never = unit.Instant(math.MaxInt64)

// task says what is to be done when a timer ends.
type task uint8

const (
	taskDelayedAck task = iota // a connection's receiver owes an acknowledgement
	taskRetransmit             // a connection's retransmission, probe or reordering timer
	taskPace                   // a connection's sender may send the next segment
	taskStart                  // a connection starts
	taskStop                   // a connection stops
	taskTick                   // a stream sends its next datagram
	taskApp                    // somebody at home asks for the next page, chunk or mail
)

// timer is one entry. Of two at the same instant the one that was set first
// comes first.
type timer struct {
	at    unit.Instant
	order uint64
	owner uint32
	task  task
}

func (e timer) before(f timer) bool {
	return e.at < f.at || e.at == f.at && e.order < f.order
}

// wheel keeps entries by the slot of time that they fall into, unsorted. All are
// within as many slots, so that an index stands for one slot alone.
type wheel struct {
	shift uint // a slot is 2^shift ns
	slots [][]timer
	taken []uint64  // which slots have entries, a bit each
	spare [][]timer // memory of those that had
	count int
}

func newWheel(shift uint, slots int) wheel {
	return wheel{shift: shift, slots: make([][]timer, slots), taken: make([]uint64, slots/64)}
}

// slotOf returns the number of the slot of an instant.
func (w *wheel) slotOf(at unit.Instant) int64 { return int64(at) >> w.shift }

func (w *wheel) push(e timer) {
	i := int(w.slotOf(e.at)) & (len(w.slots) - 1)
	if bit := uint64(1) << (i % 64); w.taken[i/64]&bit == 0 {
		w.taken[i/64] |= bit
		if k := len(w.spare); k > 0 {
			w.slots[i], w.spare = w.spare[k-1], w.spare[:k-1]
		}
	}
	w.slots[i] = append(w.slots[i], e)
	w.count++
}

// next returns the first slot from one on that has entries; there must be one.
func (w *wheel) next(from int64) int64 {
	i := int(from) & (len(w.slots) - 1)
	word := i / 64
	left := w.taken[word] >> (i % 64) << (i % 64)
	for left == 0 {
		word = (word + 1) % len(w.taken)
		left = w.taken[word]
	}
	found := word*64 + bits.TrailingZeros64(left)
	return from + int64((found-i+len(w.slots))&(len(w.slots)-1))
}

// take empties a slot, and returns what it had until the next push.
func (w *wheel) take(slot int64) []timer {
	i := int(slot) & (len(w.slots) - 1)
	if w.taken[i/64]&(1<<(i%64)) == 0 {
		return nil
	}
	w.taken[i/64] &^= 1 << (i % 64)
	all := w.slots[i]
	w.count -= len(all)
	w.slots[i], w.spare = nil, append(w.spare, all[:0])
	return all
}

const (
	fineShift   = 12   // a slot of the fine wheel is about 4 µs
	coarseShift = 20   // one of the coarse wheel about 1 ms, as long as the fine wheel
	coarseSlots = 1024 // so that nearly all timers of TCP fit
	fewTimers   = 4    // are not worth a turn of the fine wheel
)

// timers keeps what is due now in a small heap, what is due within a
// millisecond or a second in the slots of two wheels, and the rest in another
// heap. So a timer costs the same with ten connections and with ten thousand.
type timers struct {
	near   timerHeap // all entries up to and including slot done of the fine wheel
	done   int64
	fine   wheel
	slot   int64 // of the coarse wheel, that the fine wheel is for
	coarse wheel
	far    timerHeap
	count  uint64
	soon   func(timer) // is told of those that have come near; may be nil
}

func newTimers(soon func(timer)) timers {
	return timers{
		done: 1<<(coarseShift-fineShift) - 1,
		fine: newWheel(fineShift, 1<<(coarseShift-fineShift)), coarse: newWheel(coarseShift, coarseSlots), soon: soon,
	}
}

func (t *timers) push(at unit.Instant, owner uint32, k task) {
	t.count++
	t.file(timer{at, t.count, owner, k})
}

// file puts an entry where it belongs.
func (t *timers) file(e timer) {
	switch slot := t.coarse.slotOf(e.at); {
	case t.fine.slotOf(e.at) <= t.done:
		t.near.push(e)
	case slot == t.slot:
		t.fine.push(e)
	case slot < t.slot+coarseSlots:
		t.coarse.push(e)
	default:
		t.far.push(e)
	}
}

// next returns when the first timer is due, never if there is none.
func (t *timers) next() unit.Instant {
	for len(t.near) == 0 {
		switch {
		case t.fine.count > 0:
			t.done = t.fine.next(t.done + 1)
			for _, e := range t.fine.take(t.done) {
				t.near.push(e)
			}
		case t.coarse.count == 0 && len(t.far) == 0:
			return never
		default:
			t.turn()
		}
	}
	return t.near[0].at
}

// turn goes on to the next slot of the coarse wheel that has entries, there or
// far off; there must be one.
func (t *timers) turn() {
	next := int64(math.MaxInt64)
	if t.coarse.count > 0 {
		next = t.coarse.next(t.slot + 1)
	}
	if len(t.far) > 0 {
		next = min(next, t.coarse.slotOf(t.far[0].at))
	}
	t.slot = next
	due := t.coarse.take(next)
	t.done = next<<(coarseShift-fineShift) - 1
	if len(due) <= fewTimers {
		t.done += 1 << (coarseShift - fineShift)
	}
	for _, e := range due {
		if t.soon != nil {
			t.soon(e)
		}
		t.file(e)
	}
	for len(t.far) > 0 && t.coarse.slotOf(t.far[0].at) <= next {
		t.file(t.far.pop())
	}
}

// timerHeap has four children a node: half as deep as a binary one, and the
// children share a cache line or two.
type timerHeap []timer

func (h *timerHeap) push(e timer) {
	*h = append(*h, e)
	a := *h
	i := len(a) - 1
	for i > 0 {
		up := (i - 1) / 4
		if a[up].before(e) {
			break
		}
		a[i] = a[up]
		i = up
	}
	a[i] = e
}

// pop removes the first timer; there must be one.
func (h *timerHeap) pop() timer {
	a := *h
	first := a[0]
	last := len(a) - 1
	e := a[last]
	a = a[:last]
	*h = a
	if last == 0 {
		return first
	}
	i := 0
	for {
		child := 4*i + 1
		if child >= last {
			break
		}
		least := child
		for c := child + 1; c < min(child+4, last); c++ {
			if a[c].before(a[least]) {
				least = c
			}
		}
		if !a[least].before(e) {
			break
		}
		a[i] = a[least]
		i = least
	}
	a[i] = e
	return first
}

// alarm is a timer that is moved often. Moving it later, or stopping it, does
// not touch the timers: the entry that stands there is looked at when it comes.
type alarm struct {
	want  unit.Instant // when it is to go off; never if it is stopped
	entry unit.Instant // of the earliest entry; never if there is none
}

func newAlarm() alarm { return alarm{never, never} }

// alarmOf returns the alarm that stands for a task.
func (c *Conn) alarmOf(k task) *alarm {
	switch k {
	case taskDelayedAck:
		return &c.ackAlarm
	case taskPace:
		return &c.paceAlarm
	}
	return &c.alarm
}

// set lets the alarm go off at an instant, or never.
func (n *Network) set(a *alarm, at unit.Instant, owner uint32, k task) {
	a.want = at
	if at < a.entry {
		a.entry = at
		n.timers.push(at, owner, k)
	}
}

// goesOff takes in that the entry of that instant has come, and says whether
// the alarm goes off with it.
func (n *Network) goesOff(a *alarm, e timer) bool {
	if e.at != a.entry {
		return false // an earlier entry took its place
	}
	a.entry = never
	switch {
	case a.want == never:
		return false
	case a.want > e.at:
		n.set(a, a.want, e.owner, e.task)
		return false
	}
	a.want = never
	return true
}
