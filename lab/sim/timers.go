package sim

import (
	"math"

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
	taskApp                    // an activity asks for the next page, chunk or mail
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

// timers are a heap with four children a node, which is half as deep as a binary
// one.
type timers struct {
	heap  []timer
	count uint64 // of all that were set
}

// next returns when the first timer is due, never if there is none.
func (t *timers) next() unit.Instant {
	if len(t.heap) == 0 {
		return never
	}
	return t.heap[0].at
}

func (t *timers) push(at unit.Instant, owner uint32, k task) {
	t.count++
	e := timer{at, t.count, owner, k}
	t.heap = append(t.heap, e)
	a := t.heap
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
func (t *timers) pop() timer {
	a := t.heap
	first := a[0]
	last := len(a) - 1
	e := a[last]
	a = a[:last]
	t.heap = a
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
// not touch the heap: the old entry is checked when it is due.
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

// goesOff is called when an entry is due, and says whether the alarm goes off
// with it.
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
