package aqm

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/unit"
)

func newCake(t testing.TB, rate unit.Rate, change func(*CakeParams)) *Cake {
	t.Helper()
	p := DefaultCake(rate)
	change(&p)
	q, err := NewCake(p)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// saturate keeps six packets of each flow queued for the given time, and
// returns how many bytes of each were sent.
func saturate(q Queue, flows []Packet, during time.Duration) []unit.Size {
	served := make([]unit.Size, len(flows))
	add := func(now unit.Instant, i int) {
		p := flows[i]
		p.ID = uint64(i)
		q.Enqueue(now, p)
	}
	for i := range flows {
		for range 6 {
			add(0, i)
		}
	}
	for now, ok := q.Next(0); ok && now < unit.Instant(during); now, ok = q.Next(now) {
		dropped := q.Stats().Dropped
		p, got := q.Dequeue(now)
		if got {
			served[p.ID] += p.Size
			add(now, int(p.ID))
		}
		for range q.Stats().Dropped - dropped { // a flow lost a packet: refill them all a little
			add(now, int(now)%len(flows))
		}
	}
	return served
}

// TestCakeHostFairness: one host has one flow and another nine. With isolation
// by flow the nine get 9/10 of the rate; with isolation by source host they get
// half.
func TestCakeHostFairness(t *testing.T) {
	var flows []Packet
	for i := range uint32(10) {
		flows = append(flows, Packet{Flow: 1000 + i*7919, Source: 1 + min(i, 1), Destination: 50 + i, Size: 1514})
	}
	for _, c := range []struct {
		by        Isolation
		low, high float64 // the single flow's part
	}{{IsolateFlows, 0.08, 0.13}, {DualSource, 0.45, 0.55}, {TripleIsolate, 0.45, 0.55}, {DualDest, 0.08, 0.13}, {IsolateSources, 0.45, 0.55}} {
		q := newCake(t, 20*unit.MbitPerSecond, func(p *CakeParams) { p.Isolation, p.Tins = c.by, BestEffort })
		served := saturate(q, flows, 4*time.Second)
		sum := unit.Size(0)
		for _, s := range served {
			sum += s
		}
		if part := float64(served[0]) / float64(sum); part < c.low || part > c.high {
			t.Errorf("isolation %d: the single flow got %.3f, want %.2f to %.2f", c.by, part, c.low, c.high)
		}
	}
}

// TestCakeTinsShare: with load in all tins voice keeps its quarter and bulk its
// sixteenth, and best effort gets the rest.
func TestCakeTinsShare(t *testing.T) {
	q := newCake(t, 16*unit.MbitPerSecond, func(p *CakeParams) { p.Tins = Diffserv4 })
	served := saturate(q, []Packet{
		{Flow: 1, DSCP: 0, Size: 1514}, {Flow: 2, DSCP: 8, Size: 1514},
		{Flow: 3, DSCP: 34, Size: 1514}, {Flow: 4, DSCP: 46, Size: 1514},
	}, 4*time.Second)
	total := float64(16e6 / 8 * 4)
	for tin, want := range []float64{3.0 / 16, 1.0 / 16, 1.0 / 2, 1.0 / 4} {
		if got := float64(served[tin]) / total; got < want-0.03 || got > want+0.03 {
			t.Errorf("tin %d got %.3f of the rate, want about %.3f", tin, got, want)
		}
	}
}

// TestCakeTinTables compares the tins of code points with the kernel's tables.
func TestCakeTinTables(t *testing.T) {
	for tins, want := range map[Tins]string{
		BestEffort: strings.Repeat("0", 64),
		Diffserv3:  "0100200010000000000000000000000000000000000020202000000020000000",
		Diffserv4:  "0100200010000000202020202020202030202020300030303000000030000000",
		Diffserv8:  "2012422212121212524242423232323262323232622262627222222272222222",
		Precedence: "0000000011111111222222223333333344444444555555556666666677777777",
	} {
		got := ""
		for _, tin := range tins.index() {
			got += string('0' + rune(tin))
		}
		if got != want {
			t.Errorf("tins %d:\ngot  %s\nwant %s", tins, got, want)
		}
	}
}

// TestCakeParametersFollowTheRate: target, interval and quantum are the
// kernel's at each rate.
func TestCakeParametersFollowTheRate(t *testing.T) {
	for _, c := range []struct {
		rate             unit.Rate
		quantum          int32
		target, interval time.Duration
	}{
		{100 * unit.MbitPerSecond, 1514, 5 * time.Millisecond, 100 * time.Millisecond},
		{10 * unit.MbitPerSecond, 305, 5 * time.Millisecond, 100 * time.Millisecond},
		{unit.MbitPerSecond, 300, 18168 * time.Microsecond, 113168 * time.Microsecond},
	} {
		q := newCake(t, c.rate, func(p *CakeParams) { p.Tins = BestEffort })
		tin := &q.tins[0]
		near := func(got int64, want time.Duration) bool { return max(got-int64(want), int64(want)-got) < 1000 }
		if tin.quantum != c.quantum || !near(tin.cobalt.target, c.target) || !near(tin.cobalt.interval, c.interval) {
			t.Errorf("%v: quantum %d, target %d, interval %d ns", c.rate, tin.quantum, tin.cobalt.target, tin.cobalt.interval)
		}
	}
}

// TestSetAssociativeHashHardlyCollides: of 100 random flows about 9 share a
// queue in a plain table of 1024. With eight ways almost none do.
func TestSetAssociativeHashHardlyCollides(t *testing.T) {
	q := newCake(t, 0, func(p *CakeParams) { p.Tins, p.Isolation = BestEffort, IsolateFlows })
	key := uint32(12345)
	places := map[uint32]bool{}
	for range 100 {
		key = key*1664525 + 1013904223
		places[key>>7%setPlaces] = true
		q.Enqueue(0, Packet{Flow: key >> 7, Size: 100})
	}
	if q.tins[0].sparse != 100 {
		t.Errorf("%d queues for 100 flows", q.tins[0].sparse)
	}
	if len(places) > 97 {
		t.Errorf("a plain table would not have collided either: %d places", len(places))
	}
}

// TestCakeCountsBulkFlows: however flows come, go and collide, each host's
// count is the number of its bulk flows.
func TestCakeCountsBulkFlows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := DefaultCake(unit.MbitPerSecond)
		p.Memory, p.Tins = 128<<10, BestEffort
		p.Isolation = Isolation(rapid.IntRange(0, 2).Draw(t, "isolation"))
		q, err := NewCake(p)
		if err != nil {
			t.Fatal(err)
		}
		span := rapid.Uint32Range(1, 64).Draw(t, "flows")
		now := unit.Instant(0)
		for range rapid.IntRange(1, 800).Draw(t, "steps") {
			x := rapid.Uint32().Draw(t, "x")
			now += unit.Instant(x % 5_000_000)
			// The keys are of one set only, so that its eight ways overflow.
			flow := x >> 8 % span * setPlaces
			q.Enqueue(now, Packet{Flow: flow, Source: x >> 16 % 40 * setPlaces, Destination: x >> 20 % 3, Size: 700})
			q.Dequeue(now)
			tin := &q.tins[0]
			var counts [2][setPlaces]uint16
			bulk := 0
			for i := range setPlaces {
				if f := &tin.flows[i]; f.set == setBulk {
					bulk++
					counts[0][f.host[0]]++
					counts[1][f.host[1]]++
				}
			}
			for side := range counts {
				if h := &tin.hosts[side]; p.Isolation.counts(side) && h.bulk != counts[side] {
					t.Fatalf("side %d: hosts count %v, have %v", side, h.bulk, counts[side])
				}
			}
			if bulk != tin.bulk {
				t.Fatalf("tin counts %d bulk flows, has %d", tin.bulk, bulk)
			}
		}
	})
}

// TestCakeIngressChargesDrops: with CAKE's ingress mode an unresponsive flood
// takes shaper time even for dropped packets.
func TestCakeIngressChargesDrops(t *testing.T) {
	sent := map[bool]uint64{}
	for _, ingress := range []bool{false, true} {
		q := newCake(t, 10*unit.MbitPerSecond, func(p *CakeParams) { p.Ingress, p.Tins = ingress, BestEffort })
		for i := range 10000 { // 20 Mbit/s for 6 s
			now := unit.Instant(i) * 605_600
			q.Enqueue(now, Packet{Flow: 1, Size: 1514})
			for at, ok := q.Next(now); ok && at <= now; at, ok = q.Next(now) {
				if _, got := q.Dequeue(now); !got {
					break
				}
			}
		}
		sent[ingress] = q.Stats().Sent
	}
	if sent[true]*10 > sent[false]*9 {
		t.Errorf("%d packets sent with ingress, %d without: the drops were not charged", sent[true], sent[false])
	}
}

// TestCobaltAgainstUnresponsiveFlood: with a flood at twice the rate BLUE and
// CoDel together keep the queue short.
func TestCobaltAgainstUnresponsiveFlood(t *testing.T) {
	q := newCake(t, 10*unit.MbitPerSecond, func(p *CakeParams) { p.Tins, p.Isolation, p.Memory = BestEffort, NoIsolation, 512<<10 })
	late, n := 0, 0
	for i := range 30000 { // 18 s
		now := unit.Instant(i) * 605_600
		q.Enqueue(now, Packet{Flow: uint32(i), Size: 1514})
		if at, ok := q.Next(now); ok && at <= now {
			if p, got := q.Dequeue(now); got && i > 20000 {
				n++
				if now-p.Enqueued > 50*ms {
					late++
				}
			}
		}
	}
	if n == 0 || late*4 > n {
		t.Errorf("%d of %d packets waited more than 50 ms after 12 s of flood", late, n)
	}
}

// TestCobaltRoots: the cached roots are exact, and later ones nearly so.
func TestCobaltRoots(t *testing.T) {
	p := newCobaltParams(5e6, 100e6, 0)
	c := cobaltState{}
	for count := uint32(1); count < 2000; count++ {
		c.recount(&p, count)
		want := int64(isqrt(uint64(1e16) / uint64(count)))
		if got := int64(c.after(&p, 0)); max(got-want, want-got) > want/100+2 {
			t.Fatalf("count %d: gap %d ns, want %d", count, got, want)
		}
	}
}
