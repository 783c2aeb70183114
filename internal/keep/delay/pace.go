package delay

import (
	"math"
	"time"
)

// What probes may cost, in bytes of Ethernet frames of both directions together.
const (
	// BudgetIdle is for a day without load.
	BudgetIdle = 2_200_000
	// BudgetLoaded is for a day with LoadedADay of load.
	BudgetLoaded = 15_000_000
	// LoadedADay is the load that BudgetLoaded is for.
	LoadedADay = 4 * time.Hour
)

// Pace returns how far apart probes must be to stay within the budget, with load
// and without, if targets are asked in turn.
func Pace(of []Target) (busy, idle time.Duration) {
	if len(of) == 0 {
		return time.Second, time.Minute
	}
	var cost float64 // of a question and its answer
	for _, t := range of {
		cost += float64(exchange(t)) / float64(len(of))
	}
	apart := func(budget float64, d time.Duration) time.Duration {
		const grain = time.Millisecond
		return time.Duration(math.Ceil(float64(d)*cost/budget/float64(grain))) * grain
	}
	idle = apart(BudgetIdle, day)
	rest := BudgetLoaded - cost*float64((day-LoadedADay)/idle)
	return apart(rest, LoadedADay), idle
}

// exchange is what a question and its answer occupy at most.
func exchange(t Target) uint64 {
	six := !t.Addr.Unmap().Is4()
	ip := ipHeader(six)
	switch t.Kind {
	case Native:
		return 2 * frame(ip+udpHeader+32)
	case FirstHop: // the answer quotes the question whole
		return frame(ip+echoSize) + frame(ip+icmpHeader+ip+echoSize)
	}
	return 2 * frame(ip+stampSize)
}
