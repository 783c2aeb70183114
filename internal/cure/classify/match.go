package classify

import (
	"net/netip"
	"slices"
	"strings"

	"unbloat/unit"
)

// HasMAC reports whether the rule knows a machine by its MAC address.
func (r Rule) HasMAC() bool {
	return slices.ContainsFunc(r.Home, func(h string) bool { kind, _ := KindOfHost(h); return kind == HostMAC })
}

// Match returns the first of the rules that fits a packet of a connection that has carried
// so many bytes; -1 if none does. known reports whether the home's address is one of the
// machines that a rule knows by their MAC address, or the far one of its domains.
func Match(rules []Rule, p *Packet, carried unit.Size, known func(rule int, far bool) bool) int {
	for i, r := range rules {
		if r.fits(p, carried, func(far bool) bool { return known(i, far) }) {
			return i
		}
	}
	return -1
}

// fits reports whether a packet meets all that the rule asks.
func (r Rule) fits(p *Packet, carried unit.Size, known func(far bool) bool) bool {
	within := func(list []PortRange, ports ...uint16) bool {
		return slices.ContainsFunc(list, func(x PortRange) bool { return slices.ContainsFunc(ports, x.Contains) })
	}
	named := func(list []string, a netip.Addr) bool {
		return slices.ContainsFunc(list, func(h string) bool {
			kind, text := KindOfHost(h)
			return kind == HostAddr && network(text).Contains(a)
		})
	}
	marked := func(s string) bool { v, err := ParseDSCP(s); return err == nil && v == p.DSCP }
	switch {
	case r.Direction != "" && r.Direction != p.Direction,
		r.Protocol != "" && Number(r.Protocol) != p.Protocol && !(r.Protocol == "icmp" && p.Protocol == ICMPv6),
		r.HasPorts() && r.Protocol == "" && p.Protocol != TCP && p.Protocol != UDP,
		len(r.Port) > 0 && !within(r.Port, p.HomePort, p.FarPort),
		len(r.HomePort) > 0 && !within(r.HomePort, p.HomePort),
		len(r.FarPort) > 0 && !within(r.FarPort, p.FarPort),
		len(r.Home) > 0 && !named(r.Home, p.Home) && !(r.HasMAC() && known(false)),
		len(r.Far)+len(r.Domain) > 0 && !named(r.Far, p.Far) && !(len(r.Domain) > 0 && known(true)),
		len(r.DSCP) > 0 && !slices.ContainsFunc(r.DSCP, marked):
		return false
	}
	return carried >= r.From && (r.Below == 0 || carried > 0 && carried < r.Below)
}

// network reads an address or network as KindOfHost gives it; the zero one of anything else.
func network(text string) netip.Prefix {
	if n, err := netip.ParsePrefix(text); err == nil {
		return n
	}
	a, _ := netip.ParseAddr(text)
	return netip.PrefixFrom(a, a.BitLen())
}

// NoFamily reports whether the ends of a rule are such that no packet has both.
func (r Rule) NoFamily() bool {
	only := func(list []string, v4 bool) bool {
		return len(list) > 0 && !slices.ContainsFunc(list, func(s string) bool {
			kind, a := KindOfHost(s)
			return kind != HostAddr || IsIPv4(a) != v4
		})
	}
	return len(r.Domain) == 0 && (only(r.Home, true) && only(r.Far, false) || only(r.Home, false) && only(r.Far, true))
}

// Covers reports whether r fits all that o fits, as far as their words tell.
func (r Rule) Covers(o Rule) bool {
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
	kind, wide := KindOfHost(wide)
	_, narrow = KindOfHost(narrow)
	if kind != HostAddr {
		return wide == narrow
	}
	n, m := network(wide), network(narrow)
	return m.IsValid() && n.Bits() <= m.Bits() && n.Contains(m.Addr())
}

// isBelow reports whether a domain is another or below it.
func isBelow(wide, narrow string) bool {
	return wide == narrow || strings.HasSuffix(narrow, "."+wide)
}
