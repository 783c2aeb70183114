package aqm

import (
	"testing"
	"time"

	"unbloat/unit"
)

// The tests in this file are the cases of ns-3's own tests of CoDel and FqCoDel
// (codel-queue-disc-test-suite.cc, fq-codel-queue-disc-test-suite.cc), for our
// NS3 dialect.

const ms = unit.Instant(time.Millisecond)

func newFQ(t testing.TB, change func(*FQCoDelParams)) *FQCoDel {
	t.Helper()
	p := DefaultFQCoDel(NS3)
	change(&p)
	q, err := NewFQCoDel(p)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func newCoDel(t testing.TB, p CoDelParams) *CoDel {
	t.Helper()
	q, err := NewCoDel(p)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// TestNS3CoDelBasicDrop: 20 packets of 1000 bytes, dequeued at 10, 210, 210 and
// 420 ms. The last dequeue drops a packet each time that drop_next advances.
func TestNS3CoDelBasicDrop(t *testing.T) {
	q := newCoDel(t, DefaultCoDel(NS3))
	for range 20 {
		q.Enqueue(0, Packet{Size: 1000})
	}
	want := uint64(0)
	for i, at := range []unit.Instant{10 * ms, 210 * ms, 210 * ms, 420 * ms} {
		switch i {
		case 1:
			want = 1
		case 3: // count the steps by the exact formula, in ticks of 1024 ns
			root, count := uint16(0xffff), uint32(1)
			for next := uint32(210*ms>>10) + 97655; next <= uint32(420*ms>>10); want++ {
				count++
				root = newton16(root, count)
				next += uint32(97656 * uint64(root) >> 16)
			}
			if want != 4 {
				t.Fatalf("the plain formula updates drop_next %d times, not 3", want-1)
			}
		}
		before := q.Len()
		if _, ok := q.Dequeue(at); !ok {
			t.Fatalf("dequeue %d yields nothing", i)
		}
		if q.Stats().Dropped != want {
			t.Errorf("dequeue %d: %d drops, want %d", i, q.Stats().Dropped, want)
		}
		if gone := before - q.Len(); i == 3 && gone != int(want) {
			t.Errorf("dequeue %d took %d packets, want %d", i, gone, want)
		}
	}
}

// TestNS3CoDelBasicMark is the same with packets that support ECN: a mark
// instead of the drop, and one mark per dequeue, however many are due.
func TestNS3CoDelBasicMark(t *testing.T) {
	p := DefaultCoDel(NS3)
	p.ECN = true
	q := newCoDel(t, p)
	for range 20 {
		q.Enqueue(0, Packet{Size: 1000, ECN: ECT})
	}
	for i, c := range []struct {
		at    unit.Instant
		marks uint64
	}{{10 * ms, 0}, {210 * ms, 1}, {210 * ms, 1}, {420 * ms, 2}} {
		q.Dequeue(c.at)
		if s := q.Stats(); s.Marked != c.marks || s.Dropped != 0 {
			t.Errorf("dequeue %d: %d marks and %d drops, want %d and 0", i, s.Marked, s.Dropped, c.marks)
		}
	}
}

// TestNS3CoDelBasicOverflow: 503 packets into a queue for 500.
func TestNS3CoDelBasicOverflow(t *testing.T) {
	p := DefaultCoDel(NS3)
	p.Packets = 500
	q := newCoDel(t, p)
	for range 503 {
		q.Enqueue(0, Packet{Size: 1000})
	}
	if s := q.Stats(); s.Overlimits != 3 || q.Len() != 500 {
		t.Errorf("%d overlimits and %d queued, want 3 and 500", s.Overlimits, q.Len())
	}
}

// TestNS3CoDelEnqueueDequeue: six packets come out in the order in which they
// went in.
func TestNS3CoDelEnqueueDequeue(t *testing.T) {
	p := DefaultCoDel(NS3)
	p.MTU, p.Interval, p.Target = 1000, 50*time.Millisecond, 4*time.Millisecond
	q := newCoDel(t, p)
	for i := range 6 {
		q.Enqueue(0, Packet{ID: uint64(i), Size: 1000})
	}
	for i := range 6 {
		if p, ok := q.Dequeue(0); !ok || p.ID != uint64(i) {
			t.Fatalf("dequeue %d: packet %d, %t", i, p.ID, ok)
		}
	}
	if _, ok := q.Dequeue(0); ok || q.Stats().Dropped != 0 {
		t.Error("a seventh packet, or a drop")
	}
}

// TestNS3FqCoDelPacketLimit: the limit is 4, flows have 3 and 2 packets. The
// fifth packet makes the larger flow lose two, half of its 300 bytes.
func TestNS3FqCoDelPacketLimit(t *testing.T) {
	q := newFQ(t, func(p *FQCoDelParams) { p.CoDel.Packets, p.Quantum = 4, 1500 })
	for _, flow := range []uint32{0, 0, 0, 1} {
		q.Enqueue(0, Packet{Flow: flow, Size: 100})
	}
	if q.Len() != 4 || q.flows[0].packets != 3 || q.flows[1].packets != 1 {
		t.Fatalf("%d queued, %d and %d in the flows", q.Len(), q.flows[0].packets, q.flows[1].packets)
	}
	q.Enqueue(0, Packet{Flow: 1, Size: 100})
	if q.Len() != 3 || q.flows[0].packets != 1 || q.flows[1].packets != 2 {
		t.Errorf("%d queued, %d and %d in the flows; want 3, 1 and 2", q.Len(), q.flows[0].packets, q.flows[1].packets)
	}
}

// TestNS3FqCoDelDeficit: quantum 90 and packets of 120 bytes.
func TestNS3FqCoDelDeficit(t *testing.T) {
	q := newFQ(t, func(p *FQCoDelParams) { p.Quantum = 90 })
	send := func(flow uint32, n int) {
		for range n {
			q.Enqueue(0, Packet{Flow: flow, Size: 120})
		}
	}
	one, two := &q.flows[0], &q.flows[1]
	check := func(step string, queued int, deficits ...int32) {
		t.Helper()
		got := []int32{one.deficit, two.deficit}[:len(deficits)]
		for i := range deficits {
			if got[i] != deficits[i] {
				t.Errorf("%s: deficit of flow %d is %d, want %d", step, i+1, got[i], deficits[i])
			}
		}
		if q.Len() != queued {
			t.Errorf("%s: %d packets queued, want %d", step, q.Len(), queued)
		}
	}
	send(0, 1)
	check("one packet", 1, 90)
	q.Dequeue(0)
	check("first dequeue", 0, -30)
	send(0, 2)
	send(1, 2)
	check("flow 1 is still new", 4, -30, 90)
	q.Dequeue(0)
	check("from flow 2; flow 1 gets a quantum and is old", 3, 60, -30)
	q.Dequeue(0)
	check("from flow 1", 2, -60, 60)
	q.Dequeue(0)
	check("from flow 2", 1, 30, -60)
	q.Dequeue(0)
	check("from flow 1 again", 0, -90, 30)
	q.Dequeue(0)
	check("both found empty", 0, 90, 30)
	if one.active || two.active {
		t.Error("an empty flow is still active")
	}
}

// TestNS3FqCoDelECN: five flows of 20 packets, one dequeue every 110 ms. Three
// flows support ECN and get 6 marks each; the other two lose 4 packets each.
func TestNS3FqCoDelECN(t *testing.T) {
	drops := map[uint32]int{}
	q := newFQ(t, func(p *FQCoDelParams) {
		p.CoDel.MTU = 1500 // ns-3's MinBytes
		p.CoDel.Drop = func(_ unit.Instant, p Packet, _ Reason) { drops[p.Flow]++ }
	})
	for flow := range uint32(5) {
		ecn := ECT
		if flow >= 3 {
			ecn = NotECT
		}
		for range 20 {
			q.Enqueue(0, Packet{Flow: flow, Size: 120, ECN: ecn})
		}
	}
	marks := map[uint32]int{}
	for i := range 60 {
		if p, ok := q.Dequeue(unit.Instant(i+1) * 110 * ms); ok && p.ECN == CE {
			marks[p.Flow]++
		}
	}
	for flow := range uint32(5) {
		wantMarks, wantDrops := 6, 0
		if flow >= 3 {
			wantMarks, wantDrops = 0, 4
		}
		if marks[flow] != wantMarks || drops[flow] != wantDrops {
			t.Errorf("flow %d: %d marks and %d drops, want %d and %d", flow, marks[flow], drops[flow], wantMarks, wantDrops)
		}
		if q.flows[flow].packets == 0 {
			t.Errorf("flow %d is empty", flow)
		}
	}
}
