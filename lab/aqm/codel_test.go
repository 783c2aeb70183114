package aqm

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/unit"
)

// TestGapAgainstPlainFormula compares each dialect's interval/√count with the
// exact value: equal to a tick where the dialect is exact, and off by the known
// error where it is not.
func TestGapAgainstPlainFormula(t *testing.T) {
	for _, c := range []struct {
		dialect Dialect
		within  float64 // allowed relative error from count 1 on
		shift   float64 // how many counts the table is ahead
	}{{RFC, 1e-7, 0}, {OpenBSD80, 1e-7, 0}, {OpenBSD78, 1e-7, 1}, {Linux612, 0.30, 0}, {FreeBSD, 0.10, 0}} {
		law, err := newCoDelLaw(DefaultCoDel(c.dialect), 1514)
		if err != nil {
			t.Fatal(err)
		}
		s := codelState{root: math.MaxUint16}
		for count := uint32(1); count < 390; count++ {
			s.count = count
			if law.law == lawNewton16 && count > 1 {
				s.root = newton16(s.root, count)
			}
			got := float64(law.gap(&s))
			want := float64(law.interval) / math.Sqrt(float64(count)+c.shift)
			if off := math.Abs(got-want) - 1; off > c.within*want {
				t.Errorf("%v, count %d: gap %.0f, plain formula %.0f", c.dialect, count, got, want)
			}
		}
	}
}

// TestGapsOfNote checks the deviations that users can notice.
func TestGapsOfNote(t *testing.T) {
	for _, c := range []struct {
		dialect Dialect
		count   uint32
		want    time.Duration
	}{
		{OpenBSD78, 1, 70710678},               // its first gap is every other dialect's second
		{OpenBSD80, 1, 100 * time.Millisecond}, //
		{OpenBSD80, 398, 5012547},              // the last but one of the table
		{OpenBSD80, 60000, 5006262},            // the last, used for all higher counts
		{Linux612, 2, 48829 << 10},             // one Newton step: 0.5 instead of 1/√2 = 0.707
		{RFC, 2, 70710678},
		{FreeBSD, 2, 70698 * time.Microsecond},
	} {
		law, err := newCoDelLaw(DefaultCoDel(c.dialect), 1514)
		if err != nil {
			t.Fatal(err)
		}
		s := codelState{count: 1, root: math.MaxUint16}
		law.gap(&s)
		if s.count = c.count; law.law == lawNewton16 {
			s.root = newton16(s.root, c.count)
		}
		got := law.gap(&s) << law.shift
		if law.microns {
			got *= 1000
		}
		if time.Duration(got) != c.want {
			t.Errorf("%v, count %d: gap %v, want %v", c.dialect, c.count, time.Duration(got), c.want)
		}
	}
}

// TestIsqrt checks the definition of the integer root.
func TestIsqrt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.Uint64().Draw(t, "x")
		r := isqrt(x)
		if r > math.MaxUint32 || r*r > x || r < math.MaxUint32 && (r+1)*(r+1) <= x {
			t.Fatalf("isqrt(%d) = %d", x, r)
		}
	})
}

// TestLinuxForgetsAboveWhenEmpty: a sparse flow has two packets, 200 ms apart,
// each alone in the queue and late. Linux before March 2026 dropped the second
// (fixed by 815980fe6dbb).
func TestLinuxForgetsAboveWhenEmpty(t *testing.T) {
	q := newCoDel(t, DefaultCoDel(Linux612))
	for i := range unit.Instant(4) {
		at := i * 200 * ms
		for range 3 { // keeps the backlog above an MTU
			q.Enqueue(at, Packet{Size: 1514})
		}
		for range 4 {
			q.Dequeue(at + 20*ms)
		}
	}
	if d := q.Stats().Dropped; d != 0 {
		t.Errorf("%d drops from a queue that empties each time", d)
	}
}

// TestParametersAreChecked: parameters that no implementation can use are
// refused.
func TestParametersAreChecked(t *testing.T) {
	for name, change := range map[string]func(*FQCoDelParams){
		"no flows":          func(p *FQCoDelParams) { p.Flows = 0 },
		"too many flows":    func(p *FQCoDelParams) { p.Flows = 1 << 20 },
		"no quantum":        func(p *FQCoDelParams) { p.Quantum = 0 },
		"no limit":          func(p *FQCoDelParams) { p.CoDel.Packets = 0 },
		"no interval":       func(p *FQCoDelParams) { p.CoDel.Interval = 0 },
		"endless interval":  func(p *FQCoDelParams) { p.CoDel.Interval = time.Hour },
		"negative target":   func(p *FQCoDelParams) { p.CoDel.Target = -1 },
		"unknown dialect":   func(p *FQCoDelParams) { p.CoDel.Dialect = 99 },
		"giant MTU":         func(p *FQCoDelParams) { p.CoDel.MTU = 1 << 20 },
		"negative memory":   func(p *FQCoDelParams) { p.Memory = -1 },
		"negative CE limit": func(p *FQCoDelParams) { p.CoDel.CEThreshold = -1 },
	} {
		p := DefaultFQCoDel(Linux612)
		change(&p)
		if _, err := NewFQCoDel(p); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for d := RFC; d <= NS3; d++ {
		if got, err := ParseDialect(d.String()); err != nil || got != d {
			t.Errorf("ParseDialect(%q) = %v, %v", d, got, err)
		}
	}
	if _, err := ParseDialect("plan9"); err == nil {
		t.Error("dialect plan9 exists")
	}
}

// TestCEThreshold: packets that waited longer than the threshold are marked,
// and no others.
func TestCEThreshold(t *testing.T) {
	p := DefaultCoDel(Linux612)
	p.CEThreshold = time.Millisecond
	q := newCoDel(t, p)
	q.Enqueue(0, Packet{Size: 100, ECN: ECT})
	q.Enqueue(0, Packet{Size: 100, ECN: ECT})
	if p, _ := q.Dequeue(ms / 2); p.ECN != ECT {
		t.Error("marked after half a millisecond")
	}
	if p, _ := q.Dequeue(2 * ms); p.ECN != CE {
		t.Error("not marked after two milliseconds")
	}
}

// TestLinux73BoundsItsDrops: Linux 7.3 drops at most 256 packets in one
// dequeue.
func TestLinux73BoundsItsDrops(t *testing.T) {
	for dialect, want := range map[Dialect]uint64{Linux612: 5000, Linux73: 258} {
		p := DefaultCoDel(dialect)
		p.Packets, p.Interval, p.Target = 10000, 3*time.Microsecond, time.Microsecond
		q := newCoDel(t, p)
		for range 10000 {
			q.Enqueue(0, Packet{Size: 1000})
		}
		q.Dequeue(10 * ms)
		q.Dequeue(11 * ms)
		q.Dequeue(50 * ms)
		got := q.Stats().Dropped
		if dialect == Linux73 && got > want || dialect == Linux612 && got < want {
			t.Errorf("%v dropped %d", dialect, got)
		}
	}
}

// TestLinuxTakesLeastQuantum: a quantum below 256 bytes becomes 256
// (fq_codel_change).
func TestLinuxTakesLeastQuantum(t *testing.T) {
	order := func(d Dialect) (out string) {
		p := DefaultFQCoDel(d)
		p.Quantum = 90
		q, err := NewFQCoDel(p)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 8 {
			q.Enqueue(0, Packet{Size: 100, Flow: uint32(i / 4)})
		}
		for {
			p, ok := q.Dequeue(0)
			if !ok {
				return out
			}
			out += string(rune('a' + p.Flow))
		}
	}
	for d, want := range map[Dialect]string{Linux612: "aaabbbab", Linux73: "aaabbbab", NS3: "abababab"} {
		if got := order(d); got != want {
			t.Errorf("%v sends %s, want %s", d, got, want)
		}
	}
}

// TestLinuxClockWraps: codel_time_before compares 32-bit times by their signed
// difference. So the time since drop_next counts as long until half a turn of
// the clock after the 16th interval, and as short from then on.
func TestLinuxClockWraps(t *testing.T) {
	for _, c := range []struct {
		since int64 // ticks from drop_next to now
		want  uint32
	}{{1000, 5}, {-1000, 5}, {1 << 31, 1}, {1<<31 + 1000, 1}, {1<<31 + 16*97656 + 1, 5}} {
		law, err := newCoDelLaw(DefaultCoDel(Linux612), 1514)
		if err != nil {
			t.Fatal(err)
		}
		now := int64(1 << 31)
		q := &codelQueue{codelState: codelState{count: 10, lastCount: 5, dropNext: int64(uint32(now - c.since))}}
		s := newStore(nil)
		s.push(&q.chain, s.admit(0, Packet{Size: 1000}))
		law.enter(&s, q, s.pop(&q.chain), now, unit.Instant(now<<10))
		if q.count != c.want {
			t.Errorf("%d ticks after drop_next dropping begins at count %d, want %d", c.since, q.count, c.want)
		}
	}
}
