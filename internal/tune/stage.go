package tune

import "time"

// A Doing says what a tuning is doing.
type Doing string

// What a tuning does, in this order; it may try again after checking.
const (
	AsItIs   Doing = "measuring the line as it is"
	Trying   Doing = "trying"
	Checking Doing = "checking in every phase"
	Deciding Doing = "deciding"
)

// A Stage tells how far a tuning has come.
type Stage struct {
	Doing    Doing
	Rates    Rates         // tried or checked; zero: the line as it is
	Goal     time.Duration // 0: not known yet
	AsFound  float64       // p95 increase of the line as it is, in ms; 0: not known yet
	Line     Rates         // what it carries; zero: not known yet
	Trials   []Trial       // so far
	Down, Up Bounds        // the search's present bounds; zero: not started
}

// watch reports what the tuning does now.
func (t *tuning) watch(d Doing, rates Rates) {
	s := Stage{Doing: d, Rates: rates, Goal: t.Goal, Line: Rates{t.result.LineDownBps, t.result.LineUpBps}, Trials: t.result.Trials}
	if t.result.Before != nil {
		s.AsFound = worst(t.result.Before)
	}
	if t.search != nil {
		s.Down, s.Up = t.search.Bounds()
	}
	t.Watch(s)
}
