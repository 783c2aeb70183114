package classify

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"unbloat/unit"
)

// A Flow is one connection, by its ends, and a packet of it.
type Flow struct {
	Protocol string // tcp, udp, icmp, sctp, esp, gre
	Home     netip.AddrPort
	Far      netip.AddrPort
	Packet   unit.Size // IP bytes of the packet in question
	DSCP     uint8
}

// ParseFlow reads "udp 10.1.0.2:5004 > 203.0.113.9:5004": protocol, the home's
// end, the far end. Protocols without ports take addresses alone.
func ParseFlow(s string) (Flow, error) {
	proto, ends, ok := strings.Cut(strings.TrimSpace(s), " ")
	home, far, both := strings.Cut(ends, ">")
	f := Flow{Protocol: strings.ToLower(proto), Packet: 200}
	bad := func(why string) error {
		return fmt.Errorf("flow %q: %s; write it like \"udp 10.1.0.2:5004 > 203.0.113.9:5004\"", s, why)
	}
	if !ok || !both {
		return f, bad("it has no protocol and two ends")
	}
	if !slices.Contains(Protocols(), f.Protocol) {
		return f, bad("its protocol is not one of " + strings.Join(Protocols(), ", "))
	}
	var err error
	for _, end := range []struct {
		text string
		to   *netip.AddrPort
	}{{home, &f.Home}, {far, &f.Far}} {
		text := strings.TrimSpace(end.text)
		if f.hasPorts() {
			*end.to, err = netip.ParseAddrPort(text)
		} else {
			var a netip.Addr
			a, err = netip.ParseAddr(text)
			*end.to = netip.AddrPortFrom(a, 0)
		}
		if err != nil {
			return f, bad(fmt.Sprintf("%q is not an address and a port", text))
		}
	}
	if f.Home.Addr().Is4() != f.Far.Addr().Is4() {
		return f, bad("one end is of IPv4 and the other of IPv6")
	}
	return f, nil
}

// String writes the flow as ParseFlow reads it.
func (f Flow) String() string {
	if f.hasPorts() {
		return fmt.Sprintf("%s %s > %s", f.Protocol, f.Home, f.Far)
	}
	return fmt.Sprintf("%s %s > %s", f.Protocol, f.Home.Addr(), f.Far.Addr())
}

func (f Flow) hasPorts() bool { return HasPorts(Number(f.Protocol)) }

// Of returns the packet in question. A TCP packet that is no longer than a usual
// acknowledgement counts as one.
func (f Flow) Of(d Direction) Packet {
	p := Packet{Direction: d, Protocol: Number(f.Protocol), Home: f.Home.Addr().WithZone(""), Far: f.Far.Addr().WithZone(""),
		HomePort: f.Home.Port(), FarPort: f.Far.Port(), Length: f.Packet, DSCP: f.DSCP, Flags: ACK}
	if p.Protocol == ICMP && !p.Home.Is4() {
		p.Protocol = ICMPv6
	}
	if p.Length > UsualAck {
		p.Flags |= PSH
	}
	return p
}

// UsualAck is the longest IP packet that is taken for an acknowledgement without
// data where its flags are not known.
const UsualAck = 80
