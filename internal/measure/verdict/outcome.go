package verdict

import "math"

// A UseScore is how well a line, while it is loaded, does for one use: its Quality of Outcome
// (draft-ietf-ippm-qoo-10).
type UseScore struct {
	Use   string  `json:"use"`   // call, game, stream or browsing
	Score float64 `json:"score"` // 0: unacceptable … 100: as good as can be noticed
	Limit string  `json:"limit"` // what holds it below 100: latency, loss or throughput; "": nothing
}

// A need is what a use needs of the network: §3.2, round trips in ms.
type need struct {
	use       string
	latency   []latencyNeed
	loss      [2]float64 // shares: optimal up to the first, unacceptable from the second
	down, up  float64    // bit/s at least
	reasoning string
}

// A latencyNeed is one percentile's.
type latencyNeed struct {
	of            func(Quantiles) float64
	optimal, poor float64 // ROP and CPUP
}

func p95(q Quantiles) float64 { return q.P95 }
func p99(q Quantiles) float64 { return q.P99 }

// needs are the requirements of uses. The draft gives the form and no figures (§3.2.2), so
// these are ours, each with where it is from.
func needs() []need {
	return []need{
		{"call", []latencyNeed{{p95, 300, 800}, {p99, 400, 1000}}, [2]float64{0.01, 0.05}, 100e3, 100e3, "ITU-T G.114: 150 ms one way go unnoticed, 400 ms are too much; a codec conceals one packet of a hundred, not one of twenty"},
		{"game", []latencyNeed{{p95, 50, 150}, {p99, 80, 250}}, [2]float64{0.005, 0.03}, 200e3, 200e3, "three pictures of 60 a second go unnoticed, nine decide who is hit"},
		{"stream", []latencyNeed{{p95, 500, 3000}}, [2]float64{0.02, 0.1}, 5e6, 0, "HD takes 5 Mbit/s and has seconds in its buffer"},
		{"browsing", []latencyNeed{{p95, 100, 1000}}, [2]float64{0.01, 0.1}, 1e6, 100e3, "a page takes ten round trips: one second is prompt, ten are given up"},
	}
}

// Uses are what an outcome is told for, in the order in which it is shown.
func Uses() (out []string) {
	for _, n := range needs() {
		out = append(out, n.use)
	}
	return out
}

// interpolated is the line between what is optimal and what is unacceptable (§3.3.2, §3.3.3), 0–1.
func interpolated(measured, optimal, poor float64) float64 {
	return min(max(1-(measured-optimal)/(poor-optimal), 0), 1)
}

// outcome is min(latency, loss, throughput) (§3.3.1).
func (n need) outcome(l Latency, down, up float64) UseScore {
	o := UseScore{Use: n.use, Score: 1}
	least := func(score float64, limit string) {
		if score < o.Score {
			o.Score, o.Limit = score, limit
		}
	}
	for _, x := range n.latency {
		least(interpolated(x.of(l.RTTMs), x.optimal, x.poor), "latency")
	}
	least(interpolated(l.Loss, n.loss[0], n.loss[1]), "loss")
	if down < n.down || up < n.up { // §3.3.4: enough, or nothing
		least(0, "throughput")
	}
	o.Score = math.Round(100 * o.Score)
	return o
}

// outcomes are those of the worst loaded phase for each use; nil if nothing is known of the
// rates of both directions.
func outcomes(t *Test) []UseScore {
	if t.Download == nil || t.Upload == nil {
		return nil
	}
	var out []UseScore
	for _, n := range needs() {
		worst := UseScore{Use: n.use, Score: 100}
		for _, p := range t.Phases() {
			if p.Name == PhaseIdle || p.Latency.Received == 0 {
				continue
			}
			if o := n.outcome(p.Latency, t.Download.GoodputDownBps, t.Upload.GoodputUpBps); o.Score < worst.Score {
				worst = o
			}
		}
		out = append(out, worst)
	}
	return out
}
