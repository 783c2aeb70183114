package sim

import (
	"testing"

	"pgregory.net/rapid"

	"unbloat/unit"
)

// With any movement of the window, each outstanding segment is found with its
// data, including BBR's.
func TestSegmentsFollowTheWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &Conn{segments: make([]segment, fewSegments)}
		for _, step := range rapid.SliceOf(rapid.IntRange(-300, 300)).Draw(t, "sent or acknowledged") {
			for ; step > 0; step-- {
				if int(c.nxt-c.una) == len(c.segments) {
					c.grow()
				}
				c.at(c.nxt).sent = unit.Instant(c.nxt)
				c.at(c.nxt).flight.delivered = c.nxt
				c.nxt++
			}
			for ; step < 0 && c.una < c.nxt; step++ {
				c.una++
			}
			for i := c.una; i < c.nxt; i++ {
				if f := c.at(i).flight; c.at(i).sent != unit.Instant(i) || f.delivered != i {
					t.Fatalf("segment %d of %d to %d is %v, %v in a ring of %d", i, c.una, c.nxt, c.at(i).sent, f.delivered, len(c.segments))
				}
			}
		}
	})
}

// Each place in the slab belongs to one packet at a time.
func TestPlacesOfPackets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s slab
		there := map[uint32]int32{}
		var ids []uint32
		for n, step := range rapid.SliceOf(rapid.IntRange(-60, 60)).Draw(t, "sent or arrived") {
			for ; step > 0; step-- {
				id, p := s.take()
				if _, taken := there[id]; taken || id == 0 || p.seq != 0 {
					t.Fatalf("place %d, taken already: %v, holds %+v", id, taken, *p)
				}
				p.seq = int32(n)
				there[id] = p.seq
				ids = append(ids, id)
			}
			for ; step < 0 && len(ids) > 0; step++ {
				k := -step * 7 % len(ids)
				s.put(ids[k])
				delete(there, ids[k])
				ids[k] = ids[len(ids)-1]
				ids = ids[:len(ids)-1]
			}
		}
		for id, seq := range there {
			if s.all[id].seq != seq {
				t.Fatalf("packet %d is %d, want %d", id, s.all[id].seq, seq)
			}
		}
		if s.inUse() != len(there) {
			t.Fatalf("%d packets, want %d", s.inUse(), len(there))
		}
	})
}
