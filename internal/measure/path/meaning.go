package path

import (
	"fmt"
	"net/netip"
)

// meaning says what an ICMP error means for the path; false if nothing.
func (c *Codec) meaning(kind, code uint8, from netip.Addr) (Kind, string, bool) {
	exceeded, unreachable, why := uint8(exceeded4), uint8(unreachable4), why4
	if c.Target.Is6() {
		exceeded, unreachable, why = exceeded6, unreachable6, why6
	}
	switch {
	case kind == exceeded && code == 0: // code 1 is about fragments
		return Exceeded, "", true
	case kind != unreachable:
		return 0, "", false
	case from == c.Target.WithZone(""):
		return Arrived, "", true // it refuses the probe, so it is reachable
	}
	text, ok := why(code)
	return Refused, text, ok
}

// why4 names the codes of ICMP destination unreachable (RFC 792, RFC 1122
// section 3.2.2.1, RFC 1812 section 5.2.7.1).
func why4(code uint8) (string, bool) {
	switch code {
	case 0, 6, 11:
		return "network unreachable", true
	case 1, 7, 12:
		return "host unreachable", true
	case 2:
		return "protocol unreachable", true
	case 3:
		return "port unreachable", true
	case 4, 5: // about the size, or source routing: not about the path
		return "", false
	case 9, 10, 13:
		return "prohibited by a filter", true
	}
	return fmt.Sprintf("unreachable (code %d)", code), true
}

// why6 names the codes of ICMPv6 destination unreachable (RFC 4443 section 3.1).
func why6(code uint8) (string, bool) {
	switch code {
	case 0:
		return "no route", true
	case 1, 5, 6:
		return "prohibited by a filter", true
	case 2, 3:
		return "host unreachable", true
	case 4:
		return "port unreachable", true
	}
	return fmt.Sprintf("unreachable (code %d)", code), true
}
