package pf

import (
	"unbloat/internal/cure/plan"
	"unbloat/reason"
	"unbloat/unit"
)

// Language returns what pf's queues and rules support, under the given platform
// name.
func Language(platform string) *plan.Language {
	return &plan.Language{
		Platform: platform, WAN: "em0", LAN: "em1",
		AQMs: []plan.AQM{plan.FQCoDel, plan.FIFO}, Sides: []plan.Side{plan.SideLAN},
		Step: 1, MaxRate: 100 * unit.GbitPerSecond,
		Limit: MaxQlimit, FIFOLimit: MaxQlimit, Flows: MaxFlows, Quantum: MaxQuantum,
		NoCoDel:        reason.Of(reason.PfNoCoDel),
		NoECN:          reason.Of(reason.PfNoECN),
		NoOverhead:     reason.Of(reason.PfNoOverhead),
		ClassesAsked:   plan.FQCoDel,
		ClassesUnasked: reason.Of(reason.PfClassesUnasked),
		ClassesLost:    reason.Of(reason.PfClassesLost),
		Rules: plan.RuleLimits{
			Domains:       reason.Of(reason.PfNoDomains),
			Unmarked:      reason.Of(reason.PfNoUnmarked),
			AcksFirst:     true,
			SecondQueue:   true,
			ByConnection:  true,
			OpenedOutside: true,
		},
		// The article shapes 120 Mbit/s to 110, and 12 Mbit/s to 11.
		Article: plan.Article{Down: 0.92, Up: 0.92, AQM: plan.FQCoDel, Rounds: true},
	}
}
