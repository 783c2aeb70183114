package main

import (
	"testing"
	"time"

	"unbloat/unit"
)

// sparse returns the candidate of the goals.
func sparse(t *testing.T) candidate {
	t.Helper()
	for _, c := range candidates() {
		if c.name == "sparse first" {
			return c
		}
	}
	t.Fatal("no candidate named sparse first")
	return candidate{}
}

// A call at 5 Mbit/s loses nothing and its 99th percentile is at most 4 ms,
// whatever shares the line. Bulk flows keep at least half of the rate that they
// would have alone, against 1 to 50 flows that abuse the guarantee.
func TestSparseFirstHoldsItsGoals(t *testing.T) {
	queue := sparse(t)
	seeds := []uint64{1, 2}
	alone, err := measure(situation{name: "10 bulk", rate: 5 * unit.MbitPerSecond, bulk: 10}, queue, 1)
	if err != nil {
		t.Fatal(err)
	}
	all := situations()
	for _, n := range []int{2, 5, 15, 30, 40} {
		all = append(all, abuse(n, 10, 300))
	}
	for _, s := range all {
		if s.rate != 5*unit.MbitPerSecond {
			continue // a full packet takes longer than 4 ms
		}
		if s.abusers > 0 && s.pace < 0.9 {
			continue // these send less than the call, and cannot be distinguished from one
		}
		for _, seed := range seeds {
			o, err := measure(s, queue, seed)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s, seed %d: p99 %.2f ms, loss %.2f %%, bulk %.2f Mbit/s of %.2f", s.name, seed, unit.Ms(o.p99), 100*o.loss, o.bulk.Mbit(), alone.bulk.Mbit())
			if o.p99 > 4*time.Millisecond || o.loss > 0 {
				t.Errorf("%s, seed %d: the call's p99 is %.2f ms and its loss %.2f %%; want 4 ms and none", s.name, seed, unit.Ms(o.p99), 100*o.loss)
			}
			if s.abusers > 0 && 2*o.bulk < alone.bulk {
				t.Errorf("%s, seed %d: bulk has %.2f Mbit/s, less than half of %.2f", s.name, seed, o.bulk.Mbit(), alone.bulk.Mbit())
			}
		}
	}
}
