package dummynet

import (
	"math"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/reason"
)

// Language returns what dummynet's pipes support, under the given platform
// name.
func Language(platform string) *plan.Language {
	return &plan.Language{
		Platform: platform, WAN: "igb0", LAN: "igb1",
		AQMs: []plan.AQM{plan.FQCoDel, plan.FIFO}, Sides: []plan.Side{plan.SideIn},
		// UINT32_MAX is read as 0, which means unlimited.
		Step: 1, MaxRate: math.MaxUint32 - 1,
		Limit: 20480, FIFOLimit: 100, FIFOLeast: 2, Flows: 65535, Quantum: 9000,
		Target: 5 * time.Second, Interval: 100 * time.Second,
		NoOverhead:     reason.Of(reason.DummynetNoOverhead),
		Rates:          reason.Of(reason.DummynetRates),
		RatesWhy:       reason.Of(reason.DummynetRatesWhy),
		Control:        reason.Of(reason.DummynetControl),
		Weights:        true,
		ClassesAsked:   plan.FQCoDel,
		ClassesUnasked: reason.Of(reason.DummynetClassesUnasked),
		ClassesLost:    reason.Of(reason.DummynetClassesLost),
		Rules: plan.RuleLimits{
			Domains:         reason.Of(reason.DummynetNoDomains),
			HomeNAT:         reason.Of(reason.DummynetNoHome),
			AcksFirst:       true,
			TranslatedPorts: true,
		},
		Article: plan.Article{Down: 0.97, Up: 0.97, AQM: plan.FQCoDel},
	}
}
