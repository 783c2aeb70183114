package aqm

import (
	"testing"
	"time"

	"unbloat/unit"
)

// TestFraming compares wire lengths with sums done by hand.
func TestFraming(t *testing.T) {
	for _, c := range []struct {
		name    string
		framing Framing
		in, out unit.Size
	}{
		{"raw", Framing{}, 1514, 1514},
		{"Ethernet with preamble and gap", Framing{Replaced: 14, Overhead: 38, Minimum: 84}, 1514, 1538},
		{"its shortest frame", Framing{Replaced: 14, Overhead: 38, Minimum: 84}, 54, 84},
		{"DOCSIS", Framing{Replaced: 14, Overhead: 18, Minimum: 64}, 1514, 1518},
		{"ADSL, PPPoE LLC/SNAP: 1540 bytes in 33 cells", Framing{Replaced: 14, Overhead: 40, Cells: ATM}, 1514, 33 * 53},
		{"one cell", Framing{Replaced: 14, Overhead: 8, Cells: ATM}, 54, 53},
		{"one byte too many for a cell", Framing{Replaced: 14, Overhead: 9, Cells: ATM}, 54, 106},
		{"VDSL: 1522 bytes and 24", Framing{Replaced: 14, Overhead: 22, Cells: PTM}, 1514, 1546},
		{"never less than a byte", Framing{Replaced: 14, Overhead: -40}, 20, 1},
	} {
		if got := c.framing.Wire(c.in); got != c.out {
			t.Errorf("%s: %d bytes on the wire, want %d", c.name, got, c.out)
		}
	}
}

// bigFIFO returns a FIFO that never drops in these tests.
func bigFIFO(t testing.TB) *FIFO {
	t.Helper()
	q, err := NewFIFO(FIFOParams{Packets: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// drain runs the queue for that long and returns the bytes sent, by class.
// Packets of backlog stay queued in each class listed.
func drain(q Queue, classes []uint8, during time.Duration) map[uint8]unit.Size {
	sent := map[uint8]unit.Size{}
	for _, c := range classes {
		for range 4 {
			q.Enqueue(0, Packet{Class: c, Size: 1500})
		}
	}
	for now, ok := q.Next(0); ok && now < unit.Instant(during); now, ok = q.Next(now) {
		if p, got := q.Dequeue(now); got {
			sent[p.Class] += p.Size
			q.Enqueue(now, Packet{Class: p.Class, Size: 1500})
		}
	}
	return sent
}

// TestTokenBucketRate: the burst at once, then the rate.
func TestTokenBucketRate(t *testing.T) {
	b, err := NewTokenBucket(TokenBucketParams{Rate: 12 * unit.MbitPerSecond, Burst: 15000}, bigFIFO(t))
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		b.Enqueue(0, Packet{Size: 1500})
	}
	atOnce := 0
	for _, ok := b.Dequeue(0); ok; _, ok = b.Dequeue(0) {
		atOnce++
	}
	if atOnce != 10 {
		t.Errorf("%d packets at once, want 10", atOnce)
	}
	if at, ok := b.Next(0); !ok || at != ms {
		t.Errorf("the next packet goes at %d, want 1 ms", at)
	}
	if s := b.Stats(); s.Packets != 10 || b.Len() != 10 || s.Sent != 10 {
		t.Errorf("%+v, Len %d; want 10 sent and 10 queued", s, b.Len())
	}
	if _, ok := b.Dequeue(ms - 1); ok {
		t.Error("a packet a nanosecond early")
	}
	if _, ok := b.Dequeue(ms); !ok {
		t.Error("no packet at 1 ms")
	}
}

// home is an HTB of 10 Mbit/s: a call class of 2 Mbit/s with priority, and two
// of 6 and 2 Mbit/s, of which the last may borrow only up to 4.
func home(t *testing.T) *HTB {
	t.Helper()
	const m = unit.MbitPerSecond
	h, err := NewHTB(HTBParams{MTU: 1514, Classes: []HTBClass{
		{Parent: -1, Rate: 10 * m},
		{Parent: 0, Rate: 2 * m, Ceil: 10 * m, Priority: 0, Inner: bigFIFO(t)},
		{Parent: 0, Rate: 6 * m, Ceil: 10 * m, Priority: 1, Inner: bigFIFO(t)},
		{Parent: 0, Rate: 2 * m, Ceil: 4 * m, Priority: 1, Inner: bigFIFO(t)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestHTBShares: guarantees hold, what is left goes by priority, ceilings cap.
func TestHTBShares(t *testing.T) {
	for _, c := range []struct {
		name    string
		classes []uint8
		want    map[uint8]float64 // Mbit/s
	}{
		{"all busy: each its rate", []uint8{0, 1, 2}, map[uint8]float64{0: 2, 1: 6, 2: 2}},
		{"priority takes what is left", []uint8{0, 1}, map[uint8]float64{0: 4, 1: 6}},
		{"alone at the ceiling", []uint8{2}, map[uint8]float64{2: 4}},
		{"alone at the line", []uint8{1}, map[uint8]float64{1: 10}},
		{"the capped one leaves the rest", []uint8{1, 2}, map[uint8]float64{1: 7, 2: 3}},
	} {
		got := drain(home(t), c.classes, 5*time.Second)
		for class, want := range c.want {
			if rate := float64(got[class]) * 8 / 5e6; rate < want*0.98-0.02 || rate > want*1.02+0.02 {
				t.Errorf("%s: class %d got %.2f Mbit/s, want %.2f", c.name, class, rate, want)
			}
		}
	}
}

// TestHTBRefusesBadTrees names what does not make a tree.
func TestHTBRefusesBadTrees(t *testing.T) {
	const m = unit.MbitPerSecond
	q := bigFIFO(t)
	for name, classes := range map[string][]HTBClass{
		"empty":           nil,
		"no leaf":         {{Parent: -1, Rate: m}},
		"childless":       {{Parent: -1, Rate: m}, {Parent: 0, Rate: m}, {Parent: 0, Rate: m, Inner: q}},
		"later parent":    {{Parent: 1, Rate: m, Inner: q}, {Parent: -1, Rate: m}},
		"child of a leaf": {{Parent: -1, Rate: m, Inner: q}, {Parent: 0, Rate: m, Inner: q}},
		"no rate":         {{Parent: -1, Inner: q}},
		"ceil below rate": {{Parent: -1, Rate: 2 * m, Ceil: m, Inner: q}},
		"priority 8":      {{Parent: -1, Rate: m, Priority: 8, Inner: q}},
	} {
		if _, err := NewHTB(HTBParams{MTU: 1514, Classes: classes}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestPIEHoldsItsTarget: a steady 12 Mbit/s into 10 Mbit/s ends near the
// target, with the excess dropped; under ECN most of it is marked first.
func TestPIEHoldsItsTarget(t *testing.T) {
	p := DefaultPIE()
	p.Seed = 3
	q, err := NewPIE(p)
	if err != nil {
		t.Fatal(err)
	}
	const rate = 10 * unit.MbitPerSecond
	var free unit.Instant
	var sum, n int64
	for i := range 60000 { // 60 s
		now := unit.Instant(i) * ms
		q.Enqueue(now, Packet{Size: 1500})
		for free <= now {
			p, ok := q.Dequeue(max(free, now-ms))
			if !ok {
				free = now + 1
				break
			}
			if i > 30000 {
				sum += int64(max(free, now-ms) - p.Enqueued)
				n++
			}
			free = max(free, now-ms).Add(rate.Time(p.Size))
		}
	}
	if mean := time.Duration(sum / n); mean < 5*time.Millisecond || mean > 30*time.Millisecond {
		t.Errorf("mean delay %v, target 15 ms", mean)
	}
	if s := q.Stats(); s.Dropped*6 < s.Offered/2 || s.Dropped*4 > s.Offered {
		t.Errorf("%d of %d dropped, want about a sixth", s.Dropped, s.Offered)
	}
}

// TestPIEBurstAllowance: nothing is dropped in the first 150 ms of a burst.
func TestPIEBurstAllowance(t *testing.T) {
	q, err := NewPIE(DefaultPIE())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 140 {
		now := unit.Instant(i) * ms
		q.Enqueue(now, Packet{Size: 1500})
		q.Enqueue(now, Packet{Size: 1500})
		q.Dequeue(now)
	}
	if d := q.Stats().Dropped; d != 0 {
		t.Errorf("%d drops within the burst allowance", d)
	}
}
