// Package visitor holds what servers that anybody may reach have in common:
// whom the use of an address is charged to, and certificates that no authority
// has signed.
package visitor

import "net/netip"

// Of returns whom an address's use is charged to: a site has at least a /64 of
// IPv6, which counts as one.
func Of(from netip.Addr) netip.Addr {
	from = from.Unmap().WithZone("")
	if from.Is6() {
		if p, err := from.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return from
}
