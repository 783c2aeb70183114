package aqm

import (
	"slices"
	"syscall"
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

// cpuTime returns the processor time that this process has used, in ns. Unlike
// the elapsed time it does not grow while other processes run.
func cpuTime() int64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkFQCoDel1024 measures one enqueue and one dequeue with 1024 busy
// flows. The promise is at most 60 ns of processor time and no allocation. It
// must hold for the best of many turns of a millisecond: other processes that
// use the same caches disturb the rest.
func BenchmarkFQCoDel1024(b *testing.B) {
	const turn = 20_000
	q, now := busy(b, Linux612)
	costs := make([]float64, 0, b.N/turn)
	b.ReportAllocs()
	b.ResetTimer()
	began := cpuTime()
	for i := range b.N {
		now += 100
		q.Enqueue(now, Packet{Flow: uint32(i) * 2654435761, Size: 1514})
		if _, ok := q.Dequeue(now); !ok {
			b.Fatal("empty")
		}
		if (i+1)%turn == 0 {
			ended := cpuTime()
			costs = append(costs, float64(ended-began)/turn)
			began = ended
		}
	}
	b.StopTimer()
	if q.Len() < 1024 {
		b.Fatalf("%d packets are left: the flows were not busy", q.Len())
	}
	if len(costs) == 0 {
		return
	}
	slices.Sort(costs)
	b.ReportMetric(costs[0], "cpu-ns/op")
	b.ReportMetric(costs[len(costs)/2], "median-cpu-ns/op")
	if costs[0] > 60 {
		b.Errorf("an enqueue and a dequeue took %.1f ns of the processor, more than 60", costs[0])
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
