package household

import (
	"time"

	"unbloat/internal/verdict"
	"unbloat/unit"
)

// shareWindow is how long a flow may have more than its share before others feel it.
const shareWindow = 3 * time.Second

// A SharesResult says how flows of one load shared what they had.
type SharesResult struct {
	LeastBps float64 `json:"least_bps"` // of the slowest flow, in the counted window
	MostBps  float64 `json:"most_bps"`  // of the fastest
	PeakBps  float64 `json:"peak_bps"`  // the most that one flow had over three seconds
}

// Shares compares flows in [from, to).
func Shares(flows []verdict.Series, from, to unit.Instant) *SharesResult {
	r := &SharesResult{}
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
	}
	return r
}
