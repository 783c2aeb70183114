package follow

import (
	"testing"
	"time"

	"unbloat/unit"
)

// BenchmarkStep is what a router does twenty times a second while there is load: a
// probe, its answer, flows' round trips, counters and a step. It allocates nothing.
func BenchmarkStep(b *testing.B) {
	p := usual()
	p.Learned = &Learned{}
	f := newFluid(b, p)
	f.c.Wall(0)
	f.greedy()
	f.run(5 * time.Second)
	now, bytes := f.now, unit.Size(1e12)
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(50 * time.Millisecond)
		bytes += 300_000
		c := f.c
		if i, ok := c.Ask(now); ok {
			c.Delay(Delay{At: now, Source: uint32(i), RTT: 35 * time.Millisecond, OneWay: true, Up: 20 * time.Millisecond, Down: 15 * time.Millisecond})
		}
		for flow := range uint32(4) {
			c.Delay(Delay{At: now, Source: 99 + flow, Operator: 7 + flow/2, Passive: true, RTT: 36 * time.Millisecond})
		}
		c.Count(Counters{At: now, Way: [2]Count{{Bytes: bytes}, {Bytes: bytes}}})
		c.Step(now)
	}
	if n := testing.AllocsPerRun(1, func() { f.c.Step(now.Add(time.Second)) }); n != 0 {
		b.Errorf("%v allocations", n)
	}
}
