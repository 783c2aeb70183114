package household

import (
	"time"

	"unbloat/internal/measure/verdict"
	"unbloat/unit"
)

// shareWindow is how long a flow may have more than its share before others feel it.
const shareWindow = 3 * time.Second

// A SharesResult says how flows of one load shared what they had.
type SharesResult struct {
	LeastBps float64 `json:"least_bps"` // of the slowest flow, in the counted window
	MostBps  float64 `json:"most_bps"`  // of the fastest
	PeakBps  float64 `json:"peak_bps"`  // the most that one flow had over three seconds
	// OverS is the longest time for which one flow had more than 1.1 times what they
	// have on average, looked at each half second.
	OverS float64 `json:"over_s"`
}

// A flow is over its share when it has so many times the mean of all, in a step.
const (
	overShare = 1.1
	overStep  = time.Second / 2
)

// Shares compares flows in [from, to).
func Shares(flows []verdict.Series, from, to unit.Instant) *SharesResult {
	r := &SharesResult{}
	fair := verdict.Goodput(flows, from, to) / float64(max(len(flows), 1))
	for i, f := range flows {
		one := []verdict.Series{f}
		rate := verdict.Goodput(one, from, to)
		if i == 0 || rate < r.LeastBps {
			r.LeastBps = rate
		}
		r.MostBps = max(r.MostBps, rate)
		for at := from; !to.Before(at.Add(shareWindow)); at = at.Add(shareWindow / 6) {
			r.PeakBps = max(r.PeakBps, verdict.Goodput(one, at, at.Add(shareWindow)))
		}
		over := 0.0
		for at := from; !to.Before(at.Add(overStep)); at = at.Add(overStep) {
			if over += overStep.Seconds(); verdict.Goodput(one, at, at.Add(overStep)) <= overShare*fair {
				over = 0
			}
			r.OverS = max(r.OverS, over)
		}
	}
	return r
}
