package nft

import (
	"slices"

	"unbloat/internal/classify"
	"unbloat/internal/plan"
)

// lowDelay is IPTOS_LOWDELAY (RFC 1349) as a bit of the DSCP. pf puts such
// packets into the second queue of a rule. EF has this bit set.
const lowDelay = 0x10 >> 2

// decideExplicit evaluates the rules of a platform that has only explicit
// rules: pf, dummynet and ClearOS's own engine. The plan's first matching rule
// decides on each, whatever the order in the platform's language.
func decideExplicit(p plan.Plan, d plan.Direction, f Flow, v func(plan.Class, string, ...any) Verdict) Verdict {
	can := p.RuleLimits()
	ack := f.Protocol == "tcp" && f.Packet <= classify.UsualAck && can.AcksFirst
	second := can.SecondQueue // second queue of a rule
	low := second && f.DSCP&lowDelay != 0
	if passes(p, f) {
		return v(plan.Voice, "control traffic, as DHCP and ping: it passes before all classes")
	}
	if i, is := written(p, d, f); is {
		r := p.Classes.Rules[i]
		if ack && second && (r.Class == plan.Normal || r.Class == plan.Bulk) {
			return v(plan.Interactive, "an acknowledgement without data of what rule %d names (%s): the second queue of that rule", i+1, r)
		}
		if low && (r.Class == plan.Normal || r.Class == plan.Bulk) && (r.Protocol == "" || r.Protocol == "tcp") {
			return v(plan.Interactive, "its TOS asks for low delay: the second queue of rule %d (%s)", i+1, r)
		}
		return v(r.Class, "rule %d: %s", i+1, r)
	}
	switch {
	case f.Protocol == "icmp" || (f.Protocol == "tcp" || f.Protocol == "udp") && f.Far.Port() == 53:
		return v(plan.Voice, "DNS and ping")
	case ack:
		return v(plan.Interactive, "an acknowledgement without data (a packet of %s)", f.Packet)
	case low && f.Protocol == "tcp":
		return v(plan.Interactive, "its TOS asks for low delay")
	}
	return v(plan.Normal, "no rule names it, and %s does not know how a flow behaves", p.Platform)
}

// passes reports whether a flow is control traffic that passes before the classes.
func passes(p plan.Plan, f Flow) bool {
	return p.Control && (f.Protocol == "icmp" || f.Protocol == "udp" &&
		slices.ContainsFunc(plan.DHCP(), func(x plan.PortRange) bool { return x.Contains(f.Far.Port()) }))
}

// Named reports whether a packet of the flow has its class by a rule of the plan's, or
// as DNS, ping or an acknowledgement, on a platform with explicit rules.
func Named(p plan.Plan, d plan.Direction, f Flow) bool {
	_, is := written(p, d, f)
	return is || passes(p, f) || f.Protocol == "icmp" || (f.Protocol == "tcp" || f.Protocol == "udp") && f.Far.Port() == 53 ||
		f.Protocol == "tcp" && f.Packet <= classify.UsualAck && p.RuleLimits().AcksFirst
}

// written returns the first matching rule of those that the platform can
// express; none of these platforms counts a connection's bytes.
func written(p plan.Plan, d plan.Direction, f Flow) (rule int, is bool) {
	policy := p.Policy()
	policy.Rules, policy.Trust = nil, plan.DSCPPreference{}
	var numbers []int
	for i, r := range p.Classes.Rules {
		if !p.RuleLimits().HomeDown.IsZero() && d == plan.DirectionDown && slices.ContainsFunc(r.Home, plan.HiddenByNAT) {
			continue // marked before NAT sets the home address
		}
		policy.Rules, numbers = append(policy.Rules, r), append(numbers, i)
	}
	packet := f.Of(d)
	nothing := func(string, string) bool { return false }
	out := classify.Build(policy).Explain(0, &packet, &classify.Connection{}, asked{f, nothing})
	if len(out.Why) == 0 || out.Why[0].Code != classify.ByRule {
		return 0, false
	}
	return numbers[out.Why[0].Rule], true
}
