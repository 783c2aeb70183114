package tc

import (
	"math"

	"unbloat/internal/plan"
)

// Language returns what Linux's shapers can be told, for the platform of that
// name. A platform built on Linux changes what its configuration files cannot say.
func Language(platform string) *plan.Language {
	return &plan.Language{
		Platform: platform, WAN: "eth0", LAN: "eth1",
		AQMs: []plan.AQM{plan.CAKE, plan.FQCoDel, plan.FIFO}, Modules: true,
		Sides: []plan.Side{plan.SideIFB, plan.SideLAN},
		Step:  1, MaxRate: plan.MaxRate,
		Limit: math.MaxInt32, FIFOLimit: math.MaxInt32, Flows: 65536, Quantum: 1 << 20,
		HTB: true, Classes: true,
		// The article has 13 of 15 Mbit/s, and 0.95 of 1.
		Article: plan.Article{Down: 0.85, Up: 0.95, AQM: plan.FQCoDel, Rounds: true},
	}
}
