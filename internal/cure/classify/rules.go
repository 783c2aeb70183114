package classify

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"unbloat/unit"
)

// A Rule gives traffic a class. What is empty matches everything; a rule that
// matches by several things wants all of them, and of a list one.
type Rule struct {
	Name      string      `json:"name,omitempty" toml:"name"`           // for people
	Class     Class       `json:"class" toml:"class"`                   //
	Direction Direction   `json:"direction,omitempty" toml:"direction"` // "": both
	Protocol  string      `json:"protocol,omitempty" toml:"protocol"`   // tcp, udp, icmp (of both IPs), sctp, esp, gre
	Port      []PortRange `json:"port,omitempty" toml:"port"`           // at either end
	HomePort  []PortRange `json:"home_port,omitempty" toml:"home_port"`
	FarPort   []PortRange `json:"far_port,omitempty" toml:"far_port"`
	Home      []string    `json:"home,omitempty" toml:"home"`     // address, network, MAC address or name of a machine of the home
	Far       []string    `json:"far,omitempty" toml:"far"`       // address or network
	Domain    []string    `json:"domain,omitempty" toml:"domain"` // and all below it, as the router's own resolver answered
	DSCP      []string    `json:"dscp,omitempty" toml:"dscp"`     // ef, nqb, af41, cs1, or 0–63
	From      unit.Size   `json:"from_bytes,omitempty" toml:"from_bytes"`
	Below     unit.Size   `json:"below_bytes,omitempty" toml:"below_bytes"` // what the connection has carried both ways; 0: any
}

// EndPorts are ports by the end that has them; empty is any.
type EndPorts struct{ Home, Far []PortRange }

// PortsByEnd returns the alternatives of a rule's ports for languages that know
// two ends alone: Port may be at either.
func (r Rule) PortsByEnd() []EndPorts {
	if len(r.Port) == 0 {
		return []EndPorts{{r.HomePort, r.FarPort}}
	}
	return []EndPorts{{slices.Concat(r.Port, r.HomePort), r.FarPort}, {r.HomePort, slices.Concat(r.Port, r.FarPort)}}
}

// HasPorts reports whether the rule looks at ports, and so at TCP and UDP alone
// unless it names a protocol.
func (r Rule) HasPorts() bool { return len(r.Port)+len(r.HomePort)+len(r.FarPort) > 0 }

// HiddenByNAT reports whether an address or network of the home is one that the
// WAN does not show: a private one of IPv4 (RFC 1918).
func HiddenByNAT(home string) bool {
	a := network(home).Addr()
	return a.Is4() && a.IsPrivate()
}

// IsIPv4 reports whether an address or network of a rule is one of IPv4.
func IsIPv4(s string) bool { return network(s).Addr().Is4() }

// Trust says what marks are worth. A mark is trusted on the side that it
// comes from; a washed direction leaves the router without marks.
type Trust struct {
	TrustHome bool `json:"trust_home,omitempty" toml:"trust_home"`
	TrustFar  bool `json:"trust_far,omitempty" toml:"trust_far"`
	WashUp    bool `json:"wash_up,omitempty" toml:"wash_up"`
	WashDown  bool `json:"wash_down,omitempty" toml:"wash_down"`
}

// A PortRange is the ports From to To, both included.
type PortRange struct{ From, To uint16 }

// String prints the range so that ParsePortRange reads it back.
func (p PortRange) String() string {
	if p.From == p.To {
		return strconv.Itoa(int(p.From))
	}
	return strconv.Itoa(int(p.From)) + "-" + strconv.Itoa(int(p.To))
}

// ParsePortRange reads "5060" or "19302-19309".
func ParsePortRange(s string) (PortRange, error) {
	from, to, isRange := strings.Cut(strings.TrimSpace(s), "-")
	if !isRange {
		to = from
	}
	a, errA := strconv.ParseUint(strings.TrimSpace(from), 10, 16)
	b, errB := strconv.ParseUint(strings.TrimSpace(to), 10, 16)
	if errA != nil || errB != nil || a > b || a == 0 {
		return PortRange{}, fmt.Errorf("port %q: write one of 1…65535, or a range such as 19302-19309", s)
	}
	return PortRange{uint16(a), uint16(b)}, nil
}

// MarshalText prints the range; UnmarshalText reads it from TOML and JSON strings.
func (p PortRange) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads what ParsePortRange reads.
func (p *PortRange) UnmarshalText(b []byte) (err error) {
	*p, err = ParsePortRange(string(b))
	return err
}

// Contains reports whether the port is in the range.
func (p PortRange) Contains(port uint16) bool { return p.From <= port && port <= p.To }

// ParseDSCP reads the name of a code point (ef, nqb, af41, cs1, va, le, df) or its number.
func ParseDSCP(s string) (uint8, error) {
	s = strings.ToLower(strings.TrimSpace(s))
	switch s {
	case "ef":
		return 46, nil
	case "nqb": // RFC 9956
		return 45, nil
	case "va":
		return 44, nil
	case "le":
		return 1, nil
	case "df", "be":
		return 0, nil
	}
	if n, ok := strings.CutPrefix(s, "cs"); ok && len(n) == 1 && n[0] >= '0' && n[0] <= '7' {
		return (n[0] - '0') << 3, nil
	}
	if n, ok := strings.CutPrefix(s, "af"); ok && len(n) == 2 && n[0] >= '1' && n[0] <= '4' && n[1] >= '1' && n[1] <= '3' {
		return (n[0]-'0')<<3 | (n[1]-'0')<<1, nil
	}
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil || n > 63 {
		return 0, fmt.Errorf("DSCP %q: write ef, nqb, va, le, cs0…cs7, af11…af43, or 0…63", s)
	}
	return uint8(n), nil
}

// ClassOfDSCP returns what a trusted mark stands for (RFC 4594, RFC 8622; NQB, CS4 and CS5 among the interactive ones);
// ok is false for marks that ask for nothing.
func ClassOfDSCP(dscp uint8) (c Class, ok bool) {
	switch {
	case dscp == 46 || dscp == 44 || dscp>>3 >= 6:
		return Voice, true
	case dscp == 1 || dscp == 8:
		return Bulk, true
	case dscp>>3 >= 2:
		return Interactive, true
	case dscp>>3 == 1:
		return Bulk, true
	}
	return Normal, false
}

// HostKind says how a Rule's Home or Far names a machine.
type HostKind int

// Kinds of names.
const (
	HostName HostKind = iota // of a machine of the home, to be looked up in Capabilities.Hosts
	HostAddr                 // an address or network of IPv4 or IPv6
	HostMAC
)

// Protocols are those that a rule may name; icmp is that of both versions of IP.
func Protocols() []string { return []string{"tcp", "udp", "icmp", "sctp", "esp", "gre"} }

// Number returns a protocol's; 0 for one that is none of Protocols.
func Number(protocol string) uint8 {
	return map[string]uint8{"tcp": TCP, "udp": UDP, "icmp": ICMP, "sctp": SCTP, "esp": ESP, "gre": GRE}[protocol]
}

// NameOf returns the name of a protocol as Protocols has it; "" if that has none.
func NameOf(number uint8) string {
	for _, p := range Protocols() {
		if Number(p) == number {
			return p
		}
	}
	return ""
}

// mappedBits begin an IPv4 address that is written as one of IPv6 (RFC 4291 §2.5.5.2).
const mappedBits = 96

// KindOfHost tells what a machine is named by; addresses and networks come
// back in their canonical form.
func KindOfHost(s string) (HostKind, string) {
	if p, err := netip.ParsePrefix(s); err == nil {
		if a := p.Addr(); a.Is4In6() && p.Bits() >= mappedBits { // ::ffff:10.0.0.0/104 is 10.0.0.0/8
			p = netip.PrefixFrom(a.Unmap(), p.Bits()-mappedBits)
		}
		return HostAddr, p.Masked().String()
	}
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return HostAddr, a.Unmap().String()
	}
	if isMAC(s) {
		return HostMAC, strings.ToLower(s)
	}
	return HostName, s
}

func isMAC(s string) bool {
	parts := strings.Split(s, ":")
	return len(parts) == 6 && !slices.ContainsFunc(parts, func(p string) bool {
		_, err := strconv.ParseUint(p, 16, 8)
		return err != nil || len(p) != 2
	})
}

// String says the rule in words: "udp, far port 19302-19309 → voice".
func (r Rule) String() string {
	var parts []string
	say := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	list := func(what string, ps []PortRange) {
		if len(ps) > 0 {
			var names []string
			for _, p := range ps {
				names = append(names, p.String())
			}
			say("%s %s", what, strings.Join(names, " or "))
		}
	}
	if r.Protocol != "" {
		say("%s", r.Protocol)
	}
	list("port", r.Port)
	list("home port", r.HomePort)
	list("far port", r.FarPort)
	for _, x := range []struct {
		what string
		list []string
	}{{"home", r.Home}, {"far", r.Far}, {"domain", r.Domain}, {"DSCP", r.DSCP}} {
		if len(x.list) > 0 {
			say("%s %s", x.what, strings.Join(x.list, " or "))
		}
	}
	if r.From > 0 {
		say("from %s on", r.From)
	}
	if r.Below > 0 {
		say("below %s", r.Below)
	}
	if r.Direction != "" {
		say("%s only", r.Direction)
	}
	if len(parts) == 0 {
		say("everything")
	}
	text := strings.Join(parts, ", ") + " → " + string(r.Class)
	if r.Name != "" {
		text = r.Name + ": " + text
	}
	return text
}
