package classify

import (
	"net/netip"
	"slices"
	"strings"
)

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
