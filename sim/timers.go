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

const (
	slotShift = 20   // a slot of the wheel is 2^20 ns, about a millisecond
	slots     = 1024 // so that nearly all timers of TCP fit
)

// timers keeps what is due now in a small heap, what is due within a second or
// so unsorted in the slots of a wheel, and the rest in another heap. So a
// timer costs the same with ten connections and with ten thousand.
type timers struct {
	near    timerHeap // all entries up to and including slot
	slot    int64
	wheel   [slots][]timer // by at >> slotShift, modulo slots: the slots that follow
	taken   [slots / 64]uint64
	inWheel int
	far     timerHeap
	count   uint64
	soon    func(timer) // is told of those that have come near; may be nil
}

func (t *timers) push(at unit.Instant, owner uint32, k task) {
	t.count++
	e := timer{at, t.count, owner, k}
	switch slot := int64(at) >> slotShift; {
	case slot <= t.slot:
		t.near.push(e)
	case slot < t.slot+slots:
		i := slot % slots
		t.wheel[i] = append(t.wheel[i], e)
		t.taken[i/64] |= 1 << (i % 64)
		t.inWheel++
	default:
		t.far.push(e)
	}
}

// next returns when the first timer is due, never if there is none.
func (t *timers) next() unit.Instant {
	if len(t.near) == 0 {
		if t.inWheel == 0 && len(t.far) == 0 {
			return never
		}
		t.turn()
	}
	return t.near[0].at
}

// turn goes on to the next slot that has entries; there must be one.
func (t *timers) turn() {
	next := int64(math.MaxInt64)
	if t.inWheel > 0 {
		i := (t.slot + 1) % slots
		word, from := i/64, uint(i%64)
		left := t.taken[word] >> from << from
		for left == 0 {
			word = (word + 1) % (slots / 64)
			left = t.taken[word]
		}
		found := word*64 + int64(bits.TrailingZeros64(left))
		next = t.slot + 1 + (found-i+slots)%slots
	}
	if len(t.far) > 0 {
		next = min(next, int64(t.far[0].at)>>slotShift)
	}
	t.slot = next
	i := next % slots
	if t.taken[i/64]&(1<<(i%64)) != 0 {
		t.taken[i/64] &^= 1 << (i % 64)
		t.inWheel -= len(t.wheel[i])
		for _, e := range t.wheel[i] {
			if t.soon != nil {
				t.soon(e)
			}
			t.near.push(e)
		}
		t.wheel[i] = t.wheel[i][:0]
	}
	for len(t.far) > 0 && int64(t.far[0].at)>>slotShift <= next {
		t.near.push(t.far.pop())
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
