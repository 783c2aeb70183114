// Package visitor has what public servers have in common: to which account an
// address is charged, limits with defaults, and self-signed certificates.
package visitor

import (
	"net/netip"
	"reflect"
)

// Of returns the address that is charged for a client: a site has at least a
// /64 of IPv6, which counts as one.
func Of(from netip.Addr) netip.Addr {
	from = from.Unmap().WithZone("")
	if from.Is6() {
		if p, err := from.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return from
}

// Source returns the address of an HTTP request's RemoteAddr, with or without a
// port, or the zero value if it has none.
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

// Defaults replaces the exported fields of limits that are zero or negative with
// their defaults. Exported fields must be integers.
func Defaults[L any](limits, defaults L) L {
	have, standard := reflect.ValueOf(&limits).Elem(), reflect.ValueOf(defaults)
	for i := range have.NumField() {
		if f := have.Field(i); f.CanSet() && f.Int() <= 0 {
			f.SetInt(standard.Field(i).Int())
		}
	}
	return limits
}
