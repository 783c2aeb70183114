package dummynet

import (
	"math"
	"time"

	"unbloat/internal/plan"
)

// Language returns what dummynet's pipes can be told, for the platform of that
// name.
func Language(platform string) *plan.Language {
	const lost = "dummynet's fq_codel takes all queues of a pipe for one and looks at no weight, so rules would sort packets for nothing; it lets flows that send little go first by itself"
	return &plan.Language{
		Platform: platform, WAN: "igb0", LAN: "igb1",
		AQMs: []plan.AQM{plan.FQCoDel, plan.FIFO}, Sides: []plan.Side{plan.SideIn},
		// UINT32_MAX itself comes out as 0, which is unlimited.
		Step: 1, MaxRate: math.MaxUint32 - 1,
		Limit: 20480, FIFOLimit: 100, FIFOLeast: 2, Flows: 65535, Quantum: 9000,
		Target: 5 * time.Second, Interval: 100 * time.Second,
		NoOverhead:     "dummynet counts IP packets alone and cannot be told of more",
		Rates:          "whole numbers, at most 4.29 Gbit/s",
		RatesWhy:       "dnctl(8) reads 9.5Mbit/s as 9 bit/s, so a fraction is written in the next smaller unit; the kernel counts bit/s in 32 bits",
		Weights:        true,
		ClassesAsked:   plan.FQCoDel,
		ClassesUnasked: lost + "; a rule that names traffic (--rule, --classes) has WF2Q+ in its place, with a queue of its own weight for each class",
		ClassesLost:    Lost("only DNS, ping and acknowledgements without data go first"),
		Rules: plan.RuleLimits{
			Domains:         "knows addresses, not names; unbound can fill tables of pf where it was built for that (--enable-ipset), none of ipfw's",
			HomeNAT:         "sorts packets on the WAN, where NAT has hidden the home's machines",
			AcksFirst:       true,
			TranslatedPorts: true,
		},
		Article: plan.Article{Down: 0.97, Up: 0.97, AQM: plan.FQCoDel},
	}
}

// Lost says what dummynet does not know of classes; first is what goes first
// without a rule.
func Lost(first string) string {
	return "dummynet does not know how a flow behaves: without a rule that names it a flow is normal, and " + first + "; WF2Q+ has one CoDel queue for a class, so its flows and machines wait for each other"
}
