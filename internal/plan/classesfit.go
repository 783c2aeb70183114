package plan

import (
	"net/netip"
	"slices"
	"strings"
)

// wash decides who clears the marks of a direction that is to have none. CAKE
// does it as packets come in, which is before nftables sees what arrives over an
// ifb; where marks mean something there, and behind HTB, nftables does it last.
func (m *maker) wash(c *Classes) {
	if m.plan.Up != nil {
		m.plan.Up.Wash = c.DSCP.WashUp && m.plan.Up.AQM == CAKE
	}
	if m.plan.Down != nil {
		looks := c.DSCP.TrustFar || slices.ContainsFunc(c.Rules, func(r Rule) bool { return len(r.DSCP) > 0 && r.Direction != DirectionUp })
		m.plan.Down.Wash = c.DSCP.WashDown && m.plan.Down.AQM == CAKE && !(m.plan.Down.IngressOf != "" && looks)
	}
}

// explainRules says of rules that never decide which one does, and of one that
// takes all that behaviour decides nothing.
func (m *maker) explainRules(c *Classes) {
	for j, r := range c.Rules {
		if r.noFamily() {
			m.warning("classes: rule %d (%s) never decides: its ends are of different versions of IP, and no packet has both", j+1, r)
			continue
		}
		for i, before := range c.Rules[:j] {
			if before.covers(r) {
				m.warning("classes: rule %d (%s) never decides: rule %d (%s) is before it and takes all that fits it; exchange them, or leave one out", j+1, r, i+1, before)
				break
			}
		}
	}
	for i, r := range c.Rules {
		if r.covers(Rule{}) && c.Behaviour != (Behaviour{}) {
			m.because("classes.behaviour", "decides nothing", "rule %d takes every flow that no rule before it names; leave it out, and flows have a class by how they behave", i+1)
			break
		}
	}
}

// noFamily reports whether the ends of a rule are such that no packet has both.
func (r Rule) noFamily() bool {
	only := func(list []string, v4 bool) bool {
		return len(list) > 0 && !slices.ContainsFunc(list, func(s string) bool {
			kind, a := KindOfHost(s)
			return kind != HostAddr || IsIPv4(a) != v4
		})
	}
	return len(r.Domain) == 0 && (only(r.Home, true) && only(r.Far, false) || only(r.Home, false) && only(r.Far, true))
}

// covers reports whether r fits all that o fits, as far as their words tell.
func (r Rule) covers(o Rule) bool {
	ports := func(a, b []PortRange) bool {
		return len(b) > 0 && !slices.ContainsFunc(b, func(p PortRange) bool {
			return !slices.ContainsFunc(a, func(q PortRange) bool { return q.From <= p.From && p.To <= q.To })
		})
	}
	some := slices.Contains([]string{"tcp", "udp"}, o.Protocol) || o.Protocol == "" && o.HasPorts()
	switch {
	case r.Direction != "" && r.Direction != o.Direction,
		r.Protocol != "" && r.Protocol != o.Protocol,
		r.Protocol == "" && r.HasPorts() && !some,
		len(r.Port) > 0 && !ports(r.Port, o.Port) && !ports(r.Port, o.HomePort) && !ports(r.Port, o.FarPort),
		len(r.HomePort) > 0 && !ports(r.HomePort, o.HomePort), len(r.FarPort) > 0 && !ports(r.FarPort, o.FarPort),
		len(r.Home) > 0 && !eachFits(r.Home, o.Home, holds),
		len(r.Far)+len(r.Domain) > 0 && !(len(o.Far)+len(o.Domain) > 0 && (len(o.Far) == 0 || eachFits(r.Far, o.Far, holds)) && (len(o.Domain) == 0 || eachFits(r.Domain, o.Domain, isBelow))),
		len(r.DSCP) > 0 && !eachFits(r.DSCP, o.DSCP, func(a, b string) bool { return a == b }):
		return false
	}
	return r.From <= o.From && (r.Below == 0 || o.Below > 0 && o.Below <= r.Below)
}

// eachFits reports whether there are others, and each fits one of the list.
func eachFits(list, others []string, fits func(wide, narrow string) bool) bool {
	return len(others) > 0 && !slices.ContainsFunc(others, func(o string) bool {
		return !slices.ContainsFunc(list, func(l string) bool { return fits(l, o) })
	})
}

// holds reports whether an address or network is in another, or is the same name.
func holds(wide, narrow string) bool {
	_, wide = KindOfHost(wide)
	_, narrow = KindOfHost(narrow)
	n, err := netip.ParsePrefix(wide)
	if err != nil {
		return wide == narrow
	}
	if p, err := netip.ParsePrefix(narrow); err == nil {
		return n.Bits() <= p.Bits() && n.Contains(p.Addr())
	}
	a, err := netip.ParseAddr(narrow)
	return err == nil && n.Contains(a)
}

// isBelow reports whether a domain is another or below it.
func isBelow(wide, narrow string) bool {
	return wide == narrow || strings.HasSuffix(narrow, "."+wide)
}
