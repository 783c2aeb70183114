// Package visitor holds what servers that anybody may reach have in common: whose
// account the use of an address is booked on, limits with defaults, and
// certificates that no authority has signed.
package visitor

import (
	"net/netip"
	"reflect"
)

// Of returns the address on whose account the use of one is booked: a site has
// at least a /64 of IPv6, which counts as one.
func Of(from netip.Addr) netip.Addr {
	from = from.Unmap().WithZone("")
	if from.Is6() {
		if p, err := from.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return from
}

// Source returns the address of an HTTP request's RemoteAddr, with a port or
// without; the zero value if it has none.
func Source(remote string) netip.Addr {
	if a, err := netip.ParseAddrPort(remote); err == nil {
		return a.Addr().Unmap().WithZone("")
	}
	a, err := netip.ParseAddr(remote)
	if err != nil {
		return netip.Addr{}
	}
	return a.Unmap().WithZone("")
}

// Defaults returns limits, which are a struct of whole numbers, in which every
// exported one that is zero or negative takes its default.
func Defaults[L any](limits, defaults L) L {
	have, standard := reflect.ValueOf(&limits).Elem(), reflect.ValueOf(defaults)
	for i := range have.NumField() {
		if f := have.Field(i); f.CanSet() && f.Int() <= 0 {
			f.SetInt(standard.Field(i).Int())
		}
	}
	return limits
}
