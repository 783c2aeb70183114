package netio

import (
	"time"

	"unbloat/unit"
)

// arrivals is what the kernel reported, at intervals, of the data that came in
// on one TCP connection.
//
// TCP hands over nothing that waits behind a hole, and on a line with a long
// queue a hole lasts for seconds: booked when it was handed over, data would
// falsify the goodput at the edges of a phase, by 5 % on 1 Mbit/s. But the
// kernel counts each segment when it comes. Segments × their size, less the
// bytes in order, is what waits behind holes plus what came twice (or in short
// segments); of these the latter only grow, and the former is nothing whenever
// no hole is open. So the least excess from a mark on is what had come twice by
// then, and the rest waits behind holes.
type arrivals struct {
	marks []mark
	every time.Duration
	next  unit.Instant
	mss   int64
}

// mark is what had come in by an instant.
type mark struct {
	at       unit.Instant
	inOrder  int64 // bytes
	segments int64
}

// maxMarks bounds the memory of a long-lived flow: beyond it every second mark
// is dropped, and marks come half as often.
const maxMarks = 2048

// add files a mark.
func (a *arrivals) add(m mark, mss int64) {
	if n := len(a.marks); n > 0 && !a.marks[n-1].at.Before(m.at) {
		return
	}
	a.mss = max(a.mss, mss)
	a.marks = append(a.marks, m)
	if len(a.marks) > maxMarks {
		kept := a.marks[:0]
		for i := 0; i < len(a.marks); i += 2 {
			kept = append(kept, a.marks[i])
		}
		a.marks = kept
		a.every *= 2
	}
	a.next = m.at.Add(a.every)
}

// bins returns the bytes that arrived, in order or not, in bins. Their sum is
// what arrived in order by the last mark.
func (a *arrivals) bins(start unit.Instant, width time.Duration) Bins {
	b := Bins{Start: start, Width: width}
	if len(a.marks) == 0 {
		return b
	}
	arrived := a.arrived()
	for i := 1; i < len(a.marks); i++ {
		b.Add(a.marks[i-1].at, a.marks[i].at, arrived[i]-arrived[i-1])
	}
	return b
}

// arrived returns, for every mark, how many bytes had arrived since the first.
func (a *arrivals) arrived() []int64 {
	first := a.marks[0]
	mss := a.mss
	for _, m := range a.marks { // a segment is never smaller than what it brought in order
		if s := m.segments - first.segments; s > 0 {
			mss = max(mss, (m.inOrder-first.inOrder+s-1)/s)
		}
	}
	out := make([]int64, len(a.marks))
	twice := int64(-1) // the least excess from here on; none yet
	for i := len(a.marks) - 1; i >= 0; i-- {
		came := (a.marks[i].segments - first.segments) * mss
		inOrder := a.marks[i].inOrder - first.inOrder
		excess := max(came-inOrder, 0) // below zero only if the kernel does not count segments
		if twice < 0 || excess < twice {
			twice = excess
		}
		out[i] = max(came-twice, inOrder)
	}
	return out
}
