package delay

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"unbloat/unit"
)

// datum is a segment of a connection's data.
func datum(seq, length uint32) *Segment {
	return &Segment{Src: netip.AddrFrom4([4]byte{10, 1, 0, 2}), Dst: netip.AddrFrom4([4]byte{10, 3, 0, 2}), SrcPort: 4000, DstPort: 443, Seq: seq, Length: length, Flags: FlagAck}
}

// A hole in what arrives is the line's, and what arrives twice was dropped behind here; of
// what leaves it is the other way round.
func TestLossOfWhom(t *testing.T) {
	const kib = 1 << 10
	for _, c := range []struct {
		name        string
		blocks      []uint32 // KiB that cross, in this order
		holes, more uint64
	}{
		{"in order", []uint32{5, 6, 7, 8}, 0, 0},
		{"a hole", []uint32{5, 6, 9}, 2, 0},
		{"a hole that is filled later", []uint32{5, 6, 9, 7, 8}, 2, 0},
		{"one that is filled twice", []uint32{5, 6, 8, 7, 7}, 1, 1},
		{"sent again", []uint32{5, 6, 7, 5, 6}, 0, 2},
		{"from one block to the next", []uint32{62, 63, 64, 65}, 0, 0},
		{"sent again from the block before", []uint32{62, 63, 64, 65, 63}, 0, 1},
		{"sent again from one long past", []uint32{62, 130, 200, 62}, 0, 0},
		{"the first that is seen", []uint32{40, 41}, 0, 0},
	} {
		for _, out := range []bool{false, true} {
			l := NewLosses()
			for i, k := range c.blocks {
				l.Observe(unit.Instant(i+1)*unit.Instant(time.Millisecond), out, datum(k*kib, kib))
			}
			line, own := c.holes, c.more
			if out {
				line, own = own, line
			}
			if x := l.Loss(out); x.Line != line || x.Own != own || l.Loss(!out) != (Loss{}) {
				t.Errorf("%s, out %v: %+v", c.name, out, x)
			}
		}
	}
}

// Whatever the sizes of segments, and however few blocks are followed, the shares that the
// line and the shaper drop are found.
func TestLossShares(t *testing.T) {
	for _, gate := range []int{0, 3} {
		for _, out := range []bool{false, true} {
			r := rand.New(rand.NewPCG(1, uint64(gate)))
			l := NewLosses()
			l.way(out).gate = gate
			const line, own, rtt = 0.02, 0.01, 60 // segments
			type sent struct {
				*Segment
				again int
			}
			var due []sent
			seq := ^uint32(0) - 3<<20 // numbers wrap
			for i := range 200_000 {
				s := datum(seq, 900+uint32(r.IntN(549)))
				if len(due) > 0 && due[0].again <= i {
					s, due = due[0].Segment, due[1:]
				} else {
					seq += s.Length
				}
				lostByLine, lostByUs := r.Float64() < line, r.Float64() < own
				crosses := !lostByLine
				if out {
					crosses = !lostByUs
				}
				if crosses && l.Passes(out, s) {
					l.Observe(unit.Instant(i+1)*unit.Instant(time.Millisecond), out, s)
				}
				if lostByLine || lostByUs {
					due = append(due, sent{s, i + rtt})
				}
			}
			x := l.Loss(out)
			t.Logf("gate %d, out %v: %+v", gate, out, x)
			for _, y := range []struct {
				is   uint64
				want float64
			}{{x.Line, line}, {x.Own, own}} {
				if share := float64(y.is) / float64(x.Seen); share < 0.75*y.want || share > 1.25*y.want {
					t.Errorf("gate %d, out %v: %.4f, want %.3f", gate, out, share, y.want)
				}
			}
		}
	}
}

// A fast line is thinned out until few enough segments are left; a segment costs no memory.
func TestLossGate(t *testing.T) {
	w := NewWatch(TrackerConfig{})
	now := unit.Instant(time.Second)
	seq := uint32(0)
	for range 20 {
		for range 20_000 {
			now = now.Add(50 * time.Microsecond)
			seq += 1448
			w.Observe(now, false, datum(seq, 1448))
		}
		w.Collect(now, func(Sample) {})
	}
	if m := w.Masks(); m.Down != (1<<5-1)<<16 || m.Up != 0 {
		t.Errorf("masks %+v for 20,000 segments a second", m)
	}
	if x := w.Loss(false); x.Line != 0 || x.Own != 0 || x.Seen == 0 {
		t.Errorf("%+v", x)
	}
	s := datum(0, 1448)
	if n := testing.AllocsPerRun(1000, func() { s.Seq += 1448; w.Observe(now, true, s) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	w.Missed()
	w.Observe(now, true, datum(s.Seq+10<<10, 1448))
	if x := w.Loss(true); x.Own != 0 {
		t.Errorf("what was missed counts as lost: %+v", x)
	}
}
