package verdict

import (
	"cmp"
	"slices"

	"unbloat/reason"
	"unbloat/unit"
)

func rateText(bps float64) string { return unit.Rate(bps).Short() }

// A Run is one of several runs of which the median is reported.
type Run struct {
	Time       string  `json:"time"`
	Valid      bool    `json:"valid"`
	Grade      string  `json:"grade"`
	IncreaseMs float64 `json:"increase_ms"` // p95, of the worst phase
	DownBps    float64 `json:"goodput_down_bps"`
	UpBps      float64 `json:"goodput_up_bps"`
}

// WorstIncrease returns the largest p95 increase of the loaded phases, in ms.
func (t *Test) WorstIncrease() float64 {
	worst := 0.0
	for _, p := range t.Phases() {
		if p.Name != PhaseIdle {
			worst = max(worst, p.Latency.IncreaseMs.P95)
		}
	}
	return worst
}

// MedianRun returns the run in the middle of several by their worst increase,
// the worse of two, with all of them listed. Only valid runs count; when less
// than half of them are, the result is not valid. runs must not be empty.
func MedianRun(runs []*Test) *Test {
	var valid []*Test
	var list []Run
	for _, t := range runs {
		r := Run{Time: t.Time, Valid: t.Valid, Grade: t.Grade, IncreaseMs: t.WorstIncrease()}
		if t.Download != nil {
			r.DownBps = t.Download.GoodputDownBps
		}
		if t.Upload != nil {
			r.UpBps = t.Upload.GoodputUpBps
		}
		list = append(list, r)
		if t.Valid {
			valid = append(valid, t)
		}
	}
	if len(valid)*2 < len(runs) || len(valid) == 0 {
		worst := *runs[slices.IndexFunc(runs, func(t *Test) bool { return !t.Valid })]
		worst.Runs = list
		worst.InvalidReasons = nil // the run keeps its own
		worst.Spoil(reason.Terminal, reason.Of(reason.TooFewRuns, "valid", len(valid), "runs", len(runs)))
		return &worst
	}
	slices.SortStableFunc(valid, func(a, b *Test) int { return cmp.Compare(a.WorstIncrease(), b.WorstIncrease()) })
	median := *valid[len(valid)/2]
	median.Runs = list
	return &median
}
