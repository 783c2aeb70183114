package tune

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/unit"
)

// A model is a line whose delay each way is small up to a share of its rate, and
// grows above it.
type model struct {
	line       Rates
	kneeDown   float64 // share of the line from which its queue stands
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

func (m *model) search(trials int) *Search {
	s := NewSearch(m.line, 5*time.Millisecond, trials)
	for r, more := s.Next(); more; r, more = s.Next() {
		s.Observe(m.try(r))
	}
	return s
}

// Whatever the line, the search makes no more trials than it may, stays below
// the line's rate and above half of it, and calls nothing good that it did not
// see hold the goal.
func TestSearchLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		trials := rapid.IntRange(1, 12).Draw(t, "trials")
		s := m.search(trials)
		if m.trialsMade > trials {
			t.Fatalf("%d trials, %d allowed", m.trialsMade, trials)
		}
		best, ok := s.Best()
		if best.Down > m.line.Down.Scale(topDown) || best.Up > m.line.Up.Scale(topUp) ||
			best.Down < m.line.Down.Scale(0.48) || best.Up < m.line.Up.Scale(0.48) {
			t.Fatalf("best %v of a line of %v", best, m.line)
		}
		if held := m.try(best).Increase <= 5*time.Millisecond; ok && !held {
			t.Fatalf("%v is called good and does not hold the goal", best)
		}
	})
}

// With enough trials the rate that gives way is found to one step.
func TestSearchFindsTheStep(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		m.floor, m.kneeUp = 0, 1.1 // only the download has to give way
		s := m.search(20)
		best, ok := s.Best()
		if !ok {
			t.Fatal("nothing holds the goal on a line where half its rate does")
		}
		if best.Up != m.line.Up.Scale(topUp) {
			t.Fatalf("the upload gave way to %v, though it held no delay", best.Up)
		}
		// One step more must be too much, unless there is none.
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

// A line that holds the goal at the top needs one trial.
func TestSearchAtTheTop(t *testing.T) {
	m := &model{line: Rates{30e6, 5e6}, kneeDown: 1.1, kneeUp: 1.1, slope: time.Millisecond}
	s := m.search(5)
	if best, ok := s.Best(); !ok || m.trialsMade != 1 || best != (Rates{29400000, 4950000}) {
		t.Errorf("best %v (%v) after %d trials", best, ok, m.trialsMade)
	}
}

// After a longer look that failed, the search goes on below.
func TestSearchLower(t *testing.T) {
	m := &model{line: Rates{30e6, 5e6}, kneeDown: 1.1, kneeUp: 1.1, slope: time.Millisecond}
	s := m.search(5)
	top, _ := s.Best()
	s.Lower(Observation{Increase: 8 * time.Millisecond, Down: 7 * time.Millisecond, Up: time.Millisecond}, 1)
	next, more := s.Next()
	if !more || next.Down >= top.Down || next.Up != top.Up {
		t.Errorf("after the download failed at %v: %v, %v", top, next, more)
	}
}

// A search that is told where to start begins at the step below, stops there if
// it holds, and goes down if it does not; never above.
func TestSearchStartDown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawModel(t)
		share := rapid.Float64Range(0.3, 1).Draw(t, "share")
		s := NewSearch(m.line, 5*time.Millisecond, 12)
		s.StartDown(share)
		lowest := m.line.Down.Scale(topDown * steps[len(steps)-1])
		first, held := s.rates(), false
		for r, more := s.Next(); more; r, more = s.Next() {
			if r.Down > first.Down || r.Down > m.line.Down.Scale(share) && r.Down != lowest {
				t.Fatalf("tries %v, after %v and below a share of %.3f", r, first, share)
			}
			o := m.try(r)
			held = held || o.Increase <= 5*time.Millisecond && r == first
			s.Observe(o)
		}
		if best, ok := s.Best(); held && (!ok || best.Down != first.Down) {
			t.Fatalf("%v held, and the best is %v", first, best)
		}
	})
}
