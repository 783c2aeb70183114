package nft

import (
	"fmt"
	"strings"
	"time"

	"unbloat/internal/classify"
	"unbloat/internal/plan"
)

// A renderer writes the table of one plan.
type renderer struct {
	p    plan.Plan
	root string
	w    *writer
}

// chains writes the chains of each direction, and the one for the router's own
// downloads.
func (r renderer) chains(t *classify.Table) {
	for _, c := range t.Chains {
		for _, l := range c.Limits {
			r.w.limit(l)
		}
		rules := make([]string, len(c.Steps))
		for i, s := range c.Steps {
			rules[i] = r.rule(c.Direction, s)
		}
		r.w.chain(c.Name, rules...)
	}
	if p := t.Policy(); p.Down != nil && p.DownByMark { // the router's own downloads go through the ifb too
		r.w.chain("down_own", "type filter hook input priority -149; policy accept;", fmt.Sprintf("iifname %q goto down_class", r.p.WAN))
	}
}

// hook writes the one chain that every forwarded packet traverses in either
// direction: a second one would cost as much time as most of the rules.
func (r renderer) hook() {
	rules := []string{"type filter hook postrouting priority -149; policy accept;"}
	if r.p.Classes.Up != nil {
		rules = append(rules, fmt.Sprintf("oifname %q goto up_class", r.p.WAN))
	}
	if r.p.Classes.Down != nil {
		rules = append(rules, fmt.Sprintf("iifname %q goto down_class", r.p.WAN))
	}
	r.w.chain("forwarded", rules...)
	r.washed()
}

// washed writes the chain that clears DSCP after the rules have read it, where
// CAKE does not wash.
func (r renderer) washed() {
	rules := []string{}
	add := func(wanted bool, s *plan.Shaper, device string) {
		if wanted && s != nil && !s.Wash {
			for _, ip := range []string{"ip", "ip6"} {
				rules = append(rules, fmt.Sprintf("%s %q %s dscp != 0x00 %s dscp set 0x00", device, r.p.WAN, ip, ip))
			}
		}
	}
	add(r.p.Classes.DSCP.WashUp, r.p.Up, "oifname")
	add(r.p.Classes.DSCP.WashDown, r.p.Down, "iifname")
	if len(rules) > 0 {
		r.w.chain("washed", append([]string{"type filter hook postrouting priority -148; policy accept;"}, rules...)...)
	}
}

// rule writes a step.
func (r renderer) rule(d plan.Direction, s classify.Step) string {
	var words []string
	for _, c := range s.If {
		words = append(words, cond(d, c))
	}
	for _, e := range s.Do {
		words = append(words, r.effect(d, e))
	}
	switch s.Then {
	case classify.Goto:
		words = append(words, "goto "+s.To)
	case classify.Jump:
		words = append(words, "jump "+s.To)
	case classify.Accept:
		words = append(words, "accept")
	case classify.Drop:
		words = append(words, "drop")
	}
	return strings.Join(words, " ")
}

func cond(d plan.Direction, c classify.Cond) string {
	switch c := c.(type) {
	case classify.Test:
		return test(c)
	case classify.Within:
		return within(d, c)
	case classify.Addresses:
		return fmt.Sprintf("%s { %s }", address(d, c.Far, c.Family), strings.Join(c.Names, ", "))
	case classify.Hardware:
		return fmt.Sprintf("ether saddr { %s }", strings.Join(c.MACs, ", "))
	case classify.Member:
		return fmt.Sprintf("%s @%s", key(d, c.Set), c.Set.Name)
	case classify.Meter:
		words := key(d, c.Set)
		for _, x := range c.Rates {
			words += " limit rate " + rate(x)
		}
		return fmt.Sprintf("update @%s { %s }", c.Set.Name, words)
	case classify.Exceeds:
		return fmt.Sprintf("limit name %q", c.Limit.Name)
	case classify.Alternate:
		return "numgen inc mod 2 0"
	}
	panic(fmt.Sprintf("nft: no condition %T", c))
}

// test writes a comparison. nft omits "==" before a plain value.
func test(t classify.Test) string {
	op := map[classify.Op]string{classify.Equal: "==", classify.NotEqual: "!=", classify.Less: "<", classify.AtMost: "<=", classify.More: ">", classify.AtLeast: ">="}[t.Op]
	masked := func(field, format string) string {
		value := "0"
		if t.Value != 0 {
			value = fmt.Sprintf(format, t.Value)
		}
		return fmt.Sprintf("%s and "+format+" %s %s", field, t.Mask, op, value)
	}
	named := func(field string, names map[uint64]string) string {
		if t.Op == classify.Equal {
			return field + " " + names[t.Value]
		}
		return field + " " + op + " " + names[t.Value]
	}
	number := func(field string) string {
		switch {
		case t.Op == classify.Between:
			return fmt.Sprintf("%s %d-%d", field, t.Value, t.To)
		case t.Op == classify.Equal:
			return fmt.Sprintf("%s %d", field, t.Value)
		}
		return fmt.Sprintf("%s %s %d", field, op, t.Value)
	}
	switch t.Field {
	case classify.Length:
		if t.Mask != 0 {
			return masked("meta length", "0x%08x")
		}
		return number("meta length")
	case classify.ProtocolIs:
		return named("meta l4proto", protocols())
	case classify.FamilyIs:
		return named("meta nfproto", map[uint64]string{4: "ipv4", 6: "ipv6"})
	case classify.FlagsOf: // the six flags without ECN's
		return "tcp flags & (fin | syn | rst | psh | ack | urg) == ack"
	case classify.SACKBlocks:
		return "tcp option sack exists"
	case classify.SecondWord:
		return masked("@th,32,32", "0x%08x")
	case classify.CtMark:
		return masked("ct mark", "0x%08x")
	case classify.CtBytes:
		return number("ct bytes")
	case classify.CtPackets:
		return number("ct packets")
	case classify.CtSent:
		return masked("ct original packets", "%d")
	case classify.CtReplied:
		return masked("ct reply packets", "%d")
	case classify.CtIsReply:
		return named("ct direction", map[uint64]string{0: "original", 1: "reply"})
	case classify.CtIsNew:
		return "ct state new"
	case classify.CtIsAnswered:
		return "ct status and seen-reply != seen-reply"
	}
	panic(fmt.Sprintf("nft: no field %d", t.Field))
}

func protocols() map[uint64]string {
	return map[uint64]string{classify.TCP: "tcp", classify.UDP: "udp", classify.ICMP: "icmp", classify.ICMPv6: "ipv6-icmp", classify.SCTP: "sctp", classify.ESP: "esp", classify.GRE: "gre"}
}

func within(d plan.Direction, w classify.Within) string {
	var values []string
	for _, x := range w.Ranges {
		switch w.Field {
		case classify.ProtocolIs:
			values = append(values, protocols()[uint64(x.From)])
		case classify.CodePoint:
			values = append(values, fmt.Sprintf("0x%02x", x.From))
		default:
			values = append(values, x.String())
		}
	}
	field := "meta l4proto"
	switch w.Field {
	case classify.CodePoint:
		field = ip(w.Family) + " dscp"
	case classify.HomePortIs, classify.FarPortIs:
		field = port(d, w.Field == classify.FarPortIs)
		if w.Protocol != 0 {
			field = protocols()[uint64(w.Protocol)] + strings.TrimPrefix(field, "th")
		}
	}
	return fmt.Sprintf("%s { %s }", field, strings.Join(values, ", "))
}

func (r renderer) effect(d plan.Direction, e classify.Effect) string {
	switch e := e.(type) {
	case classify.SetMark:
		if e.And != 0 {
			return fmt.Sprintf("ct mark set ct mark and 0x%08x", e.And)
		}
		return fmt.Sprintf("ct mark set ct mark or 0x%08x", e.Or)
	case classify.Remember:
		verb := "add"
		if e.Again {
			verb = "update"
		}
		return fmt.Sprintf("%s @%s { %s }", verb, e.Set.Name, key(d, e.Set))
	case classify.Classify:
		if e.ByMark {
			tin := uint32(e.Lane.Tin) << MarkShift
			return fmt.Sprintf("ct mark and 0x%08x != 0x%08x ct mark set ct mark and 0x%08x or 0x%08x", MarkMask, tin, ^uint32(MarkMask), tin)
		}
		return fmt.Sprintf("meta priority set %s%x", r.root, Minor(r.p, e.Direction, plan.Tin(e.Lane.Tin)))
	}
	panic(fmt.Sprintf("nft: no effect %T", e))
}

// ip returns nft's name for an IP version.
func ip(family int) string {
	if family == 6 {
		return "ip6"
	}
	return "ip"
}

// address writes the match of an end's address: on upload the home's is the
// source.
func address(d plan.Direction, far bool, family int) string {
	if far == (d == plan.DirectionUp) {
		return ip(family) + " daddr"
	}
	return ip(family) + " saddr"
}

func port(d plan.Direction, far bool) string {
	if far == (d == plan.DirectionUp) {
		return "th dport"
	}
	return "th sport"
}

// key writes the key of a set. A flow's key is the same in both directions.
func key(d plan.Direction, s *classify.Set) string {
	home, far, homePort, farPort := address(d, false, s.Family), address(d, true, s.Family), port(d, false), port(d, true)
	switch s.Key {
	case classify.HomeAddress:
		return home
	case classify.FarAddress:
		return far
	case classify.HomeAddressAndPort:
		return home + " . " + homePort
	case classify.FlowKey:
		return strings.Join([]string{"meta l4proto", home, homePort, far, farPort}, " . ")
	}
	return homePort + " . " + farPort
}

// kind writes the type of a set's key.
func kind(s *classify.Set) string {
	address := map[int]string{4: "ipv4_addr", 6: "ipv6_addr"}[s.Family]
	switch s.Key {
	case classify.HomeAddressAndPort:
		return address + " . inet_service"
	case classify.FlowKey:
		return strings.Join([]string{"inet_proto", address, "inet_service", address, "inet_service"}, " . ")
	case classify.PortPair:
		return "inet_service . inet_service"
	}
	return address
}

// rate writes the limit of a meter.
func rate(r classify.Rate) string {
	over, per := "", "second"
	if r.Over {
		over = "over "
	}
	if r.Per == time.Minute {
		per = "minute"
	}
	if r.Bytes {
		return fmt.Sprintf("%s%d bytes/%s burst %d bytes", over, r.N, per, r.Burst)
	}
	return fmt.Sprintf("%s%d/%s burst %d packets", over, r.N, per, r.Burst)
}

// span writes a timeout as nft lists it: in its largest unit.
func span(d time.Duration) string {
	for _, u := range []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}} {
		if d >= u.of && d%u.of == 0 {
			return fmt.Sprintf("%d%s", d/u.of, u.name)
		}
	}
	return fmt.Sprintf("%ds", d/time.Second)
}

// Minor returns the minor number of a tin's class below the shaper's root
// qdisc: with CAKE the number of the tin, with HTB one that its inner class
// doesn't use.
func Minor(p plan.Plan, d plan.Direction, t plan.Tin) int {
	s := p.Up
	if d == plan.DirectionDown {
		s = p.Down
	}
	if s != nil && s.AQM == plan.CAKE {
		return int(t)
	}
	return HTBMinor(t)
}

// HTBMinor returns the minor number of a tin's HTB class.
func HTBMinor(t plan.Tin) int { return 0x10 + int(t) }
