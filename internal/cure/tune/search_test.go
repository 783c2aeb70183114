package tune

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/unit"
)

// A model is a line whose latency in each direction is small up to a share of
// its rate, and grows above that.
type model struct {
	line       Rates
	kneeDown   float64 // share of the line from which on its queue grows
	kneeUp     float64
	slope      time.Duration // per percent above the knee
	floor      time.Duration
	trialsMade int
}

func (m *model) try(r Rates) Observation {
	m.trialsMade++
	way := func(r, line unit.Rate, knee float64) time.Duration {
		over := float64(r)/float64(line) - knee
		return m.floor + max(0, time.Duration(over*100*float64(m.slope)))
	}
	d, u := way(r.Down, m.line.Down, m.kneeDown), way(r.Up, m.line.Up, m.kneeUp)
	return Observation{Increase: d + u, Down: d, Up: u}
}

func drawModel(t *rapid.T) *model {
	return &model{
		line: Rates{
			unit.Rate(rapid.Int64Range(1e6, 1e9).Draw(t, "down")),
			unit.Rate(rapid.Int64Range(5e5, 1e9).Draw(t, "up")),
		},
		kneeDown: rapid.Float64Range(0.55, 1.1).Draw(t, "knee down"),
		kneeUp:   rapid.Float64Range(0.55, 1.1).Draw(t, "knee up"),
		slope:    time.Duration(rapid.Int64Range(1e6, 1e8).Draw(t, "slope")),
		floor:    time.Duration(rapid.Int64Range(0, 2e6).Draw(t, "floor")),
	}
}

// few returns the shares with which a search with few connections begins.
func few() shares { return topOf(4, 4, time.Second) }

func (m *model) search(top shares, trials int) *Search {
	s := NewSearch(m.line, 5*time.Millisecond, trials)
	s.top = top
	for r, more := s.Next(); more; r, more = s.Next() {
		s.Observe(m.try(r))
	}
	return s
}

// On any line the search makes no more trials than allowed, stays below the
// line's rate and above its lower limit, and reports success only if the rates
// meet the goal.
func TestSearchLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		trials := rapid.IntRange(1, 12).Draw(t, "trials")
		top := shares{rapid.Float64Range(0.8, topDown).Draw(t, "top down"), rapid.Float64Range(topUp, manyTopUp).Draw(t, "top up")}
		s := m.search(top, trials)
		if m.trialsMade > trials {
			t.Fatalf("%d trials, %d allowed", m.trialsMade, trials)
		}
		best, ok := s.Best()
		if best.Down > m.line.Down.Scale(top.down) || best.Up > m.line.Up.Scale(top.up) ||
			best.Down < m.line.Down.Scale(0.39) || best.Up < m.line.Up.Scale(0.48) {
			t.Fatalf("best %v of a line of %v", best, m.line)
		}
		if held := m.try(best).Increase <= 5*time.Millisecond; ok && !held {
			t.Fatalf("%v is called good and does not hold the goal", best)
		}
	})
}

// With enough trials the rate is found to one step.
func TestSearchFindsTheStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		m.floor, m.kneeUp = 0, 1.1                 // only the download has to be reduced,
		m.kneeDown = max(m.kneeDown, topDown*0.74) // and stays above its lower limit
		s := m.search(few(), 20)
		best, ok := s.Best()
		if !ok {
			t.Fatal("nothing holds the goal on a line where three quarters of its rate do")
		}
		if best.Up != m.line.Up.Scale(topUp) {
			t.Fatalf("the upload gave way to %v, though it held no delay", best.Up)
		}
		// One step more must be too much, if there is one.
		for i, f := range steps {
			if m.line.Down.Scale(topDown*f) == best.Down && i > 0 {
				next := Rates{m.line.Down.Scale(topDown * steps[i-1]), best.Up}
				if m.try(next).Increase <= 5*time.Millisecond {
					t.Fatalf("%v holds the goal too, above %v", next, best)
				}
			}
		}
	})
}

// A line that meets the goal at the highest rates needs one trial.
func TestSearchAtTheTop(t *testing.T) {
	m := &model{line: Rates{30e6, 5e6}, kneeDown: 1.1, kneeUp: 1.1, slope: time.Millisecond}
	s := m.search(few(), 5)
	if best, ok := s.Best(); !ok || m.trialsMade != 1 || best != (Rates{29400000, 4950000}) {
		t.Errorf("best %v (%v) after %d trials", best, ok, m.trialsMade)
	}
}

// If no rates meet the goal, a little less latency is not worth a large part of
// the line: the best rates are the highest ones whose latency is about as low
// as any. Rates that may not be kept are not tried. The figures are of 5/5
// Mbit/s, with four connections in each direction.
func TestSearchGivesUpNoMoreThanItGains(t *testing.T) {
	const goal = 7267 * time.Microsecond
	seen := []time.Duration{110571, 15889, 9107, 7917, 7450}
	s := NewSearch(Rates{4999761, 5000136}, goal, len(seen))
	var tried []Rates
	for _, us := range seen {
		r, more := s.Next()
		if !more {
			break
		}
		tried = append(tried, r)
		us *= time.Microsecond
		s.Observe(Observation{Increase: us, Down: us - 2*time.Millisecond, Up: 2 * time.Millisecond})
	}
	best, ok := s.Best()
	if ok || len(tried) < 4 || best != tried[2] || !s.Exhausted() {
		t.Errorf("best %v (%v, exhausted %v) of %v", best, ok, s.Exhausted(), tried)
	}
	if least := tried[len(tried)-1]; least.Down < unit.Rate(4.99e6).Scale(leastShare) {
		t.Errorf("%v was tried, which would be too dear", least)
	}
	// If lower rates still give a much lower latency, the search continues
	// below them.
	s = NewSearch(Rates{4999761, 5000136}, goal, 2)
	for _, us := range []time.Duration{110571, 30000} {
		s.Observe(Observation{Increase: us * time.Microsecond, Down: us * time.Microsecond})
	}
	if best, _ := s.Best(); s.Exhausted() || best.Down >= 4.89e6 {
		t.Errorf("best %v, exhausted %v", best, s.Exhausted())
	}
}

// After a longer measurement that failed, the search continues with lower
// rates.
func TestSearchLower(t *testing.T) {
	m := &model{line: Rates{30e6, 5e6}, kneeDown: 1.1, kneeUp: 1.1, slope: time.Millisecond}
	s := m.search(few(), 5)
	top, _ := s.Best()
	s.Lower(Observation{Increase: 8 * time.Millisecond, Down: 7 * time.Millisecond, Up: time.Millisecond}, 1)
	next, more := s.Next()
	if !more || next.Down >= top.Down || next.Up != top.Up {
		t.Errorf("after the download failed at %v: %v, %v", top, next, more)
	}
}

// A search with many downloads begins at a rate at which their queue drains in
// time, at most a fifth below the line. One with many uploads begins higher
// than with few.
func TestTopOf(t *testing.T) {
	for _, c := range []struct {
		down, up int
		queue    time.Duration
		want     shares
	}{
		{4, 4, time.Second, shares{0.98, 0.99}},
		{31, 31, time.Second, shares{0.98, 0.99}},
		{32, 4, 475 * time.Millisecond, shares{0.9, 0.99}},
		{100, 100, 20 * time.Millisecond, shares{0.98, 0.998}},
		{100, 100, 3 * time.Second, shares{0.8, 0.998}},
		{4, 100, time.Second, shares{0.98, 0.998}},
	} {
		if got := topOf(c.down, c.up, c.queue); got != c.want {
			t.Errorf("%d downloads, %d uploads, %v: %v, want %v", c.down, c.up, c.queue, got, c.want)
		}
	}
	if p := paceOf(100, 4).waiting(draining(500*time.Millisecond, 0.9)); p.head != head+5*time.Second || p.load != manyTime+5*time.Second {
		t.Errorf("%+v", p)
	}
	if p := paceOf(100, 4).waiting(draining(time.Minute, 0.8)); p.head != head+mostDrain {
		t.Errorf("a minute of queue is waited for for %v", p.head)
	}
	// A hundred uploads begin with a thousand packets, which take 12.1 ms each
	// here.
	if w := settling(100, 1e6); w.Round(10*time.Millisecond) != 12110*time.Millisecond || settling(31, 1e6) != 0 || paceOf(4, 100) != paceOf(100, 4) {
		t.Errorf("a hundred uploads settle in %v, a few in %v", w, settling(31, 1e6))
	}
}
