package tune

import "unbloat/unit"

// A Doing says what a tuning is doing.
type Doing string

// What a tuning does, in this order; it may try again after checking.
const (
	AsItIs   Doing = "as_it_is" // it measures the line as it is
	Trying   Doing = "trying"
	Checking Doing = "checking" // in every phase
	Deciding Doing = "deciding"
)

// A Stage tells how far a tuning has come.
type Stage struct {
	Doing    Doing             `json:"doing"`
	Rates                      // tried or checked; zero: the line as it is
	Goal     unit.Milliseconds `json:"goal_ms"`       // 0: not known yet
	AsFound  float64           `json:"as_found_ms"`   // p95 increase of the line as it is, in ms; 0: not known yet
	LineDown unit.Rate         `json:"line_down_bps"` // what the line carries; 0: not known yet
	LineUp   unit.Rate         `json:"line_up_bps"`
	Trials   []Trial           `json:"trials"`        // so far; never nil
	DownFrom unit.Rate         `json:"down_from_bps"` // the search's present bounds; 0: not begun
	DownTo   unit.Rate         `json:"down_to_bps"`
	UpFrom   unit.Rate         `json:"up_from_bps"`
	UpTo     unit.Rate         `json:"up_to_bps"`
}

// watch reports what the tuning does now.
func (t *tuning) watch(d Doing, rates Rates) {
	s := Stage{Doing: d, Rates: rates, Goal: unit.Milliseconds(t.Goal), LineDown: t.result.LineDownBps, LineUp: t.result.LineUpBps, Trials: append([]Trial{}, t.result.Trials...)}
	if t.result.Before != nil {
		s.AsFound = worst(t.result.Before)
	}
	if t.search != nil {
		down, up := t.search.Bounds()
		s.DownFrom, s.DownTo, s.UpFrom, s.UpTo = down.From, down.To, up.From, up.To
	}
	t.Watch(s)
}
