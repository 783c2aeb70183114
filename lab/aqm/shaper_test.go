package aqm

import (
	"testing"
	"time"

	"unbloat/unit"
)

// TestFraming compares the length on the line with sums calculated by hand.
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

// TestTokenBucketRate: first the burst at once, then the rate.
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

// TestBuckets: what each kind sends at once, and when it sends the next packet.
func TestBuckets(t *testing.T) {
	for _, c := range []struct {
		bucket Bucket
		burst  unit.Size
		atOnce int
		next   unit.Instant
	}{
		{TBF, 3000, 2, ms},
		{HTB, 3000, 3, ms}, // the third is sent in debt
		{HTB, 1500, 2, ms},
		{HFSC, 0, 1, ms},
	} {
		b, err := NewTokenBucket(TokenBucketParams{Bucket: c.bucket, Rate: 12 * unit.MbitPerSecond, Burst: c.burst}, bigFIFO(t))
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			b.Enqueue(0, Packet{Size: 1500})
		}
		atOnce := 0
		for _, ok := b.Dequeue(0); ok; _, ok = b.Dequeue(0) {
			atOnce++
		}
		at, ok := b.Next(0)
		if atOnce != c.atOnce || !ok || at != c.next {
			t.Errorf("%+v: %d packets at once, the next at %d", c, atOnce, at)
		}
	}
}

// TestShapersKeepTheRate: with packets waiting, each kind sends its rate.
func TestShapersKeepTheRate(t *testing.T) {
	for bucket, burst := range map[Bucket]unit.Size{TBF: 1514, HTB: 1514, HFSC: 0} {
		b, err := NewTokenBucket(TokenBucketParams{Bucket: bucket, Rate: 10 * unit.MbitPerSecond, Burst: burst}, bigFIFO(t))
		if err != nil {
			t.Fatal(err)
		}
		sent := unit.Size(0)
		for range 4 {
			b.Enqueue(0, Packet{Size: 1500})
		}
		for now, ok := b.Next(0); ok && now < unit.Instant(5*time.Second); now, ok = b.Next(now) {
			if p, got := b.Dequeue(now); got {
				sent += p.Size
				b.Enqueue(now, Packet{Size: 1500})
			}
		}
		if rate := float64(sent) * 8 / 5e6; rate < 9.98 || rate > 10.02 {
			t.Errorf("bucket %d: %.3f Mbit/s, want 10", bucket, rate)
		}
	}
}

// TestTokenBucketRefuses: rates and bursts that make no shaper are refused.
func TestTokenBucketRefuses(t *testing.T) {
	const m = unit.MbitPerSecond
	for name, p := range map[string]TokenBucketParams{
		"no rate":         {Burst: 1514},
		"no burst":        {Rate: m},
		"negative burst":  {Rate: m, Burst: -1},
		"HTB, no burst":   {Bucket: HTB, Rate: m},
		"HFSC with burst": {Bucket: HFSC, Rate: m, Burst: 1514},
		"framing":         {Rate: m, Burst: 1514, Framing: Framing{Overhead: 1000}},
	} {
		if _, err := NewTokenBucket(p, bigFIFO(t)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := NewTokenBucket(TokenBucketParams{Rate: m, Burst: 1514}, nil); err == nil {
		t.Error("no inner queue: accepted")
	}
}
