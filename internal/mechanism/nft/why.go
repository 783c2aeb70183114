package nft

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"unbloat/internal/plan"
	"unbloat/unit"
)

// A Flow is one connection, by its ends, and a packet of it.
type Flow struct {
	Protocol string // tcp, udp, icmp, sctp, esp, gre
	Home     netip.AddrPort
	Far      netip.AddrPort
	Packet   unit.Size // IP bytes of the packet that is asked about
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
	if !slices.Contains(plan.Protocols(), f.Protocol) {
		return f, bad("its protocol is not one of " + strings.Join(plan.Protocols(), ", "))
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

func (f Flow) hasPorts() bool {
	return f.Protocol == "tcp" || f.Protocol == "udp" || f.Protocol == "sctp"
}

func (f Flow) n() string {
	if f.Home.Addr().Is4() {
		return "4"
	}
	return "6"
}

// Key is the flow as the meters' sets know it.
func (f Flow) Key() string {
	return fmt.Sprintf("%s . %s . %d . %s . %d", f.Protocol, f.Home.Addr(), f.Home.Port(), f.Far.Addr(), f.Far.Port())
}

// A Connection is what the kernel's connection tracking knows of a flow.
type Connection struct {
	Known    bool
	Unread   bool // the kernel's list of connections cannot be read, so nothing is known
	Answered bool
	Bytes    unit.Size // both ways
	Mark     uint32
}

// A Verdict is the class of a packet, and the rule that decided.
type Verdict struct {
	Direction plan.Direction `json:"direction"`
	Class     plan.Class     `json:"class"`
	Rule      string         `json:"rule"`
}

// Decide follows the table's rules for a packet of the flow. in says whether a
// set of the table holds a key now.
func Decide(p plan.Plan, d plan.Direction, f Flow, c Connection, in func(set, key string) bool) Verdict {
	v := func(class plan.Class, format string, args ...any) Verdict {
		return Verdict{d, class, fmt.Sprintf(format, args...)}
	}
	if p.Classes.Of(d == plan.DirectionDown) == nil {
		return v(plan.Normal, "this direction has no classes: every flow is treated alike")
	}
	if p.Classes.Behaviour == (plan.Behaviour{}) {
		return decideExplicit(p, d, f, v)
	}
	for i, r := range p.Classes.Rules {
		if (r.Direction == "" || r.Direction == d) && fits(r, i, f, c, in) {
			return v(r.Class, "rule %d: %s", i+1, r)
		}
	}
	trusted := p.Classes.DSCP.TrustHome
	if d == plan.DirectionDown {
		trusted = p.Classes.DSCP.TrustFar
	}
	if class, ok := plan.ClassOfDSCP(f.DSCP); ok && trusted {
		return v(class, "its mark, DSCP %d, which is trusted", f.DSCP)
	}
	b := p.Classes.Behaviour
	names := slices.Contains([]uint16{53, 853}, f.Far.Port()) && (f.Protocol == "udp" || f.Protocol == "tcp" && f.Packet <= b.SmallPacket) || f.Protocol == "icmp"
	switch {
	case names:
		return v(plan.Voice, "DNS and ping of a machine, up to %d a second; above that it is normal", b.Names)
	case f.Protocol == "tcp":
		return decideTCP(b, d, f, c, in, v)
	case f.Protocol == "udp":
		home := fmt.Sprintf("%s . %d", f.Home.Addr(), f.Home.Port())
		switch {
		case in("swarm"+f.n(), home):
			return v(plan.Bulk, "swarm: more than %d partners of this port within a minute", b.Peers)
		case !c.Answered && c.Known:
			return v(plan.Normal, "nobody has answered it yet, and protection is earned")
		case !c.Known && !c.Unread && !slices.ContainsFunc([]string{"calm", "looks", "busy"}, func(set string) bool { return in(set+f.n()+"_"+string(d), f.Key()) }):
			return v(plan.Normal, "a flow that is not there: normal until it is answered; then voice, of small packets, while it stays calm (below %d packets and %s a second)", b.CalmPackets, b.CalmRate)
		}
		return decideCalm(b, d, f, c, in, v)
	}
	return v(plan.Normal, "nothing protects %s, and no rule names it", f.Protocol)
}

type verdict func(plan.Class, string, ...any) Verdict

func decideTCP(b plan.Behaviour, d plan.Direction, f Flow, c Connection, in func(set, key string) bool, v verdict) Verdict {
	first := b.FirstBytes
	if d == plan.DirectionUp {
		first = b.FirstUp
	}
	switch {
	case f.Packet <= 80:
		thinned := ""
		if d == plan.DirectionUp && b.Acks > 0 {
			thinned = fmt.Sprintf("; of slow connections' beyond %d a second, those that tell of no loss are left out, and every second of the others", b.Acks)
		}
		return v(plan.Interactive, "an acknowledgement without data (a packet of %s), ahead of the rest of its class%s", f.Packet, thinned)
	case c.Unread && f.Packet > b.SmallPacket:
		return v(plan.Normal, "what it has carried cannot be read here (install conntrack): its first %s are interactive, and from %s on it is bulk", first, b.LongBytes)
	case !c.Known && !c.Unread:
		return v(plan.Interactive, "a connection that is not there: its first %s", first)
	case c.Bytes > 0 && c.Bytes <= first:
		return v(plan.Interactive, "the first %s of a connection; it has carried %s", first, c.Bytes)
	case f.Packet <= b.SmallPacket:
		return decideCalm(b, d, f, c, in, v)
	}
	return decideData(b, c, v)
}

func decideCalm(b plan.Behaviour, d plan.Direction, f Flow, c Connection, in func(set, key string) bool, v verdict) Verdict {
	limit := fmt.Sprintf("%d packets and %s a second", b.CalmPackets, b.CalmRate)
	switch {
	case in("crowd"+f.n()+"_"+string(d), f.Home.Addr().String()):
		out := decideData(b, c, v)
		out.Rule = "crowd: the calm flows of its machine exceeded " + b.CalmOf(d).Short() + " within the last 10 s; " + out.Rule
		return out
	case !in("busy"+f.n()+"_"+string(d), f.Key()):
		if f.Protocol == "tcp" {
			return v(plan.Interactive, "calm: below %s, by TCP", limit)
		}
		if f.Packet > b.SmallPacket {
			return v(plan.Interactive, "calm: below %s; of packets larger than %s", limit, b.SmallPacket)
		}
		return v(plan.Voice, "calm: below %s, of small packets", limit)
	case f.Packet < 128:
		return v(plan.Interactive, "busy: it was above %s within the last 10 s; but a small packet, as acknowledgements are", limit)
	}
	out := decideData(b, c, v)
	out.Rule = "busy: it was above " + limit + " within the last 10 s; " + out.Rule
	return out
}

func decideData(b plan.Behaviour, c Connection, v verdict) Verdict {
	switch {
	case c.Bytes > b.LongBytes: // which marks it as bulk too
		return v(plan.Bulk, "it has carried %s, more than %s", c.Bytes, b.LongBytes)
	case c.Mark&isBulk != 0:
		return v(plan.Bulk, "its machine had more than %d heavy connections (%s) when it became one", b.HeavyOfHost, b.HeavyBytes)
	}
	return v(plan.Normal, "nothing makes it more, or less, than the others")
}

// fits reports whether a rule that somebody wrote matches.
func fits(r plan.Rule, i int, f Flow, c Connection, in func(set, key string) bool) bool {
	port := func(list []plan.PortRange, ports ...uint16) bool {
		return len(list) == 0 || slices.ContainsFunc(list, func(p plan.PortRange) bool {
			return f.hasPorts() && slices.ContainsFunc(ports, p.Contains)
		})
	}
	address := func(list []string, a netip.Addr) bool {
		return slices.ContainsFunc(list, func(h string) bool {
			kind, text := plan.KindOfHost(h)
			if kind != plan.HostAddr {
				return false
			}
			if n, err := netip.ParsePrefix(text); err == nil {
				return n.Contains(a)
			}
			return text == a.String()
		})
	}
	home := len(r.Home) == 0 || address(r.Home, f.Home.Addr()) ||
		hasMAC(r.Home) && in(fmt.Sprintf("home%s_%d", f.n(), i+1), f.Home.Addr().String())
	far := len(r.Far)+len(r.Domain) == 0 || address(r.Far, f.Far.Addr()) ||
		len(r.Domain) > 0 && in(fmt.Sprintf("far%s_%d", f.n(), i+1), f.Far.Addr().String())
	marked := len(r.DSCP) == 0 || slices.ContainsFunc(r.DSCP, func(s string) bool { n, err := plan.ParseDSCP(s); return err == nil && n == f.DSCP })
	protocol := r.Protocol == f.Protocol || r.Protocol == "" && !(r.HasPorts() && f.Protocol == "sctp")
	return home && far && marked && protocol && port(r.Port, f.Home.Port(), f.Far.Port()) && port(r.HomePort, f.Home.Port()) && port(r.FarPort, f.Far.Port()) &&
		(r.From == 0 || c.Bytes >= r.From) && (r.Below == 0 || c.Bytes > 0 && c.Bytes < r.Below)
}
