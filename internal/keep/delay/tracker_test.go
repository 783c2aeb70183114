package delay

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/unit"
)

const ms = time.Millisecond

// A wire is a line between a connection's two ends, seen at the WAN's interface:
// events in the order of time.
type wire struct {
	t       *rapid.T
	now     unit.Instant
	queue   []event
	tracker *Tracker
	found   []found
	trigger triggers // of the segment that comes in next
}

// triggers is what the test knows of a segment that comes in and the tracker does
// not: when the segment left that caused it, and how long the peer waited.
type triggers struct {
	left   unit.Instant
	waited time.Duration
	known  bool
}

type found struct {
	Sample
	truth triggers
}

type event struct {
	at unit.Instant
	do func()
}

func (w *wire) after(d time.Duration, do func()) {
	e := event{w.now.Add(d), do}
	i := len(w.queue)
	for i > 0 && w.queue[i-1].at > e.at {
		i--
	}
	w.queue = append(w.queue, event{})
	copy(w.queue[i+1:], w.queue[i:])
	w.queue[i] = e
}

func (w *wire) run(end unit.Instant) {
	for len(w.queue) > 0 && w.queue[0].at <= end {
		e := w.queue[0]
		w.queue = w.queue[1:]
		w.now = e.at
		e.do()
	}
}

func (w *wire) see(out bool, s Segment) {
	b := packet(&s)
	p, ok := parseIP(b)
	if !ok || p != s {
		w.t.Fatalf("%+v is read as %+v", s, p)
	}
	w.tracker.Observe(w.now, out, &p)
	w.tracker.Collect(w.now, func(s Sample) { w.found = append(w.found, found{s, w.trigger}) })
}

func home() netip.Addr { return netip.MustParseAddr("198.51.100.7") }
func peer() netip.Addr { return netip.MustParseAddr("203.0.113.9") }

// upload sends segments that may be lost and sent again, to a receiver that
// acknowledges as RFC 5681 and RFC 7323 say: every second segment, or 40 ms later,
// and at once what is out of order.
func upload(w *wire, segments int, loss float64, random *rand.Rand, apart, up, down time.Duration) {
	const size, clock = 1000, 1000
	seq0, ts0 := random.Uint32(), random.Uint32()
	stamp := func() uint32 { return ts0 + uint32(w.now/unit.Instant(time.Second/clock)) }
	type arrived struct {
		seq, tsval uint32
		left       unit.Instant
	}
	var (
		got      = map[uint32]bool{}
		next     = seq0
		recent   = ts0
		unacked  int
		lastAck  = seq0
		timer    int
		oldest   uint32 // the stamp of the first segment not acknowledged
		arriveAt unit.Instant
	)
	ack := func(left unit.Instant, waited time.Duration) {
		unacked, lastAck = 0, next
		timer++
		s := Segment{Src: peer(), Dst: home(), SrcPort: 443, DstPort: 5555, Ack: next, Flags: FlagAck, HasStamp: true, TSval: 1, TSecr: oldest}
		w.after(down, func() {
			w.trigger = triggers{left, waited, true}
			w.see(false, s)
		})
	}
	receive := func(a arrived) {
		if int32(a.tsval-recent) >= 0 && int32(a.seq-lastAck) <= 0 {
			recent = a.tsval
		}
		if unacked == 0 {
			oldest = recent
		}
		if got[a.seq] || a.seq != next {
			got[a.seq] = true
			oldest = recent
			ack(a.left, 0)
			return
		}
		got[a.seq] = true
		hole := got[next+size]
		for got[next] {
			next += size
		}
		if unacked++; unacked == 2 || hole {
			ack(a.left, 0)
			return
		}
		timer++
		mine := timer
		w.after(40*ms, func() {
			if mine == timer {
				ack(a.left, 40*ms)
			}
		})
	}
	var send func(seq uint32)
	send = func(seq uint32) {
		s := Segment{Src: home(), Dst: peer(), SrcPort: 5555, DstPort: 443, Seq: seq, Length: size, Flags: FlagAck, HasStamp: true, TSval: stamp()}
		w.see(true, s)
		a := arrived{seq, s.TSval, w.now}
		if random.Float64() < loss {
			w.after(up+down+200*ms, func() {
				if int32(seq-next) >= 0 && !got[seq] {
					send(seq)
				}
			})
			return
		}
		at := max(w.now.Add(up), arriveAt) // in order
		arriveAt = at
		w.after(at.Sub(w.now), func() { receive(a) })
	}
	for i := range segments {
		w.after(time.Duration(i)*apart, func() { send(seq0 + uint32(i)*size) })
	}
}

// Law: of an upload, with losses, segments sent again, delayed acknowledgements,
// and numbers and stamps that wrap, each sample is the time since the segment left
// that caused the acknowledgement; or, where one is missing, of the one before it.
func TestUploadLaw(t *testing.T) {
	total := 0
	rapid.Check(t, func(t *rapid.T) {
		w := &wire{t: t, now: unit.Instant(time.Hour), tracker: NewTracker(TrackerConfig{})}
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		apart := time.Duration(rapid.IntRange(100, 20000).Draw(t, "apart")) * time.Microsecond
		up := time.Duration(rapid.IntRange(1, 500).Draw(t, "up")) * ms
		down := time.Duration(rapid.IntRange(1, 50).Draw(t, "down")) * ms
		loss := rapid.SampledFrom([]float64{0, 0, 0.01, 0.1}).Draw(t, "loss")
		upload(w, 400, loss, random, apart, up, down)
		w.run(w.now.Add(time.Minute))
		for _, f := range w.found {
			truth := f.At.Sub(f.truth.left)
			// Where a segment is lost, the one before it waits for the next, or for the timer.
			lost := loss > 0 && f.RTT > truth && f.RTT <= truth+40*ms || loss > 0 && f.truth.waited > 0
			if f.RTT != truth-f.truth.waited && !lost {
				t.Fatalf("a sample of %v; the segment left %v before, and its acknowledgement waited %v", f.RTT, truth, f.truth.waited)
			}
			if f.Way != Up || f.Source != netip.MustParseAddr("203.0.113.0") || f.Kind != Passive {
				t.Fatalf("%+v", f.Sample)
			}
		}
		if loss == 0 && 400*apart > max(10*(up+down), 400*ms) && len(w.found) < 10 {
			t.Fatalf("only %d samples of 400 segments", len(w.found))
		}
		total += len(w.found)
	})
	t.Logf("%d samples", total)
}

// Law: of a download, a sample is longer than the way there and back by what the
// server waited, and this is at most a quarter, or 10 ms.
func TestDownloadLaw(t *testing.T) {
	total := 0
	rapid.Check(t, func(t *rapid.T) {
		w := &wire{t: t, now: unit.Instant(time.Hour), tracker: NewTracker(TrackerConfig{})}
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 2))
		apart := time.Duration(rapid.IntRange(100, 10000).Draw(t, "apart")) * time.Microsecond
		up := time.Duration(rapid.IntRange(1, 50).Draw(t, "up")) * ms
		down := time.Duration(rapid.IntRange(1, 800).Draw(t, "down")) * ms
		pauses := rapid.Bool().Draw(t, "pauses") // the server has nothing to send for a while
		ts0 := random.Uint32()
		const size = 1000
		type echo struct {
			tsval   uint32
			left    unit.Instant
			arrived unit.Instant
		}
		var newest echo // at the server
		known := map[uint32]triggers{}
		seq, unacked := uint32(0), 0
		acknowledge := func() {
			s := Segment{Src: home(), Dst: peer(), SrcPort: 5555, DstPort: 443, Ack: seq, Flags: FlagAck, HasStamp: true, TSval: ts0 + uint32(w.now/unit.Instant(ms))}
			w.see(true, s)
			e := echo{s.TSval, w.now, 0}
			w.after(up, func() {
				if e.arrived = w.now; e.tsval != newest.tsval {
					newest = e
				}
			})
		}
		acknowledge()
		at := up
		for range 500 {
			if at += apart; pauses && random.IntN(20) == 0 {
				at += time.Duration(random.IntN(2000)) * ms
			}
			w.after(at, func() {
				s := Segment{Src: peer(), Dst: home(), SrcPort: 443, DstPort: 5555, Seq: seq, Length: size, Flags: FlagAck, HasStamp: true, TSval: 1, TSecr: newest.tsval}
				truth, seen := known[s.TSecr]
				if !seen {
					truth = triggers{newest.left, w.now.Sub(newest.arrived), true}
					known[s.TSecr] = truth
				}
				w.after(down, func() {
					seq += size
					w.trigger = truth
					w.see(false, s)
					if unacked++; unacked%2 == 0 {
						acknowledge()
					}
				})
			})
		}
		w.run(w.now.Add(time.Hour))
		for _, f := range w.found {
			if want := up + down + f.truth.waited; f.RTT != want || f.truth.waited > max(10*ms, f.RTT/4) || f.Way != Down {
				t.Fatalf("a sample of %v; the way is %v, the server waited %v", f.RTT, up+down, f.truth.waited)
			}
		}
		if !pauses && 500*apart > max(10*(up+down), 400*ms) && len(w.found) < 10 {
			t.Fatalf("only %d samples of 500 segments", len(w.found))
		}
		total += len(w.found)
	})
	t.Logf("%d samples", total)
}

// The opening of a connection gives a round trip, whoever opens it; a reset ends
// the connection, and its ports can be used again.
func TestHandshakes(t *testing.T) {
	tr := NewTracker(TrackerConfig{})
	at := func(d time.Duration) unit.Instant { return unit.Instant(time.Hour + d) }
	var got []Sample
	see := func(d time.Duration, out bool, s Segment) {
		s.HasStamp = s.Flags&FlagRst == 0
		s.Src, s.Dst, s.SrcPort, s.DstPort = home(), peer(), 1000, 443
		if !out {
			s.Src, s.Dst, s.SrcPort, s.DstPort = s.Dst, s.Src, s.DstPort, s.SrcPort
		}
		tr.Observe(at(d), out, &s)
		tr.Collect(at(d), func(s Sample) { got = append(got, s) })
	}
	see(0, true, Segment{Seq: 100, Flags: FlagSyn, TSval: 7})
	see(25*ms, false, Segment{Seq: 900, Ack: 101, Flags: FlagSyn | FlagAck, TSval: 70, TSecr: 7})
	if len(got) != 1 || got[0].RTT != 25*ms || got[0].Way != NoWay {
		t.Fatalf("a SYN: %+v", got)
	}
	see(30*ms, true, Segment{Seq: 101, Ack: 901, Length: 10, Flags: FlagAck, TSval: 8})
	see(31*ms, false, Segment{Flags: FlagRst})
	see(60*ms, false, Segment{Seq: 901, Ack: 111, Flags: FlagAck, TSval: 70, TSecr: 8})
	if len(got) != 1 {
		t.Fatalf("after a reset: %+v", got[1:])
	}
	// A SYN that is sent again: only the answer to the second counts.
	see(100*ms, true, Segment{Seq: 500, Flags: FlagSyn, TSval: 20})
	see(1100*ms, true, Segment{Seq: 500, Flags: FlagSyn, TSval: 1020})
	see(1120*ms, false, Segment{Seq: 900, Ack: 501, Flags: FlagSyn | FlagAck, TSval: 70, TSecr: 1020})
	// A connection from outside.
	see(2000*ms, true, Segment{Seq: 300, Ack: 44, Flags: FlagSyn | FlagAck, TSval: 2000, TSecr: 1})
	see(2033*ms, false, Segment{Seq: 44, Ack: 301, Flags: FlagAck, TSval: 2, TSecr: 2000})
	if len(got) != 3 || got[1].RTT != 20*ms || got[2].RTT != 33*ms {
		t.Fatalf("%+v", got)
	}
}

// However many connections there are, the memory stays what it is, and those that
// go on are found again.
func TestTrackerIsBounded(t *testing.T) {
	tr := NewTracker(TrackerConfig{Flows: 64, Networks: 4})
	random := rand.New(rand.NewPCG(1, 3))
	now := unit.Instant(time.Hour)
	allocated := testing.AllocsPerRun(20000, func() {
		now = now.Add(time.Duration(random.IntN(1000)) * time.Microsecond)
		far := netip.AddrFrom4([4]byte{203, byte(random.IntN(200)), byte(random.IntN(200)), 1})
		s := Segment{Src: home(), Dst: far, SrcPort: uint16(random.IntN(60000)), DstPort: 443, Seq: 1, Flags: FlagSyn, HasStamp: true, TSval: 5}
		tr.Observe(now, true, &s)
		s = Segment{Src: far, Dst: home(), SrcPort: 443, DstPort: s.SrcPort, Ack: 2, Flags: FlagSyn | FlagAck, HasStamp: true, TSecr: 5}
		tr.Observe(now.Add(ms), false, &s)
	})
	n := 0
	tr.Collect(now, func(Sample) { n++ })
	st := tr.Stats()
	if allocated != 0 || n == 0 || n > 4 || st.Evicted == 0 || st.Matched < 20000 {
		t.Errorf("%v allocations, %d samples, %+v", allocated, n, st)
	}
}

// On a fast line the gate lets a bounded share pass, and pairs stay whole.
func TestGate(t *testing.T) {
	var g Gate
	passes := func(v uint32) bool { return v&g.Mask() == 0 }
	share := func() float64 {
		n := 0
		for v := range uint32(1 << 12) {
			if passes(v) {
				n++
			}
		}
		return float64(n) / (1 << 12)
	}
	for _, rate := range []float64{50, 900, 5000, 80000, 5e6, 80000, 3000, 50} {
		for range 20 {
			g.Adjust(rate * share())
		}
		if got := rate * share(); got > gateMost && g.bits < gateBits || got < gateLeast && g.bits > 0 {
			t.Errorf("%v segments a second: %v pass", rate, got)
		}
		if g.bits > 0 && (!passes(0) || !passes(1) || passes(2)) {
			t.Errorf("mask %x", g.Mask())
		}
	}
	if g.Mask() != 0 || g.Period() != 0 {
		t.Errorf("shut on a slow line: %x", g.Mask())
	}
}

func BenchmarkTracker(b *testing.B) {
	for _, flows := range []int{1, 200} {
		b.Run(fmt.Sprintf("%d_flows", flows), func(b *testing.B) {
			tr := NewTracker(TrackerConfig{})
			var out, in [][]byte
			for i := range flows {
				s := Segment{Src: home(), Dst: peer(), SrcPort: uint16(2000 + i), DstPort: 443, Seq: 1, Length: 1448, Flags: FlagAck, HasStamp: true}
				out = append(out, packet(&s))
				s.Src, s.Dst, s.SrcPort, s.DstPort, s.Length = s.Dst, s.Src, s.DstPort, s.SrcPort, 0
				in = append(in, packet(&s))
			}
			now := unit.Instant(time.Hour)
			b.ReportAllocs()
			n := uint32(0)
			for b.Loop() { // a segment out and, every second time, an acknowledgement in
				k := int(n) % flows
				n++
				now = now.Add(100 * time.Microsecond)
				s, _ := ParsePacket(TypeIPv4, out[k])
				s.Seq, s.TSval = n*1448, n/10
				tr.Observe(now, true, &s)
				if n%2 == 0 {
					a, _ := ParsePacket(TypeIPv4, in[k])
					a.Ack, a.TSecr = n*1448+1448, n/10
					tr.Observe(now, false, &a)
				}
				if n%1000 == 0 {
					tr.Collect(now, func(Sample) {})
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1.5, "ns/packet")
		})
	}
}
