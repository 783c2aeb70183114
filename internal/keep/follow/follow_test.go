package follow

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/reason"
	"unbloat/unit"
)

// greedy fills both directions.
func (f *fluid) greedy() { f.load = [2]float64{1e9, 1e9} }

// A line that falls is followed within a second, and found again when it is back.
func TestFollowsSteps(t *testing.T) {
	for _, x := range []struct {
		oneWay bool
		load   [2]float64
	}{{true, [2]float64{1e9, 1e9}}, {true, [2]float64{1e9, 0}}, {true, [2]float64{0, 1e9}}, {false, [2]float64{1e9, 0}}, {false, [2]float64{0, 1e9}}} {
		oneWay := x.oneWay
		f := newFluid(t, usual())
		f.oneWay, f.load = oneWay, x.load
		f.run(20 * time.Second)
		f.capacity = [2]float64{15e6, 3e6}
		f.run(1500 * time.Millisecond)
		if d := f.delay(); d > 250*time.Millisecond {
			t.Errorf("one way %t: 1.5 s after the line fell it queues for %v", oneWay, d)
		}
		f.run(8 * time.Second)
		if d := f.delay(); d > 30*time.Millisecond {
			t.Errorf("one way %t: 10 s after the line fell it queues for %v", oneWay, d)
		}
		for d, want := range f.capacity {
			if x.load[d] == 0 {
				continue
			}
			if r := float64(f.last.Rate[d]); r < 0.85*want || r > 1.1*want {
				t.Errorf("one way %t, %v: %.1f Mbit/s on a line of %.1f", oneWay, Direction(d), r/1e6, want/1e6)
			}
			if b := f.c.Belief(Direction(d)); oneWay && math.Abs(float64(b.Capacity)-want) > 0.05*want {
				t.Errorf("one way %t, %v: it believes in %v", oneWay, Direction(d), b.Capacity)
			}
		}
		f.capacity = [2]float64{50e6, 10e6}
		f.run(8 * time.Second)
		for d, want := range f.capacity {
			if r := float64(f.last.Rate[d]); x.load[d] > 0 && (r < 0.85*want && oneWay || r < 0.6*want) {
				t.Errorf("one way %t, %v: %.1f Mbit/s 8 s after the line has %.1f again", oneWay, Direction(d), r/1e6, want/1e6)
			}
		}
	}
}

// A fall in one direction does not cut the other, even where only round trips are known.
func TestOtherDirectionKeepsItsRate(t *testing.T) {
	for _, oneWay := range []bool{true, false} {
		for d := Down; d <= Up; d++ {
			f := newFluid(t, usual())
			f.oneWay = oneWay
			f.load[d] = 1e9
			other := 1 - d
			f.load[other] = 0.3e6
			f.run(10 * time.Second)
			before := f.last.Rate[other]
			f.capacity[d] *= 0.3
			f.run(10 * time.Second)
			if f.last.Rate[other] < before {
				t.Errorf("one way %t: the line fell %v, and the rate %v was cut from %v to %v", oneWay, d, other, before, f.last.Rate[other])
			}
			if float64(f.last.Rate[d]) > 1.1*f.capacity[d] {
				t.Errorf("one way %t: the line fell %v, and the rate is still %v", oneWay, d, f.last.Rate[d])
			}
		}
	}
}

// On a steady line the rate keeps close below the capacity for ten minutes.
func TestHoldsStill(t *testing.T) {
	f := newFluid(t, usual())
	f.greedy()
	f.run(time.Minute)
	f.changes = nil
	var sum [2]float64
	n, most := 0, time.Duration(0)
	for range 600 {
		f.run(time.Second)
		for d, r := range f.last.Rate {
			sum[d] += float64(r)
		}
		n++
		most = max(most, f.delay())
	}
	for d := range sum {
		if mean := sum[d] / float64(n); mean < 0.95*f.capacity[d] {
			t.Errorf("%v: %.2f Mbit/s on average on a line of %.0f", Direction(d), mean/1e6, f.capacity[d]/1e6)
		}
	}
	if most > 40*time.Millisecond {
		t.Errorf("the line queued for %v", most)
	}
	if n := len(f.changes); n > 1200 {
		t.Errorf("%d changes in ten minutes", n)
	}
}

// When all reflectors die the rates hold for half a minute, and never fall to the least.
func TestNoSignalNoJump(t *testing.T) {
	f := newFluid(t, usual())
	f.greedy()
	f.run(20 * time.Second)
	f.answer = func(unit.Instant, int, *Delay) bool { return false }
	before := f.last.Rate
	for i := range 300 {
		f.run(time.Second)
		for d, r := range f.last.Rate {
			share := float64(r) / float64(before[d])
			if i < 28 && math.Abs(share-1) > 0.1 || share < 0.5 {
				t.Fatalf("%v: %v %d s after the reflectors died, %v before", Direction(d), r, i+1, before[d])
			}
		}
	}
	for i := range usual().Reflectors {
		if f.c.Health(i).Answers {
			t.Errorf("reflector %d is believed to be alive", i)
		}
	}
	f.answer = nil
	f.run(30 * time.Second)
	for i := range usual().Reflectors {
		if !f.c.Health(i).Answers {
			t.Errorf("reflector %d answers again, and is believed to be dead", i)
		}
	}
	if b := f.c.Belief(Up); float64(b.Rate) < 0.85*f.capacity[Up] {
		t.Errorf("half a minute after they are back the rate is %v", b.Rate)
	}
}

// Two of six reflectors are bad, a third moves, and one answer in a hundred is late: in
// an hour of load hardly a cut comes of it.
func TestNoisyReflectors(t *testing.T) {
	const seeds = 5
	total := 0
	for seed := range uint32(seeds) {
		cuts := noisyHour(t, seed+1)
		t.Logf("seed %d: %d cuts", seed+1, cuts)
		total += cuts
	}
	if total > seeds {
		t.Errorf("%d cuts in %d hours", total, seeds)
	}
}

// noisyHour returns how many cuts there were.
func noisyHour(t *testing.T, noise uint32) int {
	t.Helper()
	p := usual()
	p.Rates[Down].Most, p.Rates[Up].Most = 47*unit.MbitPerSecond, 9500*unit.KbitPerSecond
	f := newFluid(t, p)
	f.greedy()
	random := func(n uint32) uint32 { noise = noise*1664525 + 1013904223; return noise >> 8 % n }
	add := func(d *Delay, by time.Duration) {
		d.RTT += by
		d.Up += by / 2
		d.Down += by - by/2
		d.At = d.At.Add(by)
	}
	f.answer = func(at unit.Instant, i int, d *Delay) bool {
		switch {
		case i == 0:
			add(d, time.Duration(random(80))*time.Millisecond)
		case i == 3 && random(3) > 0:
			return false
		case i == 4 && at > unit.Instant(20*time.Minute):
			add(d, 40*time.Millisecond)
		case random(100) == 0:
			add(d, 60*time.Millisecond)
		}
		return true
	}
	f.run(time.Hour)
	cuts := 0
	for _, c := range f.changes {
		for d := range c.Why {
			if c.Change[d] && c.Why[d].Cause == Queue {
				cuts++
			}
		}
	}
	return cuts
}

// A line whose own delay grows by 40 ms under any load is used all the same.
func TestRadioFloor(t *testing.T) {
	for _, oneWay := range []bool{true, false} {
		for d := Down; d <= Up; d++ {
			f := newFluid(t, usual())
			f.oneWay = oneWay
			f.run(5 * time.Second)
			f.load[d] = 1e9
			const floor = 40 * time.Millisecond
			f.answer = func(_ unit.Instant, _ int, x *Delay) bool {
				x.RTT, x.At = x.RTT+floor, x.At.Add(floor)
				if d == Up {
					x.Up += floor
				} else {
					x.Down += floor
				}
				return true
			}
			f.run(30 * time.Second)
			if r := float64(f.last.Rate[d]); r < 0.85*f.capacity[d] {
				t.Errorf("one way %t, %v: after 30 s %v; the line carries %.0f Mbit/s", oneWay, d, f.last.Rate[d], f.capacity[d]/1e6)
			}
			f.capacity[d] *= 0.4 // a real fall is still seen
			f.run(10 * time.Second)
			if r := float64(f.last.Rate[d]); r > 1.1*f.capacity[d] {
				t.Errorf("one way %t, %v: %v on a line that fell to %.0f Mbit/s", oneWay, d, f.last.Rate[d], f.capacity[d]/1e6)
			}
		}
	}
}

// After an hour without load a greedy upload does not bloat for a second.
func TestWakes(t *testing.T) {
	f := newFluid(t, usual())
	f.greedy()
	f.run(time.Minute)
	f.load = [2]float64{}
	f.run(time.Hour)
	if f.last.Rate[Up] != f.c.p.Rates[Up].Usual {
		t.Errorf("without load the rate went to %v", f.last.Rate[Up])
	}
	f.capacity[Up] = 8e6
	f.load[Up] = 1e9
	for range 20 {
		f.run(50 * time.Millisecond)
		if d := f.delay(); d > 70*time.Millisecond {
			t.Fatalf("%v after the upload began the line queues for %v", f.now, d)
		}
	}
}

// Without load hardly anything is sent: 2.2 MB a day, at 40 B each way.
func TestPriceOfProbes(t *testing.T) {
	f := newFluid(t, usual())
	probes := 0
	f.answer = func(unit.Instant, int, *Delay) bool { probes++; return true }
	f.run(6 * time.Hour)
	if day := probes * 4 * 80; day > 2_200_000 {
		t.Errorf("%d bytes of probes a day without load", day)
	}
	f.greedy()
	probes = 0
	f.run(time.Hour)
	if four := probes * 4 * 80; four > 15_000_000-2_200_000 {
		t.Errorf("%d bytes of probes in four hours of load", four)
	}
}

// The clocks of reflectors are off and run apart: the ways are told apart all the same.
func TestClocksOfReflectors(t *testing.T) {
	f := newFluid(t, usual())
	f.answer = func(at unit.Instant, i int, d *Delay) bool {
		drift := time.Duration(at.Seconds() * 100e3 * float64(i-2)) // up to 300 µs a second
		d.Up, d.Down = d.Up+drift, d.Down-drift
		return true
	}
	f.greedy()
	f.run(time.Minute)
	f.load[Up], f.capacity[Down] = 0, 20e6
	f.run(2 * time.Second)
	if f.last.Rate[Down] > 22*unit.MbitPerSecond || f.last.Rate[Up] < 8*unit.MbitPerSecond {
		t.Errorf("the line fell down to 20 Mbit/s; the rates are %v and %v", f.last.Rate[Down], f.last.Rate[Up])
	}
}

// A new line is measured anew.
func TestNewLine(t *testing.T) {
	f := newFluid(t, usual())
	f.greedy()
	f.run(20 * time.Second)
	f.base = 300 * time.Millisecond
	f.c.NewLine(f.now)
	before := f.last.Rate
	f.run(5 * time.Second)
	for d, r := range f.last.Rate {
		if float64(r) < 0.85*float64(before[d]) {
			t.Errorf("%v: a longer way cut the rate from %v to %v", Direction(d), before[d], r)
		}
	}
}

// What was set by somebody else is where it goes on from.
func TestApplied(t *testing.T) {
	f := newFluid(t, usual())
	f.c.Applied(0, Up, 5*unit.MbitPerSecond)
	if b := f.c.Belief(Up); b.Rate != 5*unit.MbitPerSecond || b.Why.Cause != Set {
		t.Errorf("it believes that the shaper has %v, because of %v", b.Rate, b.Why.Cause)
	}
	f.load[Up] = 1e9
	f.run(10 * time.Second)
	if float64(f.last.Rate[Up]) < 9e6 {
		t.Errorf("10 s later the rate is %v", f.last.Rate[Up])
	}
}

// Routers round rates; that is nobody's doing.
func TestAppliedRounded(t *testing.T) {
	f := newFluid(t, usual())
	f.c.Applied(0, Down, f.c.p.Rates[Down].Usual-7)
	if b := f.c.Belief(Down); b.Rate != f.c.p.Rates[Down].Usual-7 || b.Why.Cause != Started {
		t.Errorf("it believes that the shaper has %v, because of %v", b.Rate, b.Why.Cause)
	}
}

// A router that is slow to change is asked no more often than it can.
func TestEvery(t *testing.T) {
	p := usual()
	p.Every = 2 * time.Second
	f := newFluid(t, p)
	f.greedy()
	var at [2]unit.Instant
	for i := range 600 {
		if i%40 == 39 {
			f.capacity = [2]float64{50e6 * float64(1+i%3) / 3, 10e6 * float64(1+i%4) / 4}
		}
		f.changes = nil
		f.run(100 * time.Millisecond)
		for _, c := range f.changes {
			for d := range c.Change {
				if c.Change[d] && at[d] != 0 && f.now.Sub(at[d]) < p.Every-100*time.Millisecond {
					t.Fatalf("%v changed twice within %v", Direction(d), f.now.Sub(at[d]))
				}
				if c.Change[d] {
					at[d] = f.now
				}
			}
		}
	}
}

// Whatever is heard, and in whatever order, the rates are between their bounds.
func TestAlwaysWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := usual()
		p.Every = time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "every"))
		c, err := New(p, 0)
		if err != nil {
			t.Fatal(err)
		}
		anything := rapid.OneOf(rapid.Int64(), rapid.Int64Range(0, int64(time.Second)))
		at := func() unit.Instant { return unit.Instant(anything.Draw(t, "at")) }
		now := unit.Instant(0)
		for range rapid.IntRange(1, 200).Draw(t, "events") {
			switch rapid.IntRange(0, 6).Draw(t, "event") {
			case 0, 1:
				now = now.Add(time.Duration(rapid.Int64Range(0, int64(2*time.Second)).Draw(t, "later")))
				checkBounds(t, p, c.Step(now))
			case 2:
				c.Ask(now)
			case 3:
				c.Delay(Delay{At: now, Source: uint32(rapid.IntRange(0, 7).Draw(t, "source")), RTT: time.Duration(rapid.Int64Range(-10, int64(3*time.Second)).Draw(t, "rtt")),
					OneWay: rapid.Bool().Draw(t, "one way"), Up: time.Duration(anything.Draw(t, "up")), Down: time.Duration(anything.Draw(t, "down")), Passive: rapid.Bool().Draw(t, "passive")})
			case 4:
				c.Delay(Delay{At: at(), Source: rapid.Uint32().Draw(t, "source"), RTT: time.Duration(anything.Draw(t, "rtt"))})
			case 5:
				count := func() Count {
					return Count{Bytes: unit.Size(anything.Draw(t, "bytes")), Backlog: unit.Size(anything.Draw(t, "backlog"))}
				}
				c.Count(Counters{At: rapid.SampledFrom([]unit.Instant{now, at()}).Draw(t, "when"), Way: [2]Count{count(), count()}})
			case 6:
				if rapid.Bool().Draw(t, "line") {
					c.NewLine(now)
				} else {
					c.Applied(now, Direction(rapid.IntRange(0, 1).Draw(t, "direction")), unit.Rate(anything.Draw(t, "rate")))
				}
			}
		}
		checkBounds(t, p, c.Step(now.Add(time.Hour)))
	})
}

type fataler interface{ Fatalf(string, ...any) }

func checkBounds(t fataler, p Params, d Decision) {
	for i, b := range p.Rates {
		if d.Change[i] && (d.Rate[i] < b.Least || d.Rate[i] > b.Most) {
			t.Fatalf("%v: %v is not within %v and %v", Direction(i), d.Rate[i], b.Least, b.Most)
		}
		if d.Why[i].Cause.Code() == "" {
			t.Fatalf("%v: no reason", Direction(i))
		}
	}
}

// FuzzController: bytes are events.
func FuzzController(f *testing.F) {
	f.Add([]byte{0, 10, 1, 0, 2, 40, 3, 200, 0, 50})
	f.Add([]byte(strings.Repeat("\x00\x14\x01\x00\x02\x1e\x03\x80", 40)))
	f.Fuzz(func(t *testing.T, events []byte) {
		p := usual()
		c, err := New(p, 0)
		if err != nil {
			t.Fatal(err)
		}
		now, bytes := unit.Instant(0), unit.Size(0)
		for pair := range slices.Chunk(events, 2) {
			v := 0
			if len(pair) == 2 {
				v = int(pair[1])
			}
			switch pair[0] % 5 {
			case 0:
				now = now.Add(time.Duration(v) * 5 * time.Millisecond)
				checkBounds(t, p, c.Step(now))
			case 1:
				c.Ask(now)
			case 2:
				rtt := time.Duration(v) * 3 * time.Millisecond
				c.Delay(Delay{At: now, Source: uint32(pair[0]>>3) % 8, RTT: rtt, OneWay: pair[0]&128 != 0, Up: rtt / 3, Down: rtt - rtt/3})
			case 3:
				bytes += unit.Size(v) * 2000
				c.Count(Counters{At: now, Way: [2]Count{{Bytes: bytes}, {Bytes: bytes / 4, Backlog: unit.Size(v) * 100}}})
			case 4:
				c.Applied(now, Direction(pair[0]>>7), unit.Rate(v)*unit.MbitPerSecond)
			}
		}
	})
}

// A step allocates nothing.
func TestStepAllocatesNothing(t *testing.T) {
	f := newFluid(t, usual())
	f.greedy()
	f.run(5 * time.Second)
	now, bytes := f.now, unit.Size(1e12)
	if n := testing.AllocsPerRun(1000, func() {
		now = now.Add(50 * time.Millisecond)
		bytes += 300_000
		c := f.c
		if i, ok := c.Ask(now); ok {
			c.Delay(Delay{At: now, Source: uint32(i), RTT: 35 * time.Millisecond, OneWay: true, Up: 20 * time.Millisecond, Down: 15 * time.Millisecond})
		}
		c.Delay(Delay{At: now, Source: 99, Operator: 7, Passive: true, RTT: 36 * time.Millisecond})
		c.Count(Counters{At: now, Way: [2]Count{{Bytes: bytes}, {Bytes: bytes}}})
		c.Step(now)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Every cause has words in every language, which name the direction and a rate.
func TestCausesHaveWords(t *testing.T) {
	for c := range causes {
		w := Why{Cause: c, Direction: Up, From: 10 * unit.MbitPerSecond, To: 8 * unit.MbitPerSecond, Capacity: 9 * unit.MbitPerSecond, Delay: 21 * time.Millisecond}
		for _, l := range reason.Languages() {
			text := w.Reason().Text(l, reason.Page)
			if text == string(c.Code()) || !strings.Contains(text, l.Name("up")) || strings.Contains(text, "<nil>") {
				t.Errorf("cause %d in %s: %q", c, l.Tag, text)
			}
		}
	}
}

// Parameters that cannot be are refused by what is wrong.
func TestParams(t *testing.T) {
	for why, change := range map[string]func(*Params){
		"least":      func(p *Params) { p.Rates[Up].Least = 0 },
		"order":      func(p *Params) { p.Rates[Down].Most = p.Rates[Down].Usual - 1 },
		"reflectors": func(p *Params) { p.Reflectors = make([]Reflector, MostReflectors+1) },
		"time":       func(p *Params) { p.ProbeBusy = -1 },
		"packet":     func(p *Params) { p.Packet = 10 },
	} {
		p := usual()
		change(&p)
		if _, err := New(p, 0); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", why, err)
		}
	}
}

// Neighbours in the order of asking are of different operators.
func TestOperatorsTakeTurns(t *testing.T) {
	c, err := New(usual(), 0)
	if err != nil {
		t.Fatal(err)
	}
	last := -1
	seen := map[int]bool{}
	for i := range 6 {
		r, ok := c.Ask(unit.Instant(i) * unit.Instant(time.Second))
		if !ok || r/2 == last {
			t.Errorf("reflector %d after one of operator %d", r, last)
		}
		last, seen[r] = r/2, true
	}
	if len(seen) != 6 {
		t.Errorf("in six turns %d reflectors were asked", len(seen))
	}
}

// Starlink gives each terminal another satellite each 15 s, and packets around it are late
// without a queue: the rates are hardly less for it.
func TestLateAtSteps(t *testing.T) {
	f := newFluid(t, usual())
	f.greedy()
	f.answer = func(at unit.Instant, _ int, d *Delay) bool {
		if into := time.Duration(at) % (15 * time.Second); into > 7200*time.Millisecond && into < 7400*time.Millisecond {
			d.RTT += 90 * time.Millisecond
			d.Down += 90 * time.Millisecond
			d.At = d.At.Add(90 * time.Millisecond)
		}
		return true
	}
	f.run(time.Minute)
	before := f.bytes
	const lasts = 10 * time.Minute
	f.run(lasts)
	for d, line := range f.capacity {
		if share := (f.bytes[d] - before[d]) * 8 / lasts.Seconds() / line; share < 0.93 {
			t.Errorf("%v: %.3f of the line is used", Direction(d), share)
		}
	}
}

// What is learnt lies between the bounds, and its file is bounded and comes back as it was.
func TestLearned(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Learned
		least, most := 1e6, 60e6
		for range rapid.IntRange(0, 300).Draw(t, "minutes") {
			l.observe(rapid.IntRange(0, hoursOfWeek-1).Draw(t, "hour"), Direction(rapid.IntRange(0, 1).Draw(t, "direction")), rapid.Float64Range(least, most).Draw(t, "rate"))
		}
		for hour := range hoursOfWeek {
			for d := Down; d <= Up; d++ {
				low, usual, ok := l.at(hour, d)
				if ok && (low < least || low > usual || usual > most) {
					t.Fatalf("hour %d %v: low %v, usual %v", hour, d, low, usual)
				}
			}
		}
		text := l.Encode()
		again, err := DecodeLearned(text)
		if err != nil || len(text) > 16<<10 {
			t.Fatalf("%d bytes: %v\n%s", len(text), err, text)
		}
		if b := again.Encode(); string(b) != string(text) {
			t.Fatalf("it was\n%s\nand is\n%s", text, b)
		}
		if i := rapid.IntRange(0, len(text)-1).Draw(t, "damaged"); true {
			text[i] ^= byte(1 + rapid.IntRange(0, 254).Draw(t, "by"))
			if _, err := DecodeLearned(text); err == nil {
				t.Fatalf("damage at %d is not seen:\n%s", i, text)
			}
		}
	})
}

// The largest file is within its bound.
func TestLearnedFileIsBounded(t *testing.T) {
	var l Learned
	for hour := range hoursOfWeek {
		for d := Down; d <= Up; d++ {
			for range 3 {
				l.observe(hour, d, 1e12)
			}
			l.hours[hour][d].minutes = learnMost
		}
	}
	text := l.Encode()
	if _, err := DecodeLearned(text); err != nil || len(text) > 16<<10 {
		t.Errorf("%d bytes: %v", len(text), err)
	}
}

// FuzzDecodeLearned: whatever the file has, the rates are in order.
func FuzzDecodeLearned(f *testing.F) {
	var l Learned
	l.observe(5, Up, 3e6)
	f.Add(l.Encode())
	f.Add([]byte("unbloat learned rates 1\nsum 00000000\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := DecodeLearned(text)
		if err != nil {
			return
		}
		for hour := range hoursOfWeek {
			for d := Down; d <= Up; d++ {
				if low, usual, ok := l.at(hour, d); ok && !(low > 0 && low <= usual && usual <= 1e12) {
					t.Fatalf("hour %d %v: %v %v", hour, d, low, usual)
				}
			}
		}
	})
}

// Quantiles are about what they are named after.
func TestLearnedQuantiles(t *testing.T) {
	var l Learned
	noise := uint32(1)
	for range 5000 {
		noise = noise*1664525 + 1013904223
		l.observe(3, Down, 10e6+float64(noise>>8)/(1<<24)*10e6)
	}
	low, usual, _ := l.at(3, Down)
	if low < 10.2e6 || low > 12.5e6 || usual < 13.5e6 || usual > 16.5e6 {
		t.Errorf("of 10 to 20 Mbit/s: low %.1f, usual %.1f", low/1e6, usual/1e6)
	}
	if low2, _, ok := l.at(3+24, Down); !ok || low2 != low {
		t.Errorf("another day: %v %t", low2, ok)
	}
	if _, _, ok := l.at(4, Down); ok {
		t.Error("another hour is known")
	}
}

// The line carries less in the evening. A week later, when nobody answers, the rates go
// there within half a minute; and after an idle night they start there.
func TestLearntRatesAreUsed(t *testing.T) {
	p := usual()
	p.Learned = &Learned{}
	f := newFluid(t, p)
	f.c.Wall(0)
	f.capacity = [2]float64{20e6, 4e6}
	f.greedy()
	f.run(12 * time.Minute)
	if f.c.Learned() < 20 {
		t.Fatalf("%d minutes learnt", f.c.Learned())
	}
	for d := Down; d <= Up; d++ {
		low, median, ok := p.Learned.at(0, d)
		if !ok || low < 0.75*f.capacity[d] || median > 1.05*f.capacity[d] {
			t.Fatalf("%v: low %.1f, usual %.1f Mbit/s %t on a line of %.0f", d, low/1e6, median/1e6, ok, f.capacity[d]/1e6)
		}
	}
	l, err := DecodeLearned(p.Learned.Encode())
	if err != nil {
		t.Fatal(err)
	}
	// Another controller, with the file, at the same hour. Idle first.
	p.Learned = l
	f = newFluid(t, p)
	f.c.Wall(0)
	f.run(4 * time.Minute)
	for d := Down; d <= Up; d++ {
		_, median, _ := l.at(0, d)
		if r := float64(f.last.Rate[d]); math.Abs(r-median) > 0.02*median {
			t.Errorf("%v: after idling %v, learnt %.1f Mbit/s", d, f.last.Rate[d], median/1e6)
		}
	}
	// Then load on a line that carries more, and nobody answers.
	f.greedy()
	f.run(30 * time.Second)
	f.answer = func(unit.Instant, int, *Delay) bool { return false }
	f.run(patience - time.Second)
	before := f.last.Rate
	f.run(patience + 5*time.Second)
	for d := Down; d <= Up; d++ {
		low, _, _ := l.at(0, d)
		if r := float64(f.last.Rate[d]); math.Abs(r-low) > 0.05*low || float64(before[d]) < 1.5*low {
			t.Errorf("%v: %v, and after the glide %v; learnt %.1f Mbit/s", d, before[d], f.last.Rate[d], low/1e6)
		}
	}
}

// The user's own server is asked only when neither reflectors nor flows tell the delay,
// and then the line is followed by it.
func TestLastResort(t *testing.T) {
	p := usual()
	p.Reflectors = append(p.Reflectors, Reflector{Operator: 9, Last: true})
	const server = 6
	f := newFluid(t, p)
	asked, mute := 0, false
	f.answer = func(_ unit.Instant, i int, _ *Delay) bool {
		if i == server {
			asked++
			return true
		}
		return !mute
	}
	f.run(time.Minute)
	f.greedy()
	f.run(30 * time.Second)
	if asked > 0 {
		t.Fatalf("while others answered the server was asked %d times", asked)
	}
	mute = true
	flow := func(lasts time.Duration) { // two flows tell their round trips
		for until := f.now.Add(lasts); f.now < until; {
			f.run(50 * time.Millisecond)
			for i := range uint32(2) {
				f.c.Delay(Delay{At: f.now, Source: 100 + i, Operator: 100 + i, Passive: true, RTT: f.base + f.delay()})
			}
		}
	}
	flow(20 * time.Second)
	if asked > 0 {
		t.Fatalf("while flows told the delay the server was asked %d times", asked)
	}
	f.run(10 * time.Second)
	f.capacity = [2]float64{15e6, 3e6}
	f.run(10 * time.Second)
	if asked < 50 || f.delay() > 40*time.Millisecond {
		t.Errorf("asked %d times; 10 s after the line fell it queues for %v", asked, f.delay())
	}
	for d, want := range f.capacity {
		if r := float64(f.last.Rate[d]); r < 0.8*want || r > 1.1*want {
			t.Errorf("%v: %.1f Mbit/s on a line of %.1f", Direction(d), r/1e6, want/1e6)
		}
	}
	mute = false
	f.run(20 * time.Second)
	asked = 0
	f.run(20 * time.Second)
	if asked > 0 {
		t.Errorf("when others answered again the server was asked %d times", asked)
	}
}

// All sources go while there is load: the rates hold, then glide; at no time do they
// jump, least of all to the least.
func TestNoJumpWhenAllGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := usual()
		f := &fluid{capacity: [2]float64{50e6, 10e6}, base: 30 * time.Millisecond, oneWay: rapid.Bool().Draw(t, "one way")}
		var err error
		if f.c, err = New(p, 0); err != nil {
			t.Fatal(err)
		}
		f.drive = f.c
		for d := range f.last.Rate {
			f.last.Rate[d] = p.Rates[d].Usual
		}
		f.greedy()
		f.run(time.Duration(rapid.IntRange(5, 40).Draw(t, "seconds before")) * time.Second)
		f.answer = func(unit.Instant, int, *Delay) bool { return false }
		f.run(2 * time.Second)
		for range 120 {
			before := f.last.Rate
			f.run(time.Second)
			for d, r := range f.last.Rate {
				if float64(r) < 0.8*float64(before[d]) || float64(r) < 0.5*f.capacity[d] {
					t.Fatalf("%v, %v: from %v to %v in a second", f.now, Direction(d), before[d], r)
				}
			}
		}
	})
}

// Reflectors that told the ways apart and now tell round trips only, as behind a router
// that blocks timestamps from now on, are heard all the same.
func TestRoundTripsAfterWays(t *testing.T) {
	f := newFluid(t, usual())
	f.load = [2]float64{100e6, 100e6}
	f.run(20 * time.Second)
	f.oneWay = false
	f.run(20 * time.Second)
	f.capacity = [2]float64{15e6, 3e6}
	f.run(5 * time.Second)
	if down, up := f.last.Rate[Down], f.last.Rate[Up]; down > 16*unit.MbitPerSecond || up > 3500*unit.KbitPerSecond {
		t.Errorf("the rates are %v and %v on a line of 15 and 3 Mbit/s: %v, %v", down, up, f.last.Why[Down].Cause, f.last.Why[Up].Cause)
	}
}

// After an outage the way up has half of its rate of before, even if nobody has answered
// yet; and outages one after the other are one.
func TestOutagesInARow(t *testing.T) {
	f := newFluid(t, usual())
	f.load = [2]float64{100e6, 100e6}
	f.run(20 * time.Second)
	before := f.last.Rate[Up]
	f.answer = func(unit.Instant, int, *Delay) bool { return false }
	for range 2 {
		f.waiting, f.capacity[Down] = nil, 1
		f.run(time.Second)
		if f.last.Why[Up].Cause != Outage || f.last.Rate[Up] > before*22/100 { // it may have risen by a step before
			t.Fatalf("in an outage the rate up is %v: %v", f.last.Rate[Up], f.last.Why[Up].Cause)
		}
		f.capacity[Down] = 50e6
		f.run(500 * time.Millisecond)
		if up := f.last.Rate[Up]; up < before*4/10 {
			t.Errorf("after an outage the rate up is %v, before it was %v: %v", up, before, f.last.Why[Up].Cause)
		}
	}
}
