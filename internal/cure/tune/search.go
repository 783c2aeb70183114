package tune

import (
	"slices"
	"time"

	"unbloat/unit"
)

// Rates are the shaper's rates, both directions.
type Rates struct {
	Down unit.Rate `json:"down_bps"`
	Up   unit.Rate `json:"up_bps"`
}

// shares are fractions of the line's rates.
type shares struct{ down, up float64 }

// Where the search starts with a few connections. We control the upload's queue. The
// download's queue is at the provider first, and needs headroom to drain.
const (
	topDown = 0.98
	topUp   = 0.99
)

// steps are the rates that the search tries, as fractions of the top. The last one
// is the lowest that leaves a few connections leastShare of their goodput.
var steps = [...]float64{
	1, 0.99, 0.98, 0.97, 0.96, 0.945, 0.93, 0.915, 0.90, 0.88, 0.86, 0.84, 0.82,
	0.80, 0.77, 0.74,
}

// near is the difference in delay that counts as equal, as a fraction of the goal.
// Between equal delays the higher rates win.
const near = 0.5

// An Observation is what a trial of some rates showed.
type Observation struct {
	Increase time.Duration // p95 of the round trip, over idle
	Down, Up time.Duration // its share each way, p95 over idle
}

// A Search looks for the highest rates, in both directions at once, whose p95
// increase stays within the goal. It goes down the steps, faster while the delay is
// far above the goal, and then halves the gap. It lowers the direction that causes
// the delay. It is pure: the caller measures.
type Search struct {
	line       Rates
	top        shares // of the line, where it begins
	goal       time.Duration
	down, up   axis
	best       Rates
	passed     bool
	failed     []trial       // trials before the first that passed, in order
	downFloor  time.Duration // a full packet's time: delay that no shaper can avoid
	upFloor    time.Duration
	trialsLeft int
}

// A trial is what some rates showed.
type trial struct {
	rates    Rates
	increase time.Duration
}

// An axis is the search in one direction, by index into steps.
type axis struct {
	at    int
	fail  int // the lowest rate known to be too high; -1: none
	pass  int // the highest rate known to be good; len(steps): none
	jump  int
	fixed bool // nothing left to find out
}

// fullFrame is an Ethernet frame of 1500 bytes of IP, without its check.
const fullFrame = 1514

// NewSearch starts a search on a line with the given rates. It starts at topDown and
// topUp, and never goes above.
func NewSearch(line Rates, goal time.Duration, trials int) *Search {
	a := axis{fail: -1, pass: len(steps), jump: 1}
	return &Search{
		line: line, top: shares{topDown, topUp}, goal: goal, down: a, up: a, trialsLeft: trials,
		downFloor: line.Down.Time(fullFrame), upFloor: line.Up.Time(fullFrame),
	}
}

// Next returns the rates to try, or false if the search is finished.
func (s *Search) Next() (Rates, bool) {
	if s.trialsLeft <= 0 || s.down.fixed && s.up.fixed {
		return Rates{}, false
	}
	return s.rates(), true
}

func (s *Search) rates() Rates {
	return Rates{s.line.Down.Scale(s.top.down * steps[s.down.at]), s.line.Up.Scale(s.top.up * steps[s.up.at])}
}

// Observe records the result of the rates of the last Next.
func (s *Search) Observe(o Observation) {
	s.trialsLeft--
	if o.Increase <= s.goal {
		s.best, s.passed = s.rates(), true
		s.down.good()
		s.up.good()
		return
	}
	if !s.passed {
		s.failed = append(s.failed, trial{s.rates(), o.Increase})
		s.best = s.nearest()
	}
	far := o.Increase > 3*s.goal
	down, up := s.blame(o)
	if down {
		s.down.bad(far)
	}
	if up {
		s.up.bad(far)
	}
}

// nearest returns the highest rates whose delay was about as low as the lowest.
func (s *Search) nearest() Rates {
	least := s.failed[0].increase
	for _, t := range s.failed {
		least = min(least, t.increase)
	}
	enough := least + time.Duration(near*float64(s.goal))
	return s.failed[slices.IndexFunc(s.failed, func(t trial) bool { return t.increase <= enough })].rates
}

// Exhausted reports whether rates below the best were tried without a lower delay.
func (s *Search) Exhausted() bool {
	return !s.passed && len(s.failed) > 0 && s.failed[len(s.failed)-1].rates != s.best
}

// blame returns which directions cause the delay: those with more than half the goal,
// not counting one packet's time, or else the one with the larger delay.
func (s *Search) blame(o Observation) (down, up bool) {
	d, u := o.Down-s.downFloor, o.Up-s.upFloor
	down, up = d > s.goal/2, u > s.goal/2
	if !down && !up {
		down, up = o.Down >= o.Up, o.Down < o.Up
	}
	// If a direction cannot go lower, the other has to.
	if down && s.down.last() {
		down, up = false, !s.up.last()
		s.down.fixed = true
	}
	if up && s.up.last() {
		up, down = false, !s.down.last()
		s.up.fixed = true
	}
	return down, up
}

// Best returns the highest rates that held the goal; ok is false if none did,
// and the rates are then the highest that came about as near as any.
func (s *Search) Best() (r Rates, ok bool) { return s.best, s.passed }

// Bounds are the rates of one direction between which the search looks. From is known
// to hold the goal, or is the lowest rate that it would try. To is known to be too
// high, or is where the search started.
type Bounds struct{ From, To unit.Rate }

// Bounds returns the present search interval of both directions.
func (s *Search) Bounds() (down, up Bounds) {
	of := func(a axis, line unit.Rate, top float64) Bounds {
		from, to := min(a.pass, len(steps)-1), max(a.fail, 0)
		return Bounds{line.Scale(top * steps[from]), line.Scale(top * steps[min(to, from)])}
	}
	return of(s.down, s.line.Down, s.top.down), of(s.up, s.line.Up, s.top.up)
}

// Lower continues the search below its best rates, after a longer measurement showed
// that they do not hold the goal.
func (s *Search) Lower(o Observation, trials int) {
	s.trialsLeft = trials
	s.passed, s.failed = false, nil
	down, up := s.blame(o)
	for _, a := range []struct {
		*axis
		blamed bool
	}{{&s.down, down}, {&s.up, up}} {
		a.fixed, a.jump, a.pass = false, 1, len(steps)
		if a.blamed {
			a.bad(false)
		}
	}
}

func (a *axis) last() bool { return a.at >= len(steps)-1 }

// good notes that the current rate holds, and halves the gap above it.
func (a *axis) good() {
	a.pass, a.jump = a.at, 1
	if a.pass-a.fail <= 1 {
		a.fixed = true
		return
	}
	a.at = a.fail + (a.pass-a.fail)/2
}

// bad notes that the current rate is too high, and goes down.
func (a *axis) bad(far bool) {
	a.fail = a.at
	if a.pass < len(steps) { // between a failure and a success
		if a.pass-a.fail <= 1 {
			a.at, a.fixed = a.pass, true
			return
		}
		a.at = a.fail + (a.pass-a.fail)/2
		return
	}
	if far {
		a.jump = max(a.jump, 2)
	}
	a.at = min(a.at+a.jump, len(steps)-1)
	a.jump *= 2
}
