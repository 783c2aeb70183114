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
			c := &Classifier{n: Constants{Seed: rand.Uint32()}}
			in := map[uint32]int{}
			none := 0
			for i := range 100 {
				b := c.machineHash(machineKey{home: x.of(byte(i))}) & uint32(places.Machines-1)
				if in[b]++; in[b] > WaysOfBucket {
					none++
				}
			}
			if none > 2 {
				t.Errorf("seed %#x, %s: %d of 100 machines have no place", c.n.Seed, x.what, none)
			}
		}
	}
}

// The limit of acknowledgements passes them as evenly as its rate, although a tick is
// ten times as long; in ticks they would come in lumps of ten.
func TestEvenLimitMakesNoLumps(t *testing.T) {
	rate := moments.bucket(1000, time.Second, 20)
	now := unit.Instant(time.Hour)
	b := rate.full(Moment(now))
	for !b.exceeds(&rate, Moment(now)) { // the burst
	}
	for ms := range 100 {
		passed := 0
		for range 10 {
			now = now.Add(time.Millisecond / 10)
			if !b.exceeds(&rate, Moment(now)) {
				passed++
			}
		}
		if passed > 2 {
			t.Fatalf("%d pass in millisecond %d; want at most 2", passed, ms)
		}
	}
}

// An estimate follows a rate within a fifth, whatever the packets and the kernel's ticks.
func TestEstimate(t *testing.T) {
	for _, hz := range []Ticks{100, 250, 300, 1000} {
		for _, x := range []struct {
			size uint64
			gap  time.Duration
		}{{1200, 6667 * time.Microsecond}, {200, 20 * time.Millisecond}, {1500, 500 * time.Microsecond}} {
			var e estimate
			shift, now, got := hz.window()+2, unit.Instant(time.Hour), uint64(0)
			for range 20 * int(time.Second/x.gap) {
				now = now.Add(x.gap)
				got = e.add(x.size, shift, hz.now(now))
			}
			want := hz.within(x.size*uint64(time.Second)/uint64(x.gap), shift)
			if got < want*4/5 || got > want*6/5 {
				t.Errorf("%d ticks a second, %d bytes each %v: %d in a window, want %d", hz, x.size, x.gap, got, want)
			}
		}
	}
}
