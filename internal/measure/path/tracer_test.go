package path

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func hopAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i), 0, 1}) }

// drawHops draws a path without queues.
func drawHops(t *rapid.T) []simHop {
	hops := make([]simHop, rapid.IntRange(1, 20).Draw(t, "hops"))
	for i := range hops {
		hops[i] = simHop{addr: hopAddr(i), oneWay: time.Duration(rapid.IntRange(0, 20_000).Draw(t, "µs")) * time.Microsecond}
	}
	return hops
}

// On a path without loss every hop is found with its exact round trip time, and
// every hop gets one probe per interval.
func TestTracerExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hops := drawHops(t)
		n := newSimNet(1, hops...)
		tr := n.trace(Config{}, 5*time.Second, 0)
		got := tr.Hops(n.now)
		if len(got) != len(hops) || !tr.Reached() {
			t.Fatalf("%d hops of %d, reached %v", len(got), len(hops), tr.Reached())
		}
		var way time.Duration
		for i, h := range got {
			way += hops[i].oneWay
			if h.TTL != i+1 || h.Addr() != hops[i].addr || h.Destination != (i == len(hops)-1) {
				t.Fatalf("hop %d: %+v", i+1, h)
			}
			if h.Idle.Sent != 5 || h.Idle.Lost != 0 || len(h.Idle.RTTs) != 5 {
				t.Fatalf("hop %d: %+v", i+1, h.Idle)
			}
			for _, d := range h.Idle.RTTs {
				if d != 2*way {
					t.Fatalf("hop %d: %v, want %v", i+1, d, 2*way)
				}
			}
		}
	})
}

// Whatever the network does: every probe is either answered or lost, and no hop
// gets more probes than a Linux router answers.
func TestTracerConserves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hops := drawHops(t)
		for i := range hops {
			hops[i].silent = rapid.Float64Range(0, 1).Draw(t, "silent") > 0.9
			if rapid.Bool().Draw(t, "limited") {
				hops[i].limit = time.Second
			}
		}
		n := newSimNet(rapid.Int64().Draw(t, "seed"), hops...)
		n.loss = rapid.Float64Range(0, 0.5).Draw(t, "loss")
		n.duplicate = rapid.Float64Range(0, 0.5).Draw(t, "duplicate")
		n.noise = rapid.Float64Range(0, 0.5).Draw(t, "noise")
		n.jitter = time.Duration(rapid.IntRange(0, 3000).Draw(t, "jitter ms")) * time.Millisecond
		tr := n.trace(Config{}, 4*time.Second, 6*time.Second)
		for _, h := range tr.Hops(n.now) {
			for _, s := range []Stats{h.Idle, h.Loaded} {
				if s.Sent != s.Lost+len(s.RTTs) || s.Loss() < 0 || s.Loss() > 1 {
					t.Fatalf("hop %d: %d sent, %d lost, %d answered", h.TTL, s.Sent, s.Lost, len(s.RTTs))
				}
			}
			if h.Idle.Sent > 4 || h.Loaded.Sent > 6 {
				t.Fatalf("hop %d: %d and %d sent", h.TTL, h.Idle.Sent, h.Loaded.Sent)
			}
		}
		paced(t, n.sent, time.Second)
	})
}

// paced checks that no TTL is probed more often than once per interval, with
// bursts of at most two. (Linux allows six.)
func paced(t *rapid.T, sent []departed, interval time.Duration) {
	per := map[int][]departed{}
	for _, d := range sent {
		per[d.TTL] = append(per[d.TTL], d)
	}
	for ttl, all := range per {
		for i := 2; i < len(all); i++ {
			if all[i].at.Sub(all[i-2].at) < interval {
				t.Fatalf("TTL %d: probes at %v, %v, %v", ttl, all[i-2].at, all[i-1].at, all[i].at)
			}
		}
	}
}

// Duplicates and foreign ICMP messages change no figure.
func TestTracerIgnoresNoise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hops := drawHops(t)
		quiet := newSimNet(1, slices.Clone(hops)...)
		loud := newSimNet(rapid.Int64().Draw(t, "seed"), slices.Clone(hops)...)
		loud.noise, loud.duplicate = 0.6, 0.6
		a, b := quiet.trace(Config{}, 3*time.Second, 3*time.Second), loud.trace(Config{}, 3*time.Second, 3*time.Second)
		x, y := a.Hops(quiet.now), b.Hops(loud.now)
		if len(x) != len(y) {
			t.Fatalf("%d hops, with noise %d", len(x), len(y))
		}
		for i := range x {
			if !slices.Equal(x[i].Addrs, y[i].Addrs) || !slices.Equal(x[i].Idle.RTTs, y[i].Idle.RTTs) || !slices.Equal(x[i].Loaded.RTTs, y[i].Loaded.RTTs) {
				t.Fatalf("hop %d: %+v, with noise %+v", i+1, x[i], y[i])
			}
		}
		if b.Counts().Duplicates == 0 && len(loud.sent) > 30 {
			t.Error("no duplicate was noticed")
		}
	})
}

// Up to MaxUnknown silent hops in a row are skipped. A silent destination
// counts as not reached, and the path ends with the last hop that answers.
func TestTracerSilent(t *testing.T) {
	hops := make([]simHop, 12)
	for i := range hops {
		hops[i] = simHop{addr: hopAddr(i), oneWay: time.Millisecond, silent: i >= 2 && i < 2+MaxUnknown-1}
	}
	n := newSimNet(1, hops...)
	tr := n.trace(Config{}, 3*time.Second, 0)
	if got := tr.Hops(n.now); !tr.Reached() || len(got) != 12 || got[5].Addr().IsValid() || got[5].Idle.Lost != 3 {
		t.Errorf("%d hops, reached %v", len(got), tr.Reached())
	}
	hops[11].silent = true
	n = newSimNet(1, hops...)
	tr = n.trace(Config{MaxHops: 15}, 3*time.Second, 0)
	if got := tr.Hops(n.now); tr.Reached() || len(got) != 11 {
		t.Errorf("silent destination: %d hops, reached %v", len(got), tr.Reached())
	}
}

// The tracer follows a path that becomes longer or shorter.
func TestTracerFollows(t *testing.T) {
	hops := make([]simHop, 6)
	for i := range hops {
		hops[i] = simHop{addr: hopAddr(i), oneWay: time.Millisecond}
	}
	target := hops[5].addr
	short := append(slices.Clone(hops[:3]), hops[5])
	n := newSimNet(1, short...)
	tr := New(Config{}, n.now)
	tr.Begin(Idle, n.now)
	for _, step := range []struct {
		hops []simHop
		want int
	}{{short, 4}, {hops, 6}, {short, 4}} {
		n.hops = step.hops
		n.drive(tr, 3*time.Second, true)
		if got := tr.Hops(n.now); len(got) != step.want || !tr.Reached() || !slices.Contains(got[step.want-1].Addrs, target) {
			t.Errorf("%d hops, want %d", len(got), step.want)
		}
	}
}

// A refusal ends the path, and the destination counts as not reached.
func TestTracerRefused(t *testing.T) {
	tr := New(Config{}, 0)
	p, _, _ := tr.Poll(0)
	tr.Receive(1000, Reply{Seq: p.Seq, Kind: Refused, From: hopAddr(9), Why: "host unreachable"})
	got := tr.Hops(2000)
	if len(got) != 1 || tr.Reached() || got[0].Refusal != "host unreachable" || got[0].Destination {
		t.Errorf("%+v", got)
	}
}

// An answer after Grace does not count, nor does one to a probe that was never
// sent.
func TestTracerLate(t *testing.T) {
	tr := New(Config{}, 0)
	tr.Begin(Idle, 0)
	p, _, _ := tr.Poll(0)
	tr.Receive(unitInstant(Grace+1), Reply{Seq: p.Seq, Kind: Exceeded, From: hopAddr(0)})
	tr.Receive(5, Reply{Seq: 77, Kind: Exceeded, From: hopAddr(0)})
	tr.Receive(5, Reply{Seq: 60000, Kind: Exceeded, From: hopAddr(0)})
	if c := tr.Counts(); c.TooLate != 1 || c.Foreign != 2 || len(tr.Hops(unitInstant(Grace))) != 0 {
		t.Errorf("%+v", c)
	}
}

// A tracer that was not polled for a long time continues without a burst.
func TestTracerSkips(t *testing.T) {
	tr := New(Config{MaxHops: 3}, 0)
	now := unitInstant(100 * time.Second)
	probes := 0
	for {
		_, due, _ := tr.Poll(now)
		if !due {
			break
		}
		if probes++; probes > 3 {
			t.Fatal("a burst")
		}
	}
}

// Probes without an answer at the end of a trace do not count as lost if the
// answer may still come.
func TestTracerClose(t *testing.T) {
	tr := New(Config{}, 0)
	tr.Begin(Idle, 0)
	first, _, _ := tr.Poll(0)
	tr.Receive(unitInstant(time.Second), Reply{Seq: first.Seq, Kind: Arrived, From: hopAddr(0)})
	for i := range 8 {
		tr.Poll(unitInstant(time.Duration(i+1) * time.Second))
	}
	now := unitInstant(9 * time.Second)
	if tr.Settled(now) {
		t.Error("settled")
	}
	tr.Close(now) // the slowest answer took 1 s, so the four probes of the last 5 s are open
	if s := tr.Hops(now)[0].Idle; s.Sent != 9 || s.Lost != 4 || len(s.RTTs) != 1 || s.Loss() != 0.8 {
		t.Errorf("%+v", s)
	}
}
