package classify

import (
	"net/netip"
	"slices"
	"strings"
)

// explicit are the steps of the rules that somebody wrote, in their order.
func (w way) explicit() []Step {
	var out []Step
	for i, x := range w.policy.Rules {
		out = append(out, w.learn(i, x)...)
		if x.Direction != "" && x.Direction != w.d {
			continue
		}
		for _, m := range w.alternatives(i, x) {
			s := w.then(w.heard(x), m...)
			s.Why = Reason{Code: ByRule, Rule: i}
			out = append(out, s)
		}
	}
	return out
}

// learn remembers the addresses of machines that a rule knows by their MAC
// address: only what they send carries it.
func (w way) learn(i int, x Rule) []Step {
	if w.d != Up {
		return nil
	}
	var macs []string
	for _, h := range x.Home {
		if kind, mac := KindOfHost(h); kind == HostMAC {
			macs = append(macs, mac)
		}
	}
	if macs == nil {
		return nil
	}
	var out []Step
	for _, f := range families() {
		out = append(out, does(Remember{w.sets[homeSet(f, i)], true}, is(FamilyIs, uint64(f)), Hardware{macs}))
	}
	return out
}

// alternatives are the ways in which packets of a direction fit a rule: a step
// has no "or" between things of different kinds.
func (w way) alternatives(i int, x Rule) [][]Cond {
	var out [][]Cond
	for _, f := range families() {
		for _, ends := range w.endpoints(i, x, f) {
			for _, ports := range x.alternatives() {
				parts := slices.Concat(ends, x.protocol(f), ports)
				if len(x.DSCP) > 0 {
					var marks []PortRange
					for _, s := range x.DSCP {
						v, _ := ParseDSCP(s)
						marks = append(marks, PortRange{uint16(v), uint16(v)})
					}
					parts = append(parts, Within{Field: CodePoint, Family: f, Ranges: marks})
				} else if ends == nil {
					parts = append([]Cond{is(FamilyIs, uint64(f))}, parts...)
				}
				if x.From > 0 {
					parts = append(parts, Test{Field: CtBytes, Op: AtLeast, Value: uint64(x.From)})
				}
				if x.Below > 0 {
					parts = append(parts, first(x.Below-1))
				}
				out = append(out, parts)
			}
		}
	}
	return out
}

// protocol is what a rule asks of the protocol.
func (r Rule) protocol(family int) []Cond {
	switch {
	case r.Protocol == "icmp" && family == 6:
		return []Cond{is(ProtocolIs, ICMPv6)}
	case r.Protocol != "":
		return []Cond{is(ProtocolIs, uint64(Number(r.Protocol)))}
	case r.HasPorts():
		return []Cond{Within{Field: ProtocolIs, Ranges: []PortRange{{TCP, TCP}, {UDP, UDP}}}}
	}
	return nil
}

// alternatives are those of a rule's ports; one empty if it has none.
func (r Rule) alternatives() [][]Cond {
	var both []Cond
	if len(r.HomePort) > 0 {
		both = append(both, Within{Field: HomePortIs, Ranges: r.HomePort})
	}
	if len(r.FarPort) > 0 {
		both = append(both, Within{Field: FarPortIs, Ranges: r.FarPort})
	}
	if len(r.Port) == 0 {
		return [][]Cond{both}
	}
	return [][]Cond{
		append([]Cond{Within{Field: HomePortIs, Ranges: r.Port}}, both...),
		append([]Cond{Within{Field: FarPortIs, Ranges: r.Port}}, both...),
	}
}

// endpoints are the alternatives of a rule's addresses for one version of IP:
// one empty if it names none; none if it names only those of the other.
func (w way) endpoints(i int, x Rule, f int) [][]Cond {
	homes, fars := addresses(x.Home, false, f), addresses(x.Far, true, f)
	if x.hasMAC() {
		homes = append(homes, []Cond{Member{w.sets[homeSet(f, i)]}})
	}
	if len(x.Domain) > 0 {
		fars = append(fars, []Cond{Member{w.sets[farSet(f, i)]}})
	}
	if len(x.Home) == 0 {
		homes = [][]Cond{nil}
	}
	if len(x.Far)+len(x.Domain) == 0 {
		fars = [][]Cond{nil}
	}
	var out [][]Cond
	for _, h := range homes {
		for _, far := range fars {
			out = append(out, append(slices.Clone(h), far...))
		}
	}
	return out
}

// hasMAC reports whether the rule knows a machine by its MAC address.
func (r Rule) hasMAC() bool {
	return slices.ContainsFunc(r.Home, func(h string) bool { kind, _ := KindOfHost(h); return kind == HostMAC })
}

// addresses asks for those of the list that are of the family.
func addresses(list []string, far bool, family int) [][]Cond {
	a := Addresses{Far: far, Family: family}
	for _, h := range list {
		if kind, text := KindOfHost(h); kind == HostAddr && strings.Contains(text, ":") == (family == 6) {
			a.Names, a.nets = append(a.Names, text), append(a.nets, network(text))
		}
	}
	if a.Names == nil {
		return nil
	}
	return [][]Cond{{a}}
}

// network reads an address or network that KindOfHost gave.
func network(text string) netip.Prefix {
	if n, err := netip.ParsePrefix(text); err == nil {
		return n
	}
	a, _ := netip.ParseAddr(text)
	return netip.PrefixFrom(a, a.BitLen())
}

// trusted are the steps of DSCP that is trusted.
func (w way) trusted() []Step {
	trust := w.policy.Trust.TrustHome
	if w.d == Down {
		trust = w.policy.Trust.TrustFar
	}
	if !trust {
		return nil
	}
	byClass := map[Class][]PortRange{}
	for v := range uint8(64) {
		if c, ok := ClassOfDSCP(v); ok {
			byClass[c] = append(byClass[c], PortRange{uint16(v), uint16(v)})
		}
	}
	var out []Step
	for _, f := range families() {
		for _, c := range AllClasses() {
			if len(byClass[c]) > 0 {
				out = append(out, w.then(string(c), Within{Field: CodePoint, Family: f, Ranges: byClass[c]}).because(ByDSCP))
			}
		}
	}
	return out
}
