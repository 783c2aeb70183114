package platform

import (
	"context"
	"fmt"
	"slices"

	"unbloat/internal/cure/classify"
	"unbloat/internal/cure/plan"
	"unbloat/unit"
)

// An Answer is the class of a flow by a router and its plan.
type Answer struct {
	Flow     classify.Flow // as the router's rules see it: the home's end first, before NAT
	Note     string        // how Flow differs from the one asked for; "" if it doesn't
	Verdicts []Verdict
}

// A Verdict is the class of a packet and what decided it.
type Verdict struct {
	Direction plan.Direction `json:"direction"`
	Class     plan.Class     `json:"class"`
	Rule      string         `json:"rule"`
}

// A Decided is the class of a flow's packets in one direction, as data.
type Decided struct {
	Class plan.Class
	Code  classify.Code
	Rule  int // of ByRule: which one, from 0
}

// WhyClass returns for both directions the class of a packet of a flow and what decides
// it. If the router keeps no state of flows, only the plan's rules are used.
func (d *Driver) WhyClass(ctx context.Context, r Runner, p plan.Plan, f classify.Flow) Answer {
	if d.Classes != nil {
		return d.Classes.Why(ctx, r, p, f)
	}
	a := Answer{Flow: f}
	for _, way := range []plan.Direction{plan.DirectionUp, plan.DirectionDown} {
		a.Verdicts = append(a.Verdicts, WhyRules(p, way, f, 0, nobody))
	}
	return a
}

func nobody(int, bool) bool { return false }

// Untreated is the verdict of a direction without classes.
func Untreated(d plan.Direction) Verdict {
	return Verdict{d, plan.Normal, "this direction has no classes: every flow is treated alike"}
}

// lowDelay is IPTOS_LOWDELAY (RFC 1349) as a bit of the DSCP. pf puts such
// packets into the second queue of a rule. EF has this bit set.
const lowDelay = 0x10 >> 2

// WhyRules says what a plan's rules decide for a packet of a flow that has carried so many
// bytes, where nothing judges how flows behave: on pf, dummynet, ClearOS's own engine, and
// by nftables alone. The first that fits decides, whatever the order in the platform's
// language. known is as for classify.Match.
func WhyRules(p plan.Plan, d plan.Direction, f classify.Flow, carried unit.Size, known func(rule int, far bool) bool) Verdict {
	if p.Classes.Of(d == plan.DirectionDown) == nil {
		return Untreated(d)
	}
	x, why := byRules(p, d, f, carried, known)
	return Verdict{d, x.Class, why}
}

// ByRules is WhyRules as data; ok is false where the direction has no classes.
func ByRules(p plan.Plan, d plan.Direction, f classify.Flow, carried unit.Size, known func(rule int, far bool) bool) (x Decided, ok bool) {
	if p.Classes.Of(d == plan.DirectionDown) == nil {
		return Decided{}, false
	}
	x, _ = byRules(p, d, f, carried, known)
	return x, true
}

func byRules(p plan.Plan, d plan.Direction, f classify.Flow, carried unit.Size, known func(rule int, far bool) bool) (Decided, string) {
	can := p.RuleLimits()
	ack := f.Protocol == "tcp" && f.Packet <= classify.UsualAck && can.AcksFirst
	second := can.SecondQueue // second queue of a rule
	low := second && f.DSCP&lowDelay != 0
	if p.Control && (f.Protocol == "icmp" || f.Protocol == "udp" &&
		slices.ContainsFunc(plan.DHCP(), func(x plan.PortRange) bool { return x.Contains(f.Far.Port()) })) {
		return Decided{plan.Voice, classify.Names, 0}, "control traffic, as DHCP and ping: it passes before all classes"
	}
	packet := f.Of(d)
	if i := classify.Match(ruled(p, d), &packet, carried, known); i >= 0 {
		r := p.Classes.Rules[i]
		of := Decided{r.Class, classify.ByRule, i}
		if ack && second && (r.Class == plan.Normal || r.Class == plan.Bulk) {
			of.Class = plan.Interactive
			return of, fmt.Sprintf("an acknowledgement without data of what rule %d names (%s): the second queue of that rule", i+1, r)
		}
		if low && (r.Class == plan.Normal || r.Class == plan.Bulk) && (r.Protocol == "" || r.Protocol == "tcp") {
			of.Class = plan.Interactive
			return of, fmt.Sprintf("its TOS asks for low delay: the second queue of rule %d (%s)", i+1, r)
		}
		return of, fmt.Sprintf("rule %d: %s", i+1, r)
	}
	trust := p.Classes.DSCP.TrustHome
	if d == plan.DirectionDown {
		trust = p.Classes.DSCP.TrustFar
	}
	if c, is := classify.ClassOfDSCP(f.DSCP); is && trust {
		return Decided{c, classify.ByDSCP, 0}, fmt.Sprintf("its mark, DSCP %d, which is trusted", f.DSCP)
	}
	names := !can.Domains.IsZero() // nftables' rules, which know domains, have only what is written
	switch {
	case names && (f.Protocol == "icmp" || (f.Protocol == "tcp" || f.Protocol == "udp") && f.Far.Port() == 53):
		return Decided{plan.Voice, classify.Names, 0}, "DNS and ping"
	case ack:
		return Decided{plan.Interactive, classify.Acknowledges, 0}, fmt.Sprintf("an acknowledgement without data (a packet of %s)", f.Packet)
	case low && f.Protocol == "tcp":
		return Decided{plan.Interactive, classify.Acknowledges, 0}, "its TOS asks for low delay"
	}
	return Decided{plan.Normal, classify.Ordinary, 0}, fmt.Sprintf("no rule names it, and nothing on %s judges here how a flow behaves", p.Platform)
}

// ruled are the plan's rules as far as the platform finds a direction's packets by them:
// the others fit nothing.
func ruled(p plan.Plan, d plan.Direction) []plan.Rule {
	rules := slices.Clone(p.Classes.Rules)
	for i, r := range rules {
		if !p.RuleLimits().HomeDown.IsZero() && d == plan.DirectionDown && slices.ContainsFunc(r.Home, plan.HiddenByNAT) {
			rules[i] = plan.Rule{Direction: plan.DirectionUp} // marked before NAT sets the home address
		}
	}
	return rules
}
