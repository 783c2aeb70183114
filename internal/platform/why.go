package platform

import (
	"context"

	"unbloat/internal/lang/nft"
	"unbloat/internal/plan"
)

// An Answer is the class of a flow by a router and its plan.
type Answer struct {
	Flow     nft.Flow // as the router's rules see it: the home's end first, before NAT
	Note     string   // how Flow differs from the one asked for; "" if it doesn't
	Verdicts []nft.Verdict
}

// WhyClass returns for both directions the class of a packet of a flow and the
// plan's rule that decides it. If the router keeps no state of flows, only the
// plan's rules are used.
func (d *Driver) WhyClass(ctx context.Context, r Runner, p plan.Plan, f nft.Flow) Answer {
	if d.Classes != nil {
		return d.Classes.Why(ctx, r, p, f)
	}
	a := Answer{Flow: f}
	for _, way := range []plan.Direction{plan.DirectionUp, plan.DirectionDown} {
		a.Verdicts = append(a.Verdicts, nft.Decide(p, way, f, nft.Connection{}, func(string, string) bool { return false }))
	}
	return a
}
