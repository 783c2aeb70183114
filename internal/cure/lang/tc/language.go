package tc

import (
	"math"

	"unbloat/internal/cure/plan"
)

// Language returns what Linux's shapers support, under the given platform name.
// A platform that is built on Linux removes what its configuration files cannot
// express.
func Language(platform string) *plan.Language {
	return &plan.Language{
		Platform: platform, WAN: "eth0", LAN: "eth1",
		AQMs: []plan.AQM{plan.CAKE, plan.FQCoDel, plan.FIFO}, Modules: true,
		Sides: []plan.Side{plan.SideIFB, plan.SideLAN},
		Step:  1, MaxRate: plan.MaxRate,
		Limit: math.MaxInt32, FIFOLimit: math.MaxInt32, Flows: 65536, Quantum: 1 << 20,
		HTB: true, Classes: true, BPF: true, FlowTable: true, HardLimits: true,
		// The article shapes 15 Mbit/s to 13, and 1 Mbit/s to 0.95.
		Article: plan.Article{Down: 0.85, Up: 0.95, AQM: plan.FQCoDel, Rounds: true},
	}
}
