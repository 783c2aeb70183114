package nft

import (
	"unbloat/internal/classify"
	"unbloat/internal/plan"
)

// A Decider evaluates a plan's rules for many flows. It reads the plan once.
type Decider struct {
	p     plan.Plan
	table *classify.Table
}

// NewDecider returns one for a plan.
func NewDecider(p plan.Plan) *Decider {
	x := &Decider{p: p}
	if p.ByBehaviour() {
		policy := p.Policy()
		policy.EveryPacket = true
		x.table = classify.Build(policy)
	}
	return x
}

// explain evaluates the table for a packet of the flow, which must be of a plan that
// knows how flows behave.
func (x *Decider) explain(d plan.Direction, f Flow, c Connection, in func(set, key string) bool) classify.Decision {
	packet := f.Of(d)
	ct := classify.Connection{Sent: usualPackets, Replied: usualPackets, Bytes: c.Bytes, Answered: c.Answered, Mark: c.Mark}
	switch {
	case c.Known:
	case c.Unread, f.Protocol == "udp" && metered(d, f, in):
		ct.Answered = true
	default: // its first packet
		ct = classify.Connection{Sent: 1, Bytes: f.Packet}
	}
	return x.table.Explain(0, &packet, &ct, asked{f, in})
}

// Reasons returns the class of a packet of the flow as Decide does, with the reasons
// as data: those that were met on the way, the last of which decided. ok is false if
// the direction has no classes.
func (x *Decider) Reasons(d plan.Direction, f Flow, c Connection, in func(set, key string) bool) (class plan.Class, why []classify.Reason, ok bool) {
	if x.p.Classes.Of(d == plan.DirectionDown) == nil {
		return "", nil, false
	}
	if x.table == nil {
		v := decideExplicit(x.p, d, f, func(class plan.Class, _ string, _ ...any) Verdict { return Verdict{Direction: d, Class: class} })
		if i, is := written(x.p, d, f); is {
			return v.Class, []classify.Reason{{Code: classify.ByRule, Rule: i}}, true
		}
		code := classify.Ordinary
		switch v.Class {
		case plan.Voice:
			code = classify.Names
		case plan.Interactive:
			code = classify.Acknowledges
		}
		return v.Class, []classify.Reason{{Code: code}}, true
	}
	out := x.explain(d, f, c, in)
	if out.Lane == nil {
		return plan.Normal, out.Why, true
	}
	return out.Lane.Class, out.Why, true
}
