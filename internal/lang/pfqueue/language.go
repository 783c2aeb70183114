package pfqueue

import (
	"unbloat/internal/plan"
	"unbloat/unit"
)

// Language returns what pf's queues and rules can be told, for the platform of
// that name.
func Language(platform string) *plan.Language {
	return &plan.Language{
		Platform: platform, WAN: "em0", LAN: "em1",
		AQMs: []plan.AQM{plan.FQCoDel, plan.FIFO}, Sides: []plan.Side{plan.SideLAN},
		Step: 1, MaxRate: 100 * unit.GbitPerSecond,
		Limit: MaxQlimit, FIFOLimit: MaxQlimit, Flows: MaxFlows, Quantum: MaxQuantum,
		NoCoDel:        "pf.conf(5) has no word for CoDel's target and interval; they are 5 ms and 100 ms",
		NoECN:          "pf's flow queues drop and never mark",
		NoOverhead:     "pf counts Ethernet frames and cannot be told of more",
		ClassesAsked:   plan.FQCoDel,
		ClassesUnasked: "pf does not know how a flow behaves; a rule that names traffic (--rule, --classes) has a queue made for it",
		ClassesLost:    "pf does not know how a flow behaves: without a rule that names it a flow is normal, and only DNS, ping and acknowledgements without data go first",
		Rules: plan.RuleLimits{
			Domains:       "knows addresses, not names; its unbound was not built to fill pf's tables (--enable-ipset)",
			Unmarked:      "takes a mark of 0 for any",
			AcksFirst:     true,
			SecondQueue:   true,
			ByConnection:  true,
			OpenedOutside: true,
		},
		// The article has 110 of 120 Mbit/s, and 11 of 12.
		Article: plan.Article{Down: 0.92, Up: 0.92, AQM: plan.FQCoDel, Rounds: true},
	}
}
