package classify

import (
	"net/netip"
	"slices"

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

// network reads an address or network that KindOfHost gave.
func network(text string) netip.Prefix {
	if n, err := netip.ParsePrefix(text); err == nil {
		return n
	}
	a, _ := netip.ParseAddr(text)
	return netip.PrefixFrom(a, a.BitLen())
}
