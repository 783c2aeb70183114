// This file has what public servers have in common: to which account an
// address is charged, limits with defaults, and self-signed certificates.

package guard

import (
	"net/netip"
	"reflect"
)

// Charged returns the address that is charged for a client: a site has at least a
// /64 of IPv6, which counts as one.
func Charged(from netip.Addr) netip.Addr {
	return Group(from.Unmap().WithZone("")).Addr()
}

// SourceOf returns the address of an HTTP request's RemoteAddr, with or without a
// port, or the zero value if it has none.
func SourceOf(remote string) netip.Addr {
	if a, err := netip.ParseAddrPort(remote); err == nil {
		return a.Addr().Unmap().WithZone("")
	}
	a, err := netip.ParseAddr(remote)
	if err != nil {
		return netip.Addr{}
	}
	return a.Unmap().WithZone("")
}

// WithDefaults replaces the exported fields of limits that are zero or negative with
// their defaults. Exported fields must be integers.
func WithDefaults[L any](limits, defaults L) L {
	have, standard := reflect.ValueOf(&limits).Elem(), reflect.ValueOf(defaults)
	for i := range have.NumField() {
		if f := have.Field(i); f.CanSet() && f.Int() <= 0 {
			f.SetInt(standard.Field(i).Int())
		}
	}
	return limits
}
