package aqm

import (
	"testing"
	"time"

	"unbloat/unit"
)

// Busy queues share the link by their weights, and one that sends less than its
// weight allows waits for about one packet of the others.
func TestWeighted(t *testing.T) {
	p := WeightedParams{Weights: []int{30, 50, 20}, Of: func(p Packet) int { return int(p.DSCP) }}
	for range p.Weights {
		q, err := NewFIFO(FIFOParams{Packets: 1000})
		if err != nil {
			t.Fatal(err)
		}
		p.Queues = append(p.Queues, q)
	}
	w, err := NewWeighted(p)
	if err != nil {
		t.Fatal(err)
	}
	now := unit.Instant(0)
	for range 900 {
		w.Enqueue(now, Packet{Size: 1500, DSCP: 1})
		w.Enqueue(now, Packet{Size: 1500, DSCP: 2})
	}
	var sent [3]unit.Size
	waits, most := -1, 0
	for i := range 600 {
		if i%20 == 10 { // 200 bytes of 30000: less than its weight
			w.Enqueue(now, Packet{Size: 200})
			waits = 0
		}
		q, ok := w.Dequeue(now)
		if !ok {
			t.Fatal("it is empty")
		}
		sent[q.DSCP] += q.Size
		if waits >= 0 {
			if waits++; q.DSCP == 0 {
				most, waits = max(most, waits), -1
			}
		}
		now = now.Add(time.Millisecond)
	}
	if most > 2 {
		t.Errorf("a packet of the first queue left as the %dth", most)
	}
	if share := float64(sent[1]) / float64(sent[1]+sent[2]); share < 0.70 || share > 0.73 {
		t.Errorf("the second queue had %.3f of what it shares with the third, not 5/7", share)
	}
	for _, bad := range []WeightedParams{{}, {Queues: p.Queues, Weights: []int{1, 2, 101}, Of: p.Of}, {Queues: p.Queues, Weights: []int{1, 2}, Of: p.Of}} {
		if _, err := NewWeighted(bad); err == nil {
			t.Errorf("%v was taken", bad.Weights)
		}
	}
}
