package tune

import (
	"strings"

	"unbloat/internal/measure/verdict"
)

// worst returns the largest p95 increase of a test's loaded phases, in ms.
func worst(t *verdict.Test) float64 { return worstPhase(t).Latency.IncreaseMs.P95 }

// worstPhase returns the loaded phase whose p95 increase is the largest.
func worstPhase(t *verdict.Test) *verdict.Phase { return named(t, worstName(t)) }

func worstName(t *verdict.Test) string {
	var name string
	var most float64
	for _, p := range t.Phases() {
		if p.Name != verdict.PhaseIdle && (name == "" || p.Latency.IncreaseMs.P95 > most) {
			name, most = p.Name, p.Latency.IncreaseMs.P95
		}
	}
	return name
}

// named returns a phase by its name; an empty one if it was not measured.
func named(t *verdict.Test, name string) *verdict.Phase {
	for _, p := range t.Phases() {
		if p.Name == name {
			return p.Phase
		}
	}
	return &verdict.Phase{}
}

func ratio(a, b float64) float64 {
	if b <= 0 {
		return 1
	}
	return a / b
}

func join(reasons []string) string {
	if len(reasons) == 0 {
		return "no reason given"
	}
	return strings.Join(reasons, "; ")
}
