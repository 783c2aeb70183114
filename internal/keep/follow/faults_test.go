package follow

import (
	"testing"
	"time"

	"unbloat/unit"
)

// Nobody answers any more in the middle of a cut: the queue drains unseen, and after ten
// seconds the rate does not stay where it was for that.
func TestBlindInACut(t *testing.T) {
	for d := Down; d <= Up; d++ {
		f := newFluid(t, usual())
		f.load[d], f.load[1-d] = 1e9, 0.3e6 // something arrives: it is no outage
		f.run(20 * time.Second)
		f.capacity[d] *= 0.3
		for f.last.Why[d].Cause != Queue || float64(f.last.Rate[d]) > 0.7*f.capacity[d] {
			f.run(50 * time.Millisecond)
			if f.now > unit.Instant(25*time.Second) {
				t.Fatalf("%v: no deep cut comes of a deep fall", d)
			}
		}
		cut := f.last.Rate[d]
		f.answer = func(unit.Instant, int, *Delay) bool { return false }
		f.waiting = nil
		f.run(idleAfter + time.Second)
		if r := float64(f.last.Rate[d]); r < 0.8*f.capacity[d] || r > 1.2*f.capacity[d] {
			t.Errorf("%v: blind since a cut to %v, the rate is %v on a line of %.1f Mbit/s", d, cut, f.last.Rate[d], f.capacity[d]/1e6)
		}
	}
}

// An old queue arrives while the rate is at its least: what the line carries is measured,
// and the rate goes to what drains the queue, as after a cut.
func TestOldQueue(t *testing.T) {
	const capacity, queue = 1.5e6, 5 * time.Second
	p := usual()
	p.Rates[Down] = Bounds{Least: 150 * unit.KbitPerSecond, Usual: 1500 * unit.KbitPerSecond, Most: 3 * unit.MbitPerSecond}
	c, err := New(p, 0)
	if err != nil {
		t.Fatal(err)
	}
	now, bytes, added := unit.Instant(time.Minute), 0.0, time.Duration(0)
	var last Decision
	run := func(lasts time.Duration) {
		for end := now.Add(lasts); now < end; now = now.Add(stepBusy) {
			bytes += capacity / 8 * stepBusy.Seconds()
			if i, ok := c.Ask(now); ok {
				c.Delay(Delay{At: now, Source: uint32(i), RTT: 30*time.Millisecond + added, OneWay: true, Up: 15 * time.Millisecond, Down: 15*time.Millisecond + added})
			}
			c.Count(Counters{At: now, Way: [2]Count{{Bytes: unit.Size(bytes), Backlog: 50_000}, {}}})
			last = c.Step(now)
		}
	}
	run(10 * time.Second)
	c.Applied(now, Down, p.Rates[Down].Least)
	added = queue // of these the line carries what it carries, and the shaper drops nine tenths
	run(2 * time.Second)
	if r := float64(last.Rate[Down]); r < 0.28*capacity || r > 0.5*capacity {
		t.Errorf("%v (%v) while an old queue arrives at %.0f kbit/s", last.Rate[Down], c.Situation(Down).Is, capacity/1e3)
	}
}
