package platform

import (
	"context"

	"unbloat/internal/lang/nft"
	"unbloat/internal/plan"
)

// An Answer is what a router and its plan say of the class of a flow.
type Answer struct {
	Flow     nft.Flow // as the router's rules know it: the home's end first, as it is before NAT
	Note     string   // in how far that isn't what was asked; "" if it is
	Verdicts []nft.Verdict
}

// WhyClass says for both directions which class a packet of a flow has, and
// which rule of the plan decides it. Where the router knows nothing of flows,
// the plan's rules are all there is to it.
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
