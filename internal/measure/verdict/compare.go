package verdict

import "fmt"

// A Comparison is two tests of the same line side by side.
type Comparison struct {
	Phases  []PhaseChange `json:"phases"` // those that both tests have, without idle
	Better  bool          `json:"better"` // the worst p95 increase fell, and by more than noise
	Verdict string        `json:"verdict"`
}

// A PhaseChange is what became of one phase.
type PhaseChange struct {
	Name             string  `json:"name"`
	IncreaseBeforeMs float64 `json:"increase_before_ms"` // p95
	IncreaseAfterMs  float64 `json:"increase_after_ms"`
	DownRatio        float64 `json:"goodput_down_ratio"` // after / before; 0 if there was none
	UpRatio          float64 `json:"goodput_up_ratio"`
}

// noiseMs and noiseShare are what two measurements of an unchanged line may
// differ by; one pair proves no less.
const (
	noiseMs    = 2.0
	noiseShare = 0.10
)

// Compare sets two tests side by side. Invalid tests are never better.
func Compare(before, after *Test) Comparison {
	var c Comparison
	worstBefore, worstAfter := 0.0, 0.0
	then := map[string]*Phase{}
	for _, p := range before.Phases() {
		then[p.Name] = p.Phase
	}
	for _, p := range after.Phases() {
		b := then[p.Name]
		if b == nil || p.Name == PhaseIdle {
			continue
		}
		ch := PhaseChange{
			Name:             p.Name,
			IncreaseBeforeMs: b.Latency.IncreaseMs.P95, IncreaseAfterMs: p.Latency.IncreaseMs.P95,
			DownRatio: ratio(p.GoodputDownBps, b.GoodputDownBps), UpRatio: ratio(p.GoodputUpBps, b.GoodputUpBps),
		}
		c.Phases = append(c.Phases, ch)
		worstBefore = max(worstBefore, ch.IncreaseBeforeMs)
		worstAfter = max(worstAfter, ch.IncreaseAfterMs)
	}
	switch {
	case !before.Valid || !after.Valid:
		c.Verdict = "Nothing can be said: one of the two measurements is not valid."
	case len(c.Phases) == 0:
		c.Verdict = "Nothing can be said: the two tests have no loaded phase in common."
	case worstBefore-worstAfter > max(noiseMs, noiseShare*worstBefore):
		c.Better = true
		c.Verdict = fmt.Sprintf("Better: under load the round trip rises by %s, no longer by %s.", ms(worstAfter), ms(worstBefore))
	case worstAfter-worstBefore > max(noiseMs, noiseShare*worstBefore):
		c.Verdict = fmt.Sprintf("Worse: under load the round trip rises by %s, before by %s.", ms(worstAfter), ms(worstBefore))
	default:
		c.Verdict = fmt.Sprintf("No difference beyond noise: under load the round trip rises by %s, before by %s.", ms(worstAfter), ms(worstBefore))
	}
	return c
}

func ratio(after, before float64) float64 {
	if before <= 0 {
		return 0
	}
	return milli(after / before)
}
