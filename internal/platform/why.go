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
	byBehaviour := p.ByBehaviour()
	if byBehaviour { // nothing here keeps state as those rules do
		c := *p.Classes
		c.Behaviour = plan.Behaviour{}
		p.Classes = &c
	}
	for _, way := range []plan.Direction{plan.DirectionUp, plan.DirectionDown} {
		v := nft.Decide(p, way, f, nft.Connection{}, func(string, string) bool { return false })
		if byBehaviour && !nft.Named(p, way, f) {
			v = d.sorted(ctx, r, f, way)
		}
		a.Verdicts = append(a.Verdicts, v)
	}
	return a
}

// sorted returns the class that a flow was given beside the packets.
func (d *Driver) sorted(ctx context.Context, r Runner, f nft.Flow, way plan.Direction) nft.Verdict {
	v := nft.Verdict{Direction: way, Class: plan.Normal, Rule: "the daemon gives flows their classes by what they carry; which one this has can't be read from here"}
	if d.Sorted == nil {
		return v
	}
	class, ok, err := d.Sorted(ctx, r, f, way)
	switch {
	case err != nil:
		v.Rule += ": " + err.Error()
	case ok:
		v.Class, v.Rule = class, "the daemon put it there by what it has carried"
	default:
		v.Rule = "the daemon has found nothing that makes it more, or less, than the others; or it does not run"
	}
	return v
}
