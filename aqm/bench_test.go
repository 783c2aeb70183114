package aqm

import (
	"testing"

	"unbloat/unit"
)

// busy returns an FQ-CoDel with 1024 flows of eight packets each.
func busy(tb testing.TB, d Dialect) (*FQCoDel, unit.Instant) {
	tb.Helper()
	p := DefaultFQCoDel(d)
	q, err := NewFQCoDel(p)
	if err != nil {
		tb.Fatal(err)
	}
	now := unit.Instant(1)
	for i := range 8 * 1024 {
		q.Enqueue(now, Packet{Flow: uint32(i), Size: 1514})
	}
	return q, now
}

// BenchmarkFQCoDel1024 measures one enqueue and one dequeue with 1024 busy
// flows. The promise is at most 60 ns and no allocation.
func BenchmarkFQCoDel1024(b *testing.B) {
	q, now := busy(b, Linux612)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		now += 100
		q.Enqueue(now, Packet{Flow: uint32(i) * 2654435761, Size: 1514})
		if _, ok := q.Dequeue(now); !ok {
			b.Fatal("empty")
		}
	}
	b.StopTimer()
	if q.Len() < 1024 {
		b.Fatalf("%d packets are left: the flows were not busy", q.Len())
	}
}

// BenchmarkQueues measures the same for the other queues.
func BenchmarkQueues(b *testing.B) {
	for _, s := range subjects() {
		b.Run(s.name, func(b *testing.B) {
			q, err := s.make(nil)
			if err != nil {
				b.Fatal(err)
			}
			now := unit.Instant(1)
			b.ReportAllocs()
			for i := range b.N {
				now += 10_000_000
				q.Enqueue(now, Packet{Flow: uint32(i) * 2654435761, Size: 1514})
				q.Dequeue(now)
			}
		})
	}
}
