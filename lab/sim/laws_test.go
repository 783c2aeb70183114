package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/lab/aqm"
	"unbloat/unit"
)

// transcript runs a busy home for a while and returns everything observable.
func transcript(t testing.TB, seed uint64) string {
	n := line(t, 20e6, 3e6, 25*time.Millisecond, 300e3, 100e3, seed)
	n.wires[Up][0].Jitter, n.wires[Down][0].Loss = time.Millisecond, 0.001
	shapeBoth(t, n, 18e6, 2.8e6)
	var conns []*Conn
	for i, cc := range Controls() {
		for d := range 2 {
			conns = append(conns, addConn(t, n, ConnParams{
				Direction: Direction(d), Control: cc, ECN: i == 0, ExtraRTT: time.Duration(i) * 10 * time.Millisecond,
			}))
		}
	}
	s := probes(t, n)
	n.RunUntil(10e9)
	out := fmt.Sprintln(n.events, n.packets.inUse(), n.Bottleneck(Up), n.Bottleneck(Down))
	for _, c := range conns {
		_, _, bins := c.Goodput()
		out += fmt.Sprintln(c.Stats(), c.cwnd, bins)
	}
	all := s.Sent()
	return out + fmt.Sprint(all)
}

func TestSameSeedSameBytes(t *testing.T) {
	first := transcript(t, 7)
	if transcript(t, 7) != first {
		t.Error("the same seed gave another transcript")
	}
	if transcript(t, 8) == first {
		t.Error("another seed gave the same transcript")
	}
}

// Always: everything offered to a link was sent, dropped or is queued; a link
// never exceeds its rate; no segment arrives that was not sent; and when
// everybody has stopped, nothing stays on the way.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := func(name string) unit.Rate { return unit.Rate(rapid.Int64Range(200e3, 50e6).Draw(t, name)) }
		b := func(d Direction) Bottleneck {
			return Bottleneck{
				Rate: rate(d.String()), Buffer: unit.Size(rapid.Int64Range(3000, 500e3).Draw(t, "buffer")),
				Burst:   rapid.SampledFrom([]unit.Size{0, 1600, 5000}).Draw(t, "burst"),
				Framing: aqm.Framing{Overhead: unit.Size(rapid.IntRange(0, 40).Draw(t, "overhead"))},
			}
		}
		w := Wire{
			Delay:  time.Duration(rapid.IntRange(0, 100).Draw(t, "delay")) * time.Millisecond,
			Jitter: time.Duration(rapid.IntRange(0, 5).Draw(t, "jitter")) * time.Millisecond,
			Loss:   float64(rapid.IntRange(0, 50).Draw(t, "loss")) / 1000,
		}
		up, down := b(Up), b(Down)
		n, err := New(Params{Up: up, Down: down, UpWire: w, DownWire: w, Random: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))})
		if err != nil {
			t.Fatal(err)
		}
		stop := unit.Instant(3e9)
		var conns []*Conn
		for i := range rapid.IntRange(0, 6).Draw(t, "connections") {
			c, err := n.AddConn(ConnParams{
				Direction: Direction(i % 2), Control: rapid.SampledFrom(Controls()).Draw(t, "control"), Stop: stop,
				ECN: rapid.Bool().Draw(t, "ecn"), Segments: rapid.IntRange(0, 300).Draw(t, "segments"),
			})
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, c)
		}
		s, err := n.AddStream(StreamParams{Direction: Up, Interval: 7 * time.Millisecond, Frame: 200, Echo: true, Stop: stop})
		if err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "shaped") {
			shapeBothRapid(t, n, down.Rate.Scale(0.9), up.Rate.Scale(0.9))
		}
		for at := unit.Instant(0); at <= stop; at += 100e6 {
			n.RunUntil(at)
			for d, x := range []Bottleneck{up, down} {
				k := n.Bottleneck(Direction(d))
				if k.Offered != k.Sent+k.Dropped+uint64(k.Packets) {
					t.Fatalf("%s at %v: %+v does not add up", Direction(d), at, k)
				}
				if most := x.Rate.Bytes(time.Duration(at)) + max(x.Burst, 1514); k.SentBytes > most {
					t.Fatalf("%s at %v: %d bytes sent, %d possible", Direction(d), at, k.SentBytes, most)
				}
				if k.Backlog > x.Buffer && k.Packets > 1 {
					t.Fatalf("%s at %v: %d bytes wait, %d fit", Direction(d), at, k.Backlog, x.Buffer)
				}
			}
			for _, c := range conns {
				k := c.Stats()
				if f := c.inFlight(); f < 0 || k.Delivered > k.Sent-k.Retransmits || c.lost < c.toResend || c.sacked < 0 {
					t.Fatalf("at %v: in flight %d, lost %d, to resend %d, sacked %d, %+v", at, f, c.lost, c.toResend, c.sacked, k)
				}
				arrived := unit.Size(c.binBytes)
				for _, b := range c.bins {
					arrived += unit.Size(b)
				}
				if known := c.Acked() + c.Sacked(); known > arrived {
					t.Fatalf("at %v: the sender knows of %d bytes that arrived, and %d did", at, known, arrived)
				}
			}
		}
		checkEmpty(t, n, s, stop)
	})
}

// checkEmpty runs a network in which everybody has stopped until it is empty.
func checkEmpty(t *rapid.T, n *Network, s *Stream, stop unit.Instant) {
	n.RunUntil(stop + 60e9)
	if k := n.packets.inUse(); k != 0 {
		t.Fatalf("%d packets are left on their way", k)
	}
	all := s.Sent()
	for i, d := range all {
		if d.Fate == UnderWay || d.Fate == Arrived || d.Fate == Answered && (d.Turn < d.Sent || d.Back < d.Turn) {
			t.Fatalf("datagram %d: %+v", i, d)
		}
	}
}

// shapeBothRapid is shapeBoth for rapid tests.
func shapeBothRapid(t *rapid.T, n *Network, down, up unit.Rate) {
	for d, rate := range []unit.Rate{up, down} {
		err := n.Shape(Direction(d), Shaping{Queue: func(drop aqm.DropFunc) (aqm.Queue, error) {
			p := aqm.DefaultCake(rate)
			p.Drop = drop
			return aqm.NewCake(p)
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Timers fire in the order of their times, and those of the same time in the
// order in which they were set, even if some are set while others fire.
func TestTimersAreOrdered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h timers
		var want []timer // the pending timers, in order
		set, now := uint64(0), unit.Instant(0)
		span := rapid.SampledFrom([]int64{20, 5e6, 3e8, 1e10}).Draw(t, "span")
		take := func() {
			if at := h.next(); at != want[0].at {
				t.Fatalf("the next timer is due at %d, want %d", at, want[0].at)
			}
			if got := h.pop(); got != want[0] {
				t.Fatalf("timer %+v, want %+v", got, want[0])
			}
			now, want = want[0].at, want[1:]
		}
		for _, after := range rapid.SliceOf(rapid.Int64Range(-span/2, span)).Draw(t, "after") {
			if after >= 0 {
				set++
				e := timer{now + unit.Instant(after), set, 7, taskTick}
				h.push(e.at, e.owner, e.task)
				want = append(want, e) // the newest: after all others of the same time
				slices.SortStableFunc(want, func(a, b timer) int { return cmp.Compare(a.at, b.at) })
			} else if len(want) > 0 {
				take()
			}
		}
		for len(want) > 0 {
			take()
		}
		if h.next() != never {
			t.Fatal("a timer that was never set")
		}
	})
}

// Steady traffic allocates no memory.
func TestNothingAllocatesOnceGrown(t *testing.T) {
	n := line(t, 50e6, 50e6, 20*time.Millisecond, 250e3, 250e3, 1)
	shapeBoth(t, n, 45e6, 45e6)
	addConn(t, n, ConnParams{Direction: Up, Bin: time.Hour})
	addConn(t, n, ConnParams{Direction: Down, Bin: time.Hour})
	n.RunUntil(20e9)
	at := n.Now()
	if a := testing.AllocsPerRun(20, func() { at += 100e6; n.RunUntil(at) }); a > 1 {
		t.Errorf("%.1f allocations in 100 ms of traffic", a)
	}
}
