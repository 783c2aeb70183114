package probe

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/unit"
)

const ms = time.Millisecond

// wire is a path that keeps the order of packets. The test chooses the fate of
// each probe.
type wire struct {
	session   *Session
	reflector *Reflector
	offset    time.Duration // server's clock minus client's
}

// run sends n probes. fate returns the one-way times of each, and whether it or
// its answer is lost.
func (w *wire) run(n int, fate func(i int) (up, down time.Duration, lostUp, lostDown bool)) {
	type reply struct {
		at unit.Instant
		b  []byte
	}
	var replies []reply
	now := unit.Instant(0)
	for i := range n {
		b, next := w.session.Poll(now)
		up, down, lostUp, lostDown := fate(i)
		if !lostUp {
			at := now.Add(up + w.offset)
			out := make([]byte, len(b))
			if k, err := w.reflector.Reflect(at, at.Add(30*time.Microsecond), b, out); err == nil && k > 0 && !lostDown {
				replies = append(replies, reply{now.Add(up + 30*time.Microsecond + down), out[:k]})
			}
		}
		now = next
	}
	for _, r := range replies {
		if err := w.session.Receive(r.at, r.b); err != nil {
			panic(err)
		}
	}
}

func newWire(offset time.Duration) *wire {
	return &wire{
		session:   NewSession(Config{Interval: 10 * ms, Token: 42}),
		reflector: NewReflector(42), offset: offset,
	}
}

// Law: with any losses, sent ≥ received by the server ≥ answered, the numbers
// add up, and the round trip time of every answered probe is the path's. On a
// path that keeps the order the directions of losses are exact.
func TestSessionLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWire(time.Duration(rapid.Int64Range(-1e15, 1e15).Draw(t, "offset")))
		n := rapid.IntRange(1, 300).Draw(t, "n")
		lossUp := rapid.IntRange(0, 100).Draw(t, "loss up %")
		lossDown := rapid.IntRange(0, 100).Draw(t, "loss down %")
		dice := rapid.IntRange(0, 99)
		up, down := 7*ms, 13*ms
		wantUp, wantDown := 0, 0
		w.run(n, func(int) (time.Duration, time.Duration, bool, bool) {
			lu, ld := dice.Draw(t, "up") < lossUp, dice.Draw(t, "down") < lossDown
			if lu {
				wantUp++
			} else if ld {
				wantDown++
			}
			return up, down, lu, ld
		})
		received, _ := w.reflector.Received()
		w.session.Resolve(int64(received))
		if w.session.Sent() < int(received) || int(received) < w.session.Answered() {
			t.Fatalf("sent %d, server received %d, answered %d", w.session.Sent(), received, w.session.Answered())
		}
		count := map[Fate]int{}
		for _, s := range w.session.Samples(0, 1<<62) {
			count[s.Fate]++
			if s.Fate == Answered && (s.RTT() != up+down || s.Up() != up+w.offset || s.Down() != down-w.offset) {
				t.Fatalf("round trip %v, up %v, down %v", s.RTT(), s.Up(), s.Down())
			}
		}
		if count[LostUp] != wantUp || count[LostDown] != wantDown || count[Open] != 0 || count[Answered] != n-wantUp-wantDown {
			t.Fatalf("of %d: %v; want %d lost up and %d down", n, count, wantUp, wantDown)
		}
	})
}

// Short, foreign and unexpected packets are refused, and duplicates are counted.
func TestSessionIgnoresStrangers(t *testing.T) {
	w := newWire(0)
	w.run(3, func(int) (time.Duration, time.Duration, bool, bool) { return ms, ms, true, false })
	reply := func(h Header) []byte {
		b := make([]byte, MinSize)
		PutHeader(b, h)
		return b
	}
	for _, c := range []struct {
		name string
		b    []byte
		want error
	}{
		{"short", make([]byte, MinSize-1), ErrShort},
		{"foreign", make([]byte, MinSize), ErrMagic},
		{"wrong token", reply(Header{Kind: KindReply, Token: 41}), ErrToken},
		{"a question", reply(Header{Kind: KindEcho, Token: 42}), ErrKind},
		{"never sent", reply(Header{Kind: KindReply, Token: 42, Seq: 3}), ErrSequence},
		{"never sent, high", reply(Header{Kind: KindReply, Token: 42, Seq: 1<<32 - 1}), ErrSequence},
	} {
		if err := w.session.Receive(unit.Instant(time.Second), c.b); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.want)
		}
	}
	good := reply(Header{Kind: KindReply, Token: 42, Seq: 1, Count: 1})
	if err := w.session.Receive(unit.Instant(time.Second), good); err != nil {
		t.Fatal(err)
	}
	if err := w.session.Receive(unit.Instant(time.Second), good); !errors.Is(err, ErrDuplicate) {
		t.Errorf("a second answer: error %v", err)
	}
	if w.session.Answered() != 1 || w.session.Duplicates() != 1 {
		t.Errorf("answered %d, duplicates %d", w.session.Answered(), w.session.Duplicates())
	}
}

// Probes are sent on schedule, without waiting for answers, so that a queue of
// many seconds can be measured.
func TestIsochronous(t *testing.T) {
	s := NewSession(Config{Interval: 10 * ms, Start: 100, End: unit.Instant(100).Add(time.Second)})
	if b, next := s.Poll(99); b != nil || next != 100 {
		t.Fatalf("before the start: %v, next %v", b != nil, next)
	}
	now := unit.Instant(100)
	for range 100 {
		b, next := s.Poll(now)
		if len(b) != int(MinSize) {
			t.Fatalf("at %v: %d bytes", now, len(b))
		}
		if next != 0 && next.Sub(now) != 10*ms {
			t.Fatalf("at %v: next in %v", now, next.Sub(now))
		}
		now = now.Add(10 * ms)
	}
	if b, next := s.Poll(now); b != nil || next != 0 || s.Sent() != 100 {
		t.Errorf("after the end: a datagram: %v, next %v, sent %d", b != nil, next, s.Sent())
	}
}

// A sender that was held up sends a few probes at once and counts the others as
// skipped.
func TestHeldUp(t *testing.T) {
	s := NewSession(Config{Interval: 10 * ms})
	s.Poll(0)
	now := unit.Instant(time.Second) // 99 probes late
	sent := 0
	for {
		b, next := s.Poll(now)
		if b == nil {
			if next != now.Add(10*ms) {
				t.Errorf("next at %v", next)
			}
			break
		}
		sent++
	}
	skips := s.Skips(0, now+1)
	if len(skips) != 1 || skips[0].Probes+sent != 100 || sent > MaxBurst+1 || skips[0].Lateness != 990*ms {
		t.Errorf("sent %d, skipped %+v", sent, skips)
	}
}

func TestSettled(t *testing.T) {
	const grace = 10 * time.Second
	w := newWire(0)
	// The fifth of ten is lost. The last answer arrives 3 s after the first
	// probe.
	w.run(10, func(i int) (time.Duration, time.Duration, bool, bool) { return 1500 * ms, 1500 * ms, i == 4, false })
	last := unit.Instant(3*time.Second + 90*ms)
	at := func(d time.Duration) unit.Instant { return unit.Instant(d) }
	for _, c := range []struct {
		name   string
		before unit.Instant
		now    unit.Instant
		want   bool
	}{
		{"all before it answered", at(40 * ms), last, true},
		{"a lost one, a later one just answered", at(50 * ms), last, false},
		{"a lost one, a later one answered long ago", at(50 * ms), last.Add(ReorderWindow), true},
		{"everything, later", at(time.Second), last.Add(ReorderWindow), true},
	} {
		if got := w.session.Settled(c.before, c.now, grace); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	silent := newWire(0)
	silent.run(10, func(int) (time.Duration, time.Duration, bool, bool) { return 0, 0, true, false })
	if silent.session.Settled(at(time.Second), at(9*time.Second), grace) {
		t.Error("gave up before the grace was over")
	}
	if !silent.session.Settled(at(time.Second), at(11*time.Second), grace) {
		t.Error("waits longer than the grace")
	}
}

func TestClockOffset(t *testing.T) {
	w := newWire(-time.Hour)
	w.run(50, func(i int) (time.Duration, time.Duration, bool, bool) {
		return 10*ms + time.Duration(i%7)*ms, 10 * ms, false, false // sometimes a queue in the upload
	})
	got, ok := ClockOffset(w.session.Samples(0, 1<<62))
	if !ok || got != -time.Hour {
		t.Errorf("offset %v, %v", got, ok)
	}
	if _, ok := ClockOffset(nil); ok {
		t.Error("an offset from nothing")
	}
}

// No allocation per packet, except for one block every chunkLen probes.
func TestHotPathAllocatesNothing(t *testing.T) {
	s, r := NewSession(Config{Interval: ms, Token: 1}), NewReflector(1)
	now := unit.Instant(0)
	out := make([]byte, MaxSize)
	s.Poll(now) // allocates the first block
	n := testing.AllocsPerRun(chunkLen/2, func() {
		now = now.Add(ms)
		b, _ := s.Poll(now)
		n, _ := r.Reflect(now, now, b, out)
		if err := s.Receive(now, out[:n]); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations per probe", n)
	}
}

func TestStream(t *testing.T) {
	src, sink := NewSource(Config{Interval: ms, Size: 172, Token: 5}), NewSink(5)
	now := unit.Instant(0)
	for i := range 3000 {
		b, next := src.Poll(now)
		if len(b) != 172 {
			t.Fatalf("datagram %d has %d bytes", i, len(b))
		}
		if i%3 != 0 {
			if err := sink.Receive(now, b); err != nil {
				t.Fatal(err)
			}
		}
		now = next
	}
	n, bytes := sink.Received()
	if n != 2000 || bytes != 2000*172 || sink.Sent() != 3000 || src.Sent() != 3000 {
		t.Errorf("received %d (%v) of %d, sent %d", n, bytes, sink.Sent(), src.Sent())
	}
}

func BenchmarkProbe(b *testing.B) {
	s, r := NewSession(Config{Interval: ms, Token: 1}), NewReflector(1)
	now := unit.Instant(0)
	out := make([]byte, MaxSize)
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(ms)
		d, _ := s.Poll(now)
		n, _ := r.Reflect(now, now, d, out)
		_ = s.Receive(now, out[:n])
	}
}
