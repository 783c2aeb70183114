package follow

import (
	"bytes"
	"testing"
	"time"

	"unbloat/unit"
)

// learning is a controller for a line that usually carries 50/10 Mbit/s, and whose bounds
// nobody has given.
func learning() Params {
	p := usual()
	p.Rates = [2]Bounds{BoundsOf(0, 50*unit.MbitPerSecond, 0, 45*unit.MbitPerSecond), BoundsOf(0, 10*unit.MbitPerSecond, 0, 9500*unit.KbitPerSecond)}
	p.Learned = &Learned{}
	return p
}

// longest runs with load, and returns for how long at most the line queued for more than 30 ms,
// and the mean rates.
func (f *fluid) longest(lasts time.Duration) (most time.Duration, rate [2]float64) {
	since := f.now
	for until := f.now.Add(lasts); f.now < until; {
		f.run(50 * time.Millisecond)
		if f.delay() <= 30*time.Millisecond {
			since = f.now
		}
		most = max(most, f.now.Sub(since))
		for d, r := range f.last.Rate {
			rate[d] += float64(r) * 0.05 / lasts.Seconds()
		}
	}
	return most, rate
}

// A line that really carries 80/20 Mbit/s behind `down = "50"`, `up = "10"` is found within
// ten minutes of load, and without bloat; one that carries no more than is said stays as
// it is; and what was learnt is there after a restart.
func TestLearnsTheMost(t *testing.T) {
	for _, oneWay := range []bool{true, false} {
		for _, capacity := range [][2]float64{{80e6, 20e6}, {50e6, 10e6}} {
			p := learning()
			f := newFluid(t, p)
			f.oneWay, f.capacity = oneWay, capacity
			f.greedy()
			bloat, _ := f.longest(9 * time.Minute)
			more, rate := f.longest(time.Minute)
			if bloat = max(bloat, more); bloat > time.Second {
				t.Errorf("one way %t, %v: it queues for more than 30 ms for %v", oneWay, capacity, bloat)
			}
			for d, want := range f.capacity {
				if r := rate[d]; r < 0.92*want {
					t.Errorf("one way %t, %v: %.1f Mbit/s after ten minutes on a line of %.1f", oneWay, Direction(d), r/1e6, want/1e6)
				}
			}
			l, err := DecodeLearned(p.Learned.Encode())
			if err != nil || *l != *p.Learned {
				t.Fatalf("%+v, it was %+v: %v", l.most, p.Learned.most, err)
			}
			p.Learned = l
			before := f.c.Belief(Down).Most
			f = newFluid(t, p)
			f.oneWay, f.capacity = oneWay, capacity
			f.greedy()
			f.run(10 * time.Second)
			_, rate = f.longest(10 * time.Second)
			for d, want := range f.capacity {
				if r := rate[d]; r < 0.92*want || f.c.Belief(Down).Most < before {
					t.Errorf("one way %t, %v: %.1f Mbit/s ten seconds after a restart", oneWay, Direction(d), r/1e6)
				}
			}
		}
	}
}

// With a call on board nothing is tried, and a step under way is taken back when it comes.
func TestCallsAreLeftAlone(t *testing.T) {
	f := newFluid(t, learning())
	f.capacity = [2]float64{80e6, 20e6}
	f.call = true
	f.greedy()
	f.run(time.Minute)
	for d, b := range f.c.p.Rates {
		if f.last.Rate[d] > b.Most {
			t.Errorf("%v beside a call; the line is said to carry %v", f.last.Rate[d], b.Most)
		}
	}
	f.call = false
	for !f.c.ways[Down].policy.steps {
		f.run(50 * time.Millisecond)
	}
	f.call = true
	f.run(100 * time.Millisecond)
	if r, most := f.last.Rate[Down], f.c.Belief(Down).Most; r > most {
		t.Errorf("a call came, and the rate is %v; %v is proven", r, most)
	}
}

// What failed is left alone for a while, and longer each time; a step that carries little
// proves nothing, and a line that falls meanwhile neither.
func TestReach(t *testing.T) {
	const most = 10 * unit.MbitPerSecond
	r := reach{Bounds: Bounds{Least: unit.MbitPerSecond, Usual: most, Most: most, LearnLeast: true, LearnMost: true}}
	r.start(0, learnedMost{})
	now := unit.Instant(0)
	at := func(is Kind, mbit float64, delay time.Duration) *Situation {
		return &Situation{Is: is, At: now, Carried: mbit * 1e6, Delay: delay, Doubt: delay, Threshold: 12 * time.Millisecond}
	}
	round := func(s *Situation) (next float64) {
		r.learn(s, float64(r.Most))
		if s.Is == IsTop {
			next, _ = r.step(s, float64(r.Most), time.Hour)
		}
		return next
	}
	if next := round(at(IsTop, 10, 0)); next != 10.2e6 {
		t.Fatalf("the first step is to %v", next)
	}
	now += unit.Instant(time.Hour)
	if next := round(at(IsTop, 9, 0)); next != 0 || r.proven != most {
		t.Errorf("with 9 Mbit/s the step to 10.2 is taken for proven")
	}
	now += unit.Instant(watched)
	if round(at(IsTop, 10.2, 0)); r.proven != 10_200_000 || !r.steps {
		t.Errorf("a step of %v without a queue leaves %v, and is no reason for the next", watched, r.proven)
	}
	fell := at(IsQueueing, 5, 20*time.Millisecond)
	fell.Capacity = 5e6
	if round(fell); r.steps || r.until != 0 || r.Most != 10_200_000 {
		t.Errorf("a line that fell: %+v", r)
	}
	for i, want := range []time.Duration{countsFirst, 2 * countsFirst, 4 * countsFirst} {
		if next := round(at(IsTop, 10.2, 0)); next == 0 {
			t.Fatalf("step %d is not taken", i)
		}
		now += unit.Instant(time.Second)
		round(at(IsQueueing, 10.2, 20*time.Millisecond))
		now += unit.Instant(want - time.Second)
		if next := round(at(IsTop, 10.2, 0)); next != 0 || r.steps {
			t.Errorf("failure %d counts for less than %v", i, want)
		}
		now += unit.Instant(time.Second)
	}
}

// A line that carries less than a tenth of its usual rate is followed there, down to 100 kbit/s.
func TestLearnsTheLeast(t *testing.T) {
	for d := Down; d <= Up; d++ {
		f := newFluid(t, learning())
		f.load[d] = 1e9
		f.run(10 * time.Second)
		for _, share := range []float64{2, 1, 0.5, 0.3} { // no load is as stubborn as this one
			f.capacity[d] = share * float64(f.c.p.Rates[d].Least)
			f.run(20 * time.Second)
		}
		if r := float64(f.last.Rate[d]); r > 1.1*f.capacity[d] || f.delay() > 200*time.Millisecond {
			t.Errorf("%v: %v and a queue of %v on a line of %.2f Mbit/s", d, f.last.Rate[d], f.delay(), f.capacity[d]/1e6)
		}
		for f.capacity[d] > 10e3 {
			f.capacity[d] *= 0.7
			f.run(10 * time.Second)
		}
		if r := f.last.Rate[d]; r < leastOfAll || r > 3*leastOfAll {
			t.Errorf("%v: %v", d, r)
		}
	}
}

// Replayed, what was learnt and who called is there.
func TestReplayLearns(t *testing.T) {
	f := newFluid(t, learning())
	f.capacity = [2]float64{80e6, 20e6}
	f.greedy()
	var b bytes.Buffer
	f.drive = NewRecorder(f.c, f.now, &b)
	for i := range 60 {
		f.call = i%8 > 5
		f.run(time.Second)
	}
	most := unit.Rate(0)
	if err := Replay(bytes.NewReader(b.Bytes()), func(r Replayed) { most = r.Controller.Belief(Down).Most }); err != nil {
		t.Fatal(err)
	}
	if is := f.c.Belief(Down).Most; most != is {
		t.Errorf("learnt %v, replayed %v", is, most)
	}
}
