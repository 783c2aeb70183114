package classify_test

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"unbloat/internal/classify"
	"unbloat/unit"
)

// aPolicy has both directions, and limits with round numbers.
func aPolicy() classify.Policy {
	var lanes []classify.Lane
	for i, c := range classify.AllClasses() {
		lanes = append(lanes, classify.Lane{Name: string(c), Class: c, Tin: []uint8{8, 6, 5, 1}[i]})
	}
	lanes = append(lanes, classify.Lane{Name: classify.AcksLane, Class: classify.Interactive, Tin: 7})
	return classify.Policy{Up: lanes, Down: lanes, Limits: classify.Limits{
		CalmPackets: 100, CalmRate: 800 * unit.KbitPerSecond, CalmOfHost: 8 * unit.MbitPerSecond, CalmOfUp: 8 * unit.MbitPerSecond,
		SmallPacket: 511, FirstBytes: 10_000, FirstUp: 10_000, HeavyBytes: 100_000, LongBytes: 1_000_000,
		HeavyOfHost: 4, Peers: 4, Names: 10, Acks: 1000, Flows: 64,
	}}
}

// Rates are metered as nftables does: a bucket of packets holds its burst, one
// of bytes holds its burst and a second's bytes. A packet is over the rate if
// it is not within it.
func TestMeters(t *testing.T) {
	table := classify.Build(aPolicy())
	set := table.Sets[0]
	for _, x := range []struct {
		rate  classify.Rate
		bytes unit.Size
		fits  int // packets that pass at once
		more  int // packets that pass after a second without traffic
	}{
		{classify.Rate{N: 10, Per: time.Second, Burst: 5}, 100, 5, 5},
		{classify.Rate{N: 60, Per: time.Minute, Burst: 5}, 100, 5, 1},
		{classify.Rate{N: 1000, Per: time.Second, Bytes: true, Burst: 500}, 100, 15, 10},
	} {
		m := classify.NewMemory(table, 0)
		over := classify.NewMemory(table, 0)
		count := func(now unit.Instant) (n int) {
			for range 100 {
				is := m.Meter(now, set, classify.Key{}, []classify.Rate{x.rate}, x.bytes)
				inverse := x.rate
				inverse.Over = true
				if is == over.Meter(now, set, classify.Key{}, []classify.Rate{inverse}, x.bytes) {
					t.Fatalf("%+v: within and over at once", x.rate)
				}
				if is {
					n++
				}
			}
			return n
		}
		if got := count(0); got != x.fits {
			t.Errorf("%+v: %d packets fit at once, not %d", x.rate, got, x.fits)
		}
		if got := count(unit.Instant(time.Second)); got != x.more {
			t.Errorf("%+v: %d packets fit a second later, not %d", x.rate, got, x.more)
		}
	}
}

// Memory is bounded: a full set accepts no new entry until one has expired, and
// keeps the entries that it has.
func TestMemoryIsBounded(t *testing.T) {
	table := classify.Build(aPolicy())
	set, m := table.Sets[0], classify.NewMemory(table, 0)
	key := func(i int) classify.Key { return classify.Key{HomePort: uint16(i)} }
	for i := range 2 * set.Size {
		if ok := m.Remember(0, set, key(i), true); ok != (i < set.Size) {
			t.Fatalf("newcomer %d of %d: %v", i, set.Size, ok)
		}
	}
	before, after := unit.Instant(set.Timeout-1), unit.Instant(set.Timeout)
	if !m.Holds(before, set, key(0)) || m.Holds(after, set, key(0)) {
		t.Errorf("a key is forgotten, but not after %v", set.Timeout)
	}
	if !m.Remember(unit.Instant(set.Timeout+set.GC), set, key(set.Size), true) {
		t.Error("what has expired still takes room")
	}
}

// Whether the rules look at every packet or only at one of many: a call stays
// voice as long as it is calm, and loses that class within a second after it
// stops being calm.
func TestLooksFindTheSame(t *testing.T) {
	for _, every := range []bool{true, false} {
		policy := aPolicy()
		policy.EveryPacket = every
		table := classify.Build(policy)
		m, c, now := classify.NewMemory(table, 0), &classify.Connection{}, unit.Instant(0)
		send := func(d classify.Direction, gap time.Duration) classify.Class {
			now = now.Add(gap)
			p := classify.Packet{Direction: d, Protocol: classify.UDP, Home: netip.MustParseAddr("10.0.0.2"), Far: netip.MustParseAddr("192.0.2.1"), HomePort: 5004, FarPort: 5004, Length: 200}
			if c.ReplyPacket = d == classify.Down; c.ReplyPacket {
				c.Replied, c.Answered = c.Replied+1, true
			} else {
				c.Sent++
			}
			c.Bytes += p.Length
			return table.Decide(now, &p, c, m).Lane.Class
		}
		if got := send(classify.Up, 0); got != classify.Normal {
			t.Errorf("every packet metered: %v: unanswered it is %s", every, got)
		}
		send(classify.Down, 0)
		for i := range 2000 {
			if got := send(classify.Up, 20*time.Millisecond); got != classify.Voice {
				t.Fatalf("every packet metered: %v: packet %d is %s", every, i, got)
			}
		}
		for i := 0; send(classify.Up, time.Millisecond) == classify.Voice; i++ {
			if i > 1000 {
				t.Fatalf("every packet metered: %v: a flood is voice", every)
			}
		}
	}
}

// Every packet of a direction with classes has a class, whatever it is and
// whatever the sets contain. A table for one direction gives no class in the
// other.
func TestEveryPacketHasAClass(t *testing.T) {
	const seed = 7
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, seed))
	for range 50 {
		policy := aPolicy()
		policy.EveryPacket, policy.DownByMark = rng.IntN(2) == 0, rng.IntN(2) == 0
		policy.Limits.SmallPacket = unit.Size(64 + rng.IntN(1437))
		policy.Limits.Acks = rng.IntN(2) * 20
		if rng.IntN(3) == 0 {
			policy.Down = nil
		}
		table := classify.Build(policy)
		m := classify.NewMemory(table, 0)
		for i := range 2000 {
			p := classify.Packet{Direction: []classify.Direction{classify.Up, classify.Down}[rng.IntN(2)], Protocol: []uint8{classify.TCP, classify.UDP, classify.ICMP, classify.ESP, classify.SCTP}[rng.IntN(5)],
				Home: netip.AddrFrom4([4]byte{10, 0, 0, byte(rng.IntN(5))}), Far: netip.AddrFrom4([4]byte{192, 0, 2, byte(rng.IntN(100))}),
				HomePort: uint16(rng.IntN(3)), FarPort: uint16(rng.IntN(60)), Length: unit.Size(28 + rng.IntN(1473)), Flags: uint8(rng.IntN(64)), Second: rng.Uint32()}
			c := classify.Connection{Sent: uint64(rng.IntN(100)), Replied: uint64(rng.IntN(100)), Bytes: unit.Size(rng.IntN(2_000_000)), Answered: rng.IntN(2) == 0, Mark: uint32(rng.IntN(16)) << 28}
			d := table.Explain(unit.Instant(i)*unit.Instant(time.Millisecond), &p, &c, m)
			if known := p.Direction == classify.Up || policy.Down != nil; known != (d.Lane != nil || d.Drop) {
				t.Fatalf("%+v: %+v", p, d)
			}
			if d.Drop && (p.Protocol != classify.TCP || p.Direction != classify.Up || p.Length >= classify.AckBelow) {
				t.Fatalf("%+v of %+v is left out", p, c)
			}
		}
	}
}

// Every chain is called by another, or is an entry point.
func TestNoChainIsIdle(t *testing.T) {
	for _, policy := range []classify.Policy{aPolicy(), func() classify.Policy { p := aPolicy(); p.EveryPacket, p.DownByMark = true, true; return p }()} {
		to := map[string]bool{"up_class": true, "down_class": true}
		table := classify.Build(policy)
		for _, c := range table.Chains {
			for _, s := range c.Steps {
				to[s.To] = true
			}
		}
		for _, c := range table.Chains {
			if !to[c.Name] {
				t.Errorf("nothing leads to %s", c.Name)
			}
		}
	}
}

// Every reason has a name, for whoever reads it as JSON.
func TestCodeNames(t *testing.T) {
	seen := map[string]bool{}
	for c := classify.ByRule; c <= classify.Unprotected; c++ {
		if n := c.Name(); n == "" || seen[n] {
			t.Errorf("reason %d has the name %q, which is empty or of another", c, n)
		}
		seen[c.Name()] = true
	}
}
