package classify

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"unbloat/unit"
)

// The machines of a home, whose addresses differ in few bits, each find a place: a
// bucket has four, and the hash must not put a network into one of them.
func TestMachinesOfOneNetworkFindPlaces(t *testing.T) {
	places := PlacesFor(8192)
	for _, x := range []struct {
		what string
		of   func(i byte) netip.Addr
	}{
		{"192.168.1.0/24", func(i byte) netip.Addr { return netip.AddrFrom4([4]byte{192, 168, 1, i}) }},
		{"10.0.0.0/8, one in each /24", func(i byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, i, 7}) }},
		{"a /64", func(i byte) netip.Addr { return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: i}) }},
		{"one of each /64 of a /56", func(i byte) netip.Addr { return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 7: i, 15: 7}) }},
	} {
		for range 50 {
			o := NewOwn(&Table{}, 100, places, rand.Uint32())
			in := map[uint32]int{}
			none := 0
			for i := range 100 {
				b := o.machineHash(Key{Home: x.of(byte(i))}) & uint32(places.Machines-1)
				if in[b]++; in[b] > WaysOfBucket {
					none++
				}
			}
			if none > 2 {
				t.Errorf("seed %#x, %s: %d of 100 machines have no place", o.Seed, x.what, none)
			}
		}
	}
}

// What a limit that is Even lets pass comes as evenly as its rate, although a tick is
// ten times as long; in ticks it would come in lumps of ten.
func TestEvenLimitMakesNoLumps(t *testing.T) {
	slow := &Limit{Rate: Rate{N: 1000, Per: time.Second, Burst: 20}, Even: true}
	o := NewOwn(&Table{Limits: []*Limit{slow}}, 100, Places{Flows: 1, Machines: 1, Ports: 1}, 0)
	now := unit.Instant(time.Hour)
	for o.Exceeds(now, slow) { // the burst
	}
	for ms := range 100 {
		passed := 0
		for range 10 {
			now = now.Add(time.Millisecond / 10)
			if o.Exceeds(now, slow) {
				passed++
			}
		}
		if passed > 2 {
			t.Fatalf("%d pass in millisecond %d; want at most 2", passed, ms)
		}
	}
}
