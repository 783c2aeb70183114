package aqm

import (
	"testing"
	"time"

	"unbloat/unit"
)

// aTree returns a root of 4 Mbit/s with three classes: the first is sure of 1 Mbit/s
// and has 1.5 at most, the others are sure of 1 and 0.5 and have what is left.
func aTree(t *testing.T) *Classful {
	t.Helper()
	p := ClassfulParams{Of: func(p Packet) int { return int(p.DSCP) }}
	add := func(parent int, rate, ceil unit.Rate, prio int, leaf bool) {
		c := ClassParams{Parent: parent, Rate: rate, Ceil: ceil, Burst: 1600, CBurst: 1600, Prio: prio}
		if leaf {
			q, err := NewFIFO(FIFOParams{Packets: 2000})
			if err != nil {
				t.Fatal(err)
			}
			c.Queue = q
		}
		p.Classes = append(p.Classes, c)
	}
	add(-1, 4*unit.MbitPerSecond, 4*unit.MbitPerSecond, 0, false)
	add(0, unit.MbitPerSecond, 1500*unit.KbitPerSecond, 0, true)
	add(0, 1500*unit.KbitPerSecond, 4*unit.MbitPerSecond, 0, false)
	add(2, unit.MbitPerSecond, 4*unit.MbitPerSecond, 1, true)
	add(2, 500*unit.KbitPerSecond, 4*unit.MbitPerSecond, 2, true)
	h, err := NewClassful(p)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// run lets a tree send for a while, with so many packets always in these classes, and
// returns the rate of each class.
func run(t *testing.T, h *Classful, span time.Duration, busy ...int) map[int]float64 {
	t.Helper()
	now, end := unit.Instant(0), unit.Instant(span)
	sent := map[int]float64{}
	for now < end {
		for _, c := range busy {
			for h.classes[c].Queue.Len() < 5 {
				h.Enqueue(now, Packet{Size: 1500, DSCP: uint8(c)})
			}
		}
		p, ok := h.Dequeue(now)
		if !ok {
			next, any := h.Next(now)
			if !any || next <= now {
				t.Fatalf("at %d it sends nothing, and says %d, %v", now, next, any)
			}
			now = next
			continue
		}
		sent[int(p.DSCP)] += float64(p.Size) * 8
	}
	for c := range sent {
		sent[c] /= span.Seconds() * 1e6
	}
	return sent
}

// TestClassful: a class has what it is sure of, and no more than its ceiling; what
// nobody is sure of goes by prio; all together have the root's rate.
func TestClassful(t *testing.T) {
	for _, c := range []struct {
		busy []int
		want map[int]float64
	}{
		{[]int{1}, map[int]float64{1: 1.5}},
		{[]int{4}, map[int]float64{4: 4}},
		// 1 first to its ceiling, then 3 has all that is left but what 4 is sure of.
		{[]int{1, 3, 4}, map[int]float64{1: 1.5, 3: 2, 4: 0.5}},
		{[]int{3, 4}, map[int]float64{3: 3.5, 4: 0.5}},
	} {
		got := run(t, aTree(t), 20*time.Second, c.busy...)
		for class, want := range c.want {
			if r := got[class]; r < want*0.99-0.01 || r > want*1.01+0.01 {
				t.Errorf("busy %v: class %d has %.3f Mbit/s, not %.1f (%v)", c.busy, class, r, want, got)
			}
		}
	}
}

// TestClassfulFirst: a packet of a class that sends less than it is sure of waits for
// one packet of the others.
func TestClassfulFirst(t *testing.T) {
	h := aTree(t)
	now := unit.Instant(0)
	for range 500 {
		h.Enqueue(now, Packet{Size: 1500, DSCP: 3})
		h.Enqueue(now, Packet{Size: 1500, DSCP: 4})
	}
	var asked, most time.Duration
	waits := false
	for next := unit.Instant(0); now < unit.Instant(time.Second); {
		if now >= next && !waits {
			h.Enqueue(now, Packet{Size: 200, DSCP: 1})
			asked, waits, next = time.Duration(now), true, now.Add(20*time.Millisecond)
		}
		p, ok := h.Dequeue(now)
		switch {
		case !ok:
			now, _ = h.Next(now)
		case p.DSCP == 1:
			waits, most = false, max(most, time.Duration(now)-asked)
		}
	}
	if full := (4 * unit.MbitPerSecond).Time(1500); most > full*11/10 {
		t.Errorf("it waited %s; a full packet takes %s", most, full)
	}
	for name, bad := range map[string]ClassfulParams{
		"no classes": {Of: func(Packet) int { return 0 }},
		"no queue":   {Of: func(Packet) int { return 0 }, Classes: []ClassParams{{Parent: -1, Rate: 1e6, Ceil: 1e6, Burst: 1, CBurst: 1}}},
		"ceiling":    {Of: func(Packet) int { return 0 }, Classes: []ClassParams{{Parent: -1, Rate: 2e6, Ceil: 1e6, Burst: 1, CBurst: 1, Queue: h}}},
		"parent":     {Of: func(Packet) int { return 0 }, Classes: []ClassParams{{Parent: 1, Rate: 1e6, Ceil: 1e6, Burst: 1, CBurst: 1, Queue: h}}},
	} {
		if _, err := NewClassful(bad); err == nil {
			t.Errorf("%s: it was taken", name)
		}
	}
}
