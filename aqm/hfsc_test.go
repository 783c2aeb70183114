package aqm

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/unit"
)

// TestHFSCShares: link sharing by weight, upper limits, and real-time rates
// that hold against them.
func TestHFSCShares(t *testing.T) {
	const m = unit.MbitPerSecond
	plain := func(r unit.Rate) ServiceCurve { return ServiceCurve{Then: r} }
	line := HFSCClass{Parent: -1, LinkShare: plain(10 * m), UpperLimit: plain(10 * m)}
	for _, c := range []struct {
		name   string
		leaves []HFSCClass
		busy   []uint8
		want   map[uint8]float64 // Mbit/s
	}{
		{"by weight", []HFSCClass{{LinkShare: plain(1 * m)}, {LinkShare: plain(3 * m)}, {LinkShare: plain(6 * m)}},
			[]uint8{0, 1, 2}, map[uint8]float64{0: 1, 1: 3, 2: 6}},
		{"what is left by weight", []HFSCClass{{LinkShare: plain(1 * m)}, {LinkShare: plain(3 * m)}, {LinkShare: plain(6 * m)}},
			[]uint8{0, 1}, map[uint8]float64{0: 2.5, 1: 7.5}},
		{"limited", []HFSCClass{{LinkShare: plain(5 * m), UpperLimit: plain(2 * m)}, {LinkShare: plain(5 * m)}},
			[]uint8{0, 1}, map[uint8]float64{0: 2, 1: 8}},
		{"alone at its limit", []HFSCClass{{LinkShare: plain(5 * m), UpperLimit: plain(2 * m)}},
			[]uint8{0}, map[uint8]float64{0: 2}},
		{"guaranteed against its weight", []HFSCClass{{RealTime: plain(6 * m), LinkShare: plain(1 * m)}, {LinkShare: plain(9 * m)}},
			[]uint8{0, 1}, map[uint8]float64{0: 6, 1: 4}},
	} {
		classes := []HFSCClass{line}
		for _, l := range c.leaves {
			l.Parent, l.Inner = 0, bigFIFO(t)
			classes = append(classes, l)
		}
		h, err := NewHFSC(HFSCParams{Classes: classes})
		if err != nil {
			t.Fatal(err)
		}
		got := drain(h, c.busy, 5*time.Second)
		for class, want := range c.want {
			if rate := float64(got[class]) * 8 / 5e6; rate < want*0.98-0.02 || rate > want*1.02+0.02 {
				t.Errorf("%s: class %d got %.2f Mbit/s, want %.2f", c.name, class, rate, want)
			}
		}
	}
}

// TestHFSCDelayBound: 160-byte packets each 20 ms with a curve of 160 bytes in
// 5 ms, then 64 kbit/s, leave within 5 ms and one packet of the others.
func TestHFSCDelayBound(t *testing.T) {
	const m = unit.MbitPerSecond
	h, err := NewHFSC(HFSCParams{Classes: []HFSCClass{
		{Parent: -1, LinkShare: ServiceCurve{Then: 5 * m}, UpperLimit: ServiceCurve{Then: 5 * m}},
		{Parent: 0, RealTime: ServiceCurve{First: 256 * unit.KbitPerSecond, For: 5 * time.Millisecond, Then: 64 * unit.KbitPerSecond}, Inner: bigFIFO(t)},
		{Parent: 0, LinkShare: ServiceCurve{Then: 5 * m}, Inner: bigFIFO(t)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		h.Enqueue(0, Packet{Class: 1, Size: 1500})
	}
	var now, next unit.Instant
	calls := 0
	for now < 2000*ms {
		for ; next <= now; next += 20 * ms {
			h.Enqueue(next, Packet{Class: 0, Size: 160})
		}
		at, _ := h.Next(now)
		if at > now {
			now = min(at, next)
			continue
		}
		p, ok := h.Dequeue(now)
		if !ok {
			t.Fatalf("nothing at %d, although Next promised it", now)
		}
		if p.Class == 0 {
			calls++
			if wait := now - p.Enqueued; wait > 5*ms+2400*ms/1000 {
				t.Fatalf("a call's packet waited %.2f ms", float64(wait)/1e6)
			}
		} else {
			h.Enqueue(now, Packet{Class: 1, Size: 1500})
		}
		now = now.Add((5 * m).Time(p.Size)) // the link itself
	}
	if calls < 99 {
		t.Errorf("%d calls' packets, want 100", calls)
	}
}

// TestCurveInverts: when is the inverse of at, to a nanosecond's bytes.
func TestCurveInverts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string, high int64) int64 { return rapid.Int64Range(1, high).Draw(t, name) }
		s := ServiceCurve{First: unit.Rate(draw("m1", 1e9)), For: time.Duration(draw("d", 1e9)), Then: unit.Rate(draw("m2", 1e9))}
		c := s.start()
		c.x, c.y = draw("x", 1e12), draw("y", 1e12)
		y := c.y + draw("dy", 1e6)
		x := c.when(y)
		if x < far && (c.at(x) < y-1 || c.at(x-1) > y) {
			t.Fatalf("%+v reaches %d at %d, where it is %d (before: %d)", c, y, x, c.at(x), c.at(x-1))
		}
		before := c
		at, from := c.x+draw("later", 1e10), c.y+draw("more", 1e7)
		c.lower(s, at, from)
		if got, most := c.at(at), max(before.at(at), from); got > most+1 {
			t.Fatalf("lowered curve is %d at its start, above %d", got, most)
		}
	})
}

// TestHFSCRefusesBadTrees names what cannot work.
func TestHFSCRefusesBadTrees(t *testing.T) {
	q := bigFIFO(t)
	some := ServiceCurve{Then: 1e6}
	for name, classes := range map[string][]HFSCClass{
		"empty":                {},
		"childless":            {{Parent: -1, LinkShare: some}},
		"child of a leaf":      {{Parent: -1, LinkShare: some, Inner: q}, {Parent: 0, LinkShare: some, Inner: q}},
		"no curve":             {{Parent: -1, Inner: q}},
		"real time inside":     {{Parent: -1, RealTime: some, LinkShare: some}, {Parent: 0, LinkShare: some, Inner: q}},
		"limit alone":          {{Parent: -1, RealTime: some, UpperLimit: some, Inner: q}},
		"curve that ends":      {{Parent: -1, LinkShare: ServiceCurve{First: 1e6, For: time.Second}, Inner: q}},
		"parent after the son": {{Parent: 1, LinkShare: some, Inner: q}},
	} {
		if _, err := NewHFSC(HFSCParams{Classes: classes}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
