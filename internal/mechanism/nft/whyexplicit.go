package nft

import (
	"slices"

	"unbloat/internal/plan"
)

// ackPacket is the longest IP packet that counts as an acknowledgement without
// data where packets are all that is seen.
const ackPacket = 80

// lowDelay is IPTOS_LOWDELAY (RFC 1349) as a bit of a code point: pf gives such
// packets of a connection its second queue. EF has it.
const lowDelay = 0x10 >> 2

// decideExplicit follows the rules of a platform that knows nothing else: pf,
// dummynet, and ClearOS's own engine. The first that fits decides on each,
// whatever the order is in which its language wants them.
func decideExplicit(p plan.Plan, d plan.Direction, f Flow, v verdict) Verdict {
	can := p.RuleLimits()
	ack := f.Protocol == "tcp" && f.Packet <= ackPacket && can.AcksFirst
	second := can.SecondQueue // of a rule
	low := second && f.DSCP&lowDelay != 0
	nothing := func(string, string) bool { return false }
	for i, r := range p.Classes.Rules {
		if r.Direction != "" && r.Direction != d || !fits(r, i, f, Connection{}, nothing) {
			continue
		}
		if r.Protocol == "" && r.HasPorts() && f.Protocol == "sctp" {
			continue // ports alone are written for TCP and UDP
		}
		if can.HomeDown != "" && d == plan.DirectionDown && slices.ContainsFunc(r.Home, plan.HiddenByNAT) {
			continue // marked before NAT gives it to a machine
		}
		if ack && second && (r.Class == plan.Normal || r.Class == plan.Bulk) {
			return v(plan.Interactive, "an acknowledgement without data of what rule %d names (%s): the second queue of that rule", i+1, r)
		}
		if low && (r.Class == plan.Normal || r.Class == plan.Bulk) && (r.Protocol == "" || r.Protocol == "tcp") {
			return v(plan.Interactive, "its TOS asks for low delay: the second queue of rule %d (%s)", i+1, r)
		}
		return v(r.Class, "rule %d: %s", i+1, r)
	}
	switch {
	case f.Protocol == "icmp" || f.hasPorts() && f.Protocol != "sctp" && f.Far.Port() == 53:
		return v(plan.Voice, "DNS and ping")
	case ack:
		return v(plan.Interactive, "an acknowledgement without data (a packet of %s)", f.Packet)
	case low && f.Protocol == "tcp":
		return v(plan.Interactive, "its TOS asks for low delay")
	}
	return v(plan.Normal, "no rule names it, and %s does not know how a flow behaves", p.Platform)
}
