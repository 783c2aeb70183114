package netio

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/unit"
)

// Law: on a link that loses segments the counted bytes never decrease, are
// never fewer than those in order, and end at the same sum. If all holes get
// filled before the end, they are what really arrived, in spite of reordering
// and duplicates.
func TestArrivalsSeeBehindHoles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const mss = 1448
		n := rapid.IntRange(1, 400).Draw(t, "segments")
		lost := rapid.IntRange(0, 40).Draw(t, "lost %")
		twice := rapid.IntRange(0, 20).Draw(t, "twice %")
		dice := rapid.IntRange(0, 99)
		var a arrivals
		a.every = 1
		got := make([]bool, n)
		inOrder, came, unique := 0, int64(0), int64(0)
		var truth []int64
		note := func(at int) {
			for inOrder < n && got[inOrder] {
				inOrder++
			}
			a.add(mark{unit.Instant(at), int64(inOrder) * mss, came}, mss)
			truth = append(truth, unique*mss)
		}
		note(1)
		at := 1
		arrive := func(i int) {
			came++
			if !got[i] {
				got[i] = true
				unique++
			}
			at++
			note(at)
		}
		dup := false
		for i := range n {
			if dice.Draw(t, "loss") >= lost {
				arrive(i)
				if dice.Draw(t, "again") < twice {
					dup = true
					arrive(i)
				}
			}
		}
		for i := range n { // the sender fills the holes
			if !got[i] {
				arrive(i)
			}
		}
		booked := a.arrived()
		for i := range booked {
			switch {
			case i > 0 && booked[i] < booked[i-1]:
				t.Fatalf("mark %d: %d after %d", i, booked[i], booked[i-1])
			case booked[i] < a.marks[i].inOrder:
				t.Fatalf("mark %d: %d, but %d in order", i, booked[i], a.marks[i].inOrder)
			case booked[i] > truth[i]+int64(n)*mss || !dup && booked[i] != truth[i]:
				t.Fatalf("mark %d: %d, truly %d", i, booked[i], truth[i])
			}
		}
		b := a.bins(1, 7)
		if b.Total != int64(n)*mss || booked[len(booked)-1] != b.Total {
			t.Fatalf("total %d, want %d", b.Total, n*mss)
		}
	})
}

func TestArrivalsWithoutSegmentCounts(t *testing.T) { // kernels before 4.6
	var a arrivals
	for i := range 10 {
		a.add(mark{unit.Instant(i + 1), int64(i) * 1000, 0}, 0)
	}
	for i, got := range a.arrived() {
		if got != int64(i)*1000 {
			t.Errorf("mark %d: %d", i, got)
		}
	}
}

func TestArrivalsStayBounded(t *testing.T) {
	a := arrivals{every: time.Second}
	at := unit.Instant(1)
	var bytes int64
	for range 100_000 {
		if !at.Before(a.next) {
			a.add(mark{at, bytes, bytes / 1000}, 1000)
		}
		at, bytes = at.Add(time.Second), bytes+1000
	}
	if n := len(a.marks); n > maxMarks || n < maxMarks/4 {
		t.Errorf("%d marks", n)
	}
	if b := a.bins(1, time.Hour); b.Bytes[3] != 3_600_000 {
		t.Errorf("an hour holds %d bytes", b.Bytes[3])
	}
}
