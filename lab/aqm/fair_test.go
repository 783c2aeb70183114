package aqm

import (
	"testing"

	"pgregory.net/rapid"

	"unbloat/unit"
)

// TestDeficitRoundRobinIsFair: of flows that always have packets, any two have
// sent the same number of bytes, except for a quantum per round and one packet.
func TestDeficitRoundRobinIsFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dialect := Dialect(rapid.IntRange(0, int(NS3)).Draw(t, "dialect"))
		p := DefaultFQCoDel(dialect)
		p.Quantum = unit.Size(rapid.IntRange(64, 3000).Draw(t, "quantum"))
		p.CoDel.Packets = 1000
		q, err := NewFQCoDel(p)
		if err != nil {
			t.Fatal(err)
		}
		flows := rapid.IntRange(2, 20).Draw(t, "flows")
		sizes := rapid.SliceOfN(rapid.IntRange(1, 1514), 40, 40).Draw(t, "sizes")
		for i := range flows * 40 {
			q.Enqueue(1, Packet{Flow: uint32(i % flows), Size: unit.Size(sizes[(i/flows+i)%40])})
		}
		served := make([]unit.Size, flows)
		for {
			p, ok := q.Dequeue(2) // at the same instant: CoDel sees no delay
			if !ok {
				t.Fatal("ran dry")
			}
			served[p.Flow] += p.Size
			if q.flows[p.Flow].packets == 0 {
				return
			}
			for i := range served {
				for j := range served {
					if d := served[i] - served[j]; d > 2*unit.Size(q.quantum)+1514 {
						t.Fatalf("flow %d has %d bytes more than flow %d, quantum %d", i, d, j, q.quantum)
					}
				}
			}
		}
	})
}

// TestStartTimeIsFair: the same for start-time fair queueing, within two
// packets of any size (Goyal et al., theorem 1) and the MTU by which a flow may
// start early.
func TestStartTimeIsFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := DefaultStartTime(RFC)
		q, err := NewStartTime(p)
		if err != nil {
			t.Fatal(err)
		}
		flows := rapid.IntRange(2, 20).Draw(t, "flows")
		left := make([]int, flows)
		sizes := rapid.SliceOfN(rapid.IntRange(1, 1514), 30, 30).Draw(t, "sizes")
		for i := range flows * 30 {
			q.Enqueue(1, Packet{Flow: uint32(i % flows), Size: unit.Size(sizes[(i/flows+i)%30])})
			left[i%flows]++
		}
		served := make([]unit.Size, flows)
		for {
			p, _ := q.Dequeue(2)
			served[p.Flow] += p.Size
			if left[p.Flow]--; left[p.Flow] == 0 {
				return
			}
			for i := range served {
				for j := range served {
					if d := served[i] - served[j]; d > 3*1514 {
						t.Fatalf("flow %d has %d bytes more than flow %d", i, d, j)
					}
				}
			}
		}
	})
}

// voip sends a 214-byte packet every 20 ms for two seconds beside greedy flows,
// on a line of 5 Mbit/s. It returns the longest wait of such a packet.
func voip(t *testing.T, q Queue, greedy int) unit.Instant {
	t.Helper()
	const rate = 5 * unit.MbitPerSecond
	const call = 1000
	id := uint64(0)
	add := func(now unit.Instant, flow uint32, size unit.Size) {
		id++
		q.Enqueue(now, Packet{ID: id, Flow: flow, Size: size})
	}
	for f := range uint32(greedy) {
		for range 5 {
			add(0, f, 1514)
		}
	}
	var now, next, worst unit.Instant
	for now < 2000*ms {
		for ; next <= now; next += 20 * ms {
			add(next, call, 214)
		}
		p, ok := q.Dequeue(now)
		if !ok {
			t.Fatal("idle")
		}
		if p.Flow == call {
			worst = max(worst, now-p.Enqueued)
		} else {
			add(now, p.Flow, 1514) // a greedy flow sends one packet for each that left
		}
		now = now.Add(rate.Time(p.Size))
	}
	return worst
}

// TestStartTimeBoundsASparseFlowsWait: beside 40 greedy flows, a call below its
// fair share waits for about one packet of 2.4 ms (the longest wait is 2.8 ms).
// With deficit round robin it waits for a round of all flows (77.6 ms).
func TestStartTimeBoundsASparseFlowsWait(t *testing.T) {
	for _, greedy := range []int{10, 20, 40, 50} {
		st, err := NewStartTime(DefaultStartTime(Linux612))
		if err != nil {
			t.Fatal(err)
		}
		worst := voip(t, st, greedy)
		t.Logf("%d greedy flows: start-time fair queueing %.2f ms", greedy, float64(worst)/1e6)
		if worst > 2*2423*ms/1000 {
			t.Errorf("%d greedy flows: the call waited %.1f ms", greedy, float64(worst)/1e6)
		}
		fq, err := NewFQCoDel(DefaultFQCoDel(Linux612))
		if err != nil {
			t.Fatal(err)
		}
		if worst := voip(t, fq, greedy); greedy == 40 && worst < 30*ms {
			t.Errorf("%d greedy flows: fq_codel kept the call to %.1f ms, which is too good to be true", greedy, float64(worst)/1e6)
		}
	}
}

// TestNothingAllocatesOnceGrown: once a queue has held its full load, it
// allocates no more memory per packet.
func TestNothingAllocatesOnceGrown(t *testing.T) {
	for _, s := range subjects() {
		q, err := s.make(nil)
		if err != nil {
			t.Fatal(err)
		}
		now := unit.Instant(1)
		id := uint32(0)
		step := func() {
			for range 50 {
				id++
				now += 200_000
				q.Enqueue(now, Packet{Flow: id * 2654435761, Source: id % 7, Destination: id % 5,
					DSCP: uint8(id % 64), Size: 1514})
				if id%3 != 0 {
					q.Dequeue(now)
				}
			}
		}
		for range 50 {
			step()
		}
		if n := testing.AllocsPerRun(20, step); n > 0 {
			t.Errorf("%s: %.1f allocations for 50 packets", s.name, n)
		}
	}
}

// TestStartTimeGivesNothingForPausing: a flow that sends only when its queue is
// empty gets no more than its share and an MTU.
func TestStartTimeGivesNothingForPausing(t *testing.T) {
	q, err := NewStartTime(DefaultStartTime(RFC))
	if err != nil {
		t.Fatal(err)
	}
	const pauser = 9
	for f := range uint32(4) {
		for range 200 {
			q.Enqueue(1, Packet{Flow: f, Size: 1000})
		}
	}
	served := map[uint32]unit.Size{}
	waiting := false
	for range 500 {
		if !waiting {
			q.Enqueue(1, Packet{Flow: pauser, Size: 1000})
			waiting = true
		}
		p, _ := q.Dequeue(1)
		served[p.Flow] += p.Size
		waiting = waiting && p.Flow != pauser
	}
	for f := range uint32(4) {
		if served[pauser] > served[f]+1514+2*1000 {
			t.Errorf("the pausing flow has %d bytes, flow %d %d", served[pauser], f, served[f])
		}
	}
}
