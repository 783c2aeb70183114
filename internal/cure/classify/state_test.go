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

// An estimate follows a rate within a fifth, whatever the packets.
func TestEstimate(t *testing.T) {
	for _, x := range []struct {
		size uint64
		gap  time.Duration
	}{{1200, 6667 * time.Microsecond}, {200, 20 * time.Millisecond}, {1500, 500 * time.Microsecond}} {
		var e estimate
		now, got := unit.Instant(time.Hour), uint64(0)
		for range 20 * int(time.Second/x.gap) {
			now = now.Add(x.gap)
			got = e.add(x.size, second, Tick(now))
		}
		want := ticks.within(x.size*uint64(time.Second)/uint64(x.gap), second)
		if got < want*4/5 || got > want*6/5 {
			t.Errorf("%d bytes each %v: %d in a window, want %d", x.size, x.gap, got, want)
		}
	}
}

// A time becomes ticks and comes back, and so do rates, within a part in a thousand.
func TestClock(t *testing.T) {
	if got := Until(7, 7+ticks.of(4*time.Second)); got < 4*time.Second || got > 4*time.Second+5*time.Millisecond {
		t.Errorf("four seconds come back as %v", got)
	}
	for _, r := range []unit.Rate{200 * unit.KbitPerSecond, 50 * unit.MbitPerSecond, 10 * unit.GbitPerSecond} {
		for _, got := range []unit.Rate{RateOfWindow(ticks.within(uint64(r/8), window), 9, 9), RateOfSecond(ticks.within(uint64(r/8), second), 9, 9)} {
			if got > r || got < r-r/1000 {
				t.Errorf("%v comes back as %v", r, got)
			}
		}
	}
}

// A hundred thousand flows from invented addresses, whom nobody answers, fill no more than the
// tables have, take nothing from a call, and leave room for one that begins after them.
func TestInventedFlows(t *testing.T) {
	l := Limits{CalmPackets: 160, CalmRate: 200_000, CalmOfHost: 3_750_000, CalmOfUp: 625_000, SmallPacket: 511, Peers: 20, Flows: 1000,
		HeavyBytes: 1 << 30, LongBytes: 1 << 30, HeavyOfHost: 48}
	lanes := []Lane{{Name: string(Voice), Class: Voice, Tin: 8}, {Name: string(Normal), Class: Normal, Tin: 5}}
	c := New(Policy{Up: lanes, Down: lanes, Limits: l}, Setting{Places: PlacesFor(l.Flows), Seed: 7})
	now := unit.Instant(time.Hour)
	talk := func(port uint16) Code {
		p := Packet{Direction: Down, Protocol: UDP, Home: netip.MustParseAddr("10.0.0.2"), Far: netip.MustParseAddr("192.0.2.1"), HomePort: port, FarPort: 5004, Length: 200}
		c.Decide(now, &p)
		p.Direction = Up
		return c.Decide(now, &p).Code
	}
	talk(1)
	for i := range uint32(100_000) {
		now = now.Add(100 * time.Microsecond)
		from := netip.AddrFrom4([4]byte{203, byte(i >> 16), byte(i >> 8), byte(i)})
		c.Decide(now, &Packet{Direction: Down, Protocol: UDP, Home: netip.MustParseAddr("10.0.0.3"), Far: from, HomePort: uint16(i), FarPort: 53 + uint16(i>>8), Length: 100})
		if i%200 == 0 {
			if code := talk(1); code != LightSmall {
				t.Fatalf("after %d invented flows the call has reason %d", i, code)
			}
		}
	}
	taken := 0
	for _, b := range c.sides[1].flows {
		for _, f := range b {
			if f.keep > c.now {
				taken++
			}
		}
	}
	if most := PlacesFor(l.Flows).Flows * WaysOfBucket; taken != most {
		t.Errorf("%d of %d places are taken", taken, most)
	}
	for port := range uint16(10) {
		if talk(100 + port); talk(100+port) != LightSmall {
			t.Errorf("call %d finds no place after them: reason %d", port, talk(100+port))
		}
	}
}
