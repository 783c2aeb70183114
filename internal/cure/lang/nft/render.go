package nft

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"unbloat/internal/cure/classify"
	"unbloat/internal/cure/plan"
	"unbloat/unit"
)

// A renderer writes the table of one plan's rules.
type renderer struct {
	p    plan.Plan
	root string
	w    *writer
}

// families are the versions of IP.
func families() []int { return []int{4, 6} }

// How long an address stays that a rule knows by a MAC address, which only what a machine
// sends carries, or by a domain, which the resolver fills; and how many.
const (
	machineFor, machines = time.Hour, 1024
	domainFor, domains   = 24 * time.Hour, 4096
)

func homeSet(family, i int) string { return fmt.Sprintf("home%d_%d", family, i+1) }
func farSet(family, i int) string  { return fmt.Sprintf("far%d_%d", family, i+1) }

// rules writes the chains by which nftables itself gives packets their classes: those that
// the plan's rules name and those whose marks are trusted; all others are normal.
func (r renderer) rules() {
	c := r.p.Classes
	for _, x := range []struct {
		d      plan.Direction
		s      *plan.Shaper
		shares []plan.Share
		trust  bool
	}{{plan.DirectionUp, r.p.Up, c.Up, c.DSCP.TrustHome}, {plan.DirectionDown, r.p.Down, c.Down, c.DSCP.TrustFar}} {
		if x.shares == nil {
			continue
		}
		byMark := x.s != nil && x.s.IngressOf != ""
		for _, sh := range x.shares {
			r.w.chain(string(x.d)+"_"+string(sh.Class), r.gives(x.d, sh.Tin, byMark))
		}
		lines := r.learns(x.d)
		for i, rule := range c.Rules {
			lines = append(lines, r.fits(x.d, x.d, i, "goto "+string(x.d)+"_"+string(rule.Class))...)
		}
		if x.trust {
			lines = append(lines, trusted(x.d)...)
		}
		if byMark { // of a connection that no rule names any longer
			lines = append(lines, fmt.Sprintf("ct mark and 0x%08x != 0 ct mark set ct mark and 0x%08x", classify.MarkMask, ^uint32(classify.MarkMask)))
		} else {
			lines = append(lines, "goto "+string(x.d)+"_"+string(plan.Normal))
		}
		r.w.chain(string(x.d)+"_class", lines...)
		if byMark { // the router's own downloads go through the ifb too
			r.w.chain("down_own", "type filter hook input priority -149; policy accept;", fmt.Sprintf("iifname %q goto down_class", r.p.WAN))
		}
	}
	hook := []string{"type filter hook postrouting priority -149; policy accept;"}
	if c.Up != nil {
		hook = append(hook, fmt.Sprintf("oifname %q goto up_class", r.p.WAN))
	}
	if c.Down != nil {
		hook = append(hook, fmt.Sprintf("iifname %q goto down_class", r.p.WAN))
	}
	r.w.chain("forwarded", hook...)
}

// gives is the rule that gives a packet its class, or its connection's mark that of what
// arrives next: packets reach an ifb before netfilter.
func (r renderer) gives(d plan.Direction, t plan.Tin, byMark bool) string {
	if byMark {
		tin := uint32(t) << classify.MarkShift
		return fmt.Sprintf("ct mark and 0x%08x != 0x%08x ct mark set ct mark and 0x%08x or 0x%08x", classify.MarkMask, tin, ^uint32(classify.MarkMask), tin)
	}
	return fmt.Sprintf("meta priority set %s%x", r.root, r.p.Minor(d, t))
}

// names writes the chains by which rules name traffic for the BPF program. It sets no
// mark: what leaves gets a priority that no shaper has, with the tins of both ways, and the
// program remembers that of what arrives.
func (r renderer) names() {
	c := r.p.Classes
	both := !slices.ContainsFunc(c.Rules, func(x plan.Rule) bool { return x.Direction != "" || len(x.DSCP) > 0 })
	lines, used := r.learns(plan.DirectionUp), []string{}
	tin := func(d plan.Direction, class plan.Class) plan.Tin { s, _ := c.Share(d, class); return s.Tin }
	// named is the chain of what leaves as up, and what arrives as down; "" is none.
	named := func(down, up plan.Class) string {
		name := "named"
		var tins [2]plan.Tin
		for i, x := range []struct {
			d     plan.Direction
			class plan.Class
		}{{plan.DirectionDown, down}, {plan.DirectionUp, up}} {
			if x.class == "" {
				name += "_none"
				continue
			}
			name, tins[i] = name+"_"+string(x.class), tin(x.d, x.class)
		}
		if !slices.Contains(used, name) {
			used = append(used, name)
			r.w.chain(name, fmt.Sprintf("meta priority set %s1%x%x", r.root, int(tins[0]), int(tins[1])))
		}
		return "goto " + name
	}
	upward := func(down plan.Class) (out []string) {
		for i, x := range c.Rules {
			out = append(out, r.fits(plan.DirectionUp, plan.DirectionUp, i, named(down, x.Class))...)
		}
		return out
	}
	switch {
	case both:
		for i, x := range c.Rules {
			lines = append(lines, r.fits(plan.DirectionUp, plan.DirectionUp, i, named(x.Class, x.Class))...)
		}
	default:
		seen := []plan.Class{}
		for i, x := range c.Rules {
			if len(x.DSCP) > 0 { // what arrives has marks of its own
				continue
			}
			more := r.fits(plan.DirectionUp, plan.DirectionDown, i, "goto down_"+string(x.Class))
			if len(more) > 0 && !slices.Contains(seen, x.Class) {
				seen = append(seen, x.Class)
				r.w.chain("down_"+string(x.Class), append(upward(x.Class), named(x.Class, ""))...)
			}
			lines = append(lines, more...)
		}
		lines = append(lines, upward("")...)
	}
	r.w.chain("up_class", lines...)
	r.w.chain("forwarded", "type filter hook postrouting priority -149; policy accept;", fmt.Sprintf("oifname %q goto up_class", r.p.WAN))
}

// sets writes those that rules need.
func (r renderer) sets() {
	for i, x := range r.p.Classes.Rules {
		for _, f := range families() {
			if x.HasMAC() {
				r.w.set(homeSet(f, i), f, machineFor, machines)
			}
			if len(x.Domain) > 0 {
				r.w.set(farSet(f, i), f, domainFor, domains)
			}
		}
	}
}

// learns are the rules that remember the addresses of machines that a rule knows by
// their MAC address.
func (r renderer) learns(d plan.Direction) (out []string) {
	if d != plan.DirectionUp {
		return nil
	}
	for i, x := range r.p.Classes.Rules {
		var macs []string
		for _, h := range x.Home {
			if kind, mac := plan.KindOfHost(h); kind == plan.HostMAC {
				macs = append(macs, mac)
			}
		}
		for _, f := range families() {
			if macs != nil {
				out = append(out, fmt.Sprintf("meta nfproto ipv%d ether saddr { %s } update @%s { %s }", f, strings.Join(macs, ", "), homeSet(f, i), address(d, false, f)))
			}
		}
	}
	return out
}

// fits are the ways in which packets that go in a direction fit the i-th rule, if that is
// for what goes in of, each with what becomes of them: a rule of nftables has no "or"
// between things of different kinds.
func (r renderer) fits(d, of plan.Direction, i int, verdict string) (out []string) {
	x := r.p.Classes.Rules[i]
	if x.Direction != "" && x.Direction != of {
		return nil
	}
	for _, f := range families() {
		for _, ends := range endpoints(d, i, x, f) {
			for _, ports := range portsOf(d, x) {
				words := slices.Clone(ends)
				switch {
				case x.Protocol == "icmp" && f == 6:
					words = append(words, "meta l4proto ipv6-icmp")
				case x.Protocol != "":
					words = append(words, "meta l4proto "+x.Protocol)
				case x.HasPorts():
					words = append(words, "meta l4proto { tcp, udp }")
				}
				words = append(words, ports...)
				switch {
				case len(x.DSCP) > 0:
					words = append(words, marked(f, x.DSCP))
				case ends == nil:
					words = append([]string{fmt.Sprintf("meta nfproto ipv%d", f)}, words...)
				}
				if x.From > 0 {
					words = append(words, fmt.Sprintf("ct bytes >= %d", x.From))
				}
				if x.Below > 0 {
					words = append(words, fmt.Sprintf("ct bytes 1-%d", x.Below-1))
				}
				out = append(out, strings.Join(append(words, verdict), " "))
			}
		}
	}
	return out
}

// marked matches code points.
func marked(family int, list []string) string {
	var values []string
	for _, s := range list {
		v, _ := plan.ParseDSCP(s)
		values = append(values, fmt.Sprintf("0x%02x", v))
	}
	return ip(family) + " dscp { " + strings.Join(values, ", ") + " }"
}

// portsOf are the alternatives of a rule's ports; one empty if it has none.
func portsOf(d plan.Direction, x plan.Rule) [][]string {
	match := func(far bool, list []plan.PortRange) string {
		var values []string
		for _, p := range list {
			values = append(values, p.String())
		}
		return port(d, far) + " { " + strings.Join(values, ", ") + " }"
	}
	var both []string
	if len(x.HomePort) > 0 {
		both = append(both, match(false, x.HomePort))
	}
	if len(x.FarPort) > 0 {
		both = append(both, match(true, x.FarPort))
	}
	if len(x.Port) == 0 {
		return [][]string{both}
	}
	return [][]string{append([]string{match(false, x.Port)}, both...), append([]string{match(true, x.Port)}, both...)}
}

// endpoints are the alternatives of a rule's addresses for one version of IP: one empty
// if it names none; none if it names only those of the other.
func endpoints(d plan.Direction, i int, x plan.Rule, f int) [][]string {
	of := func(far bool, list []string) (out [][]string) {
		var names []string
		for _, h := range list {
			if kind, text := plan.KindOfHost(h); kind == plan.HostAddr && strings.Contains(text, ":") == (f == 6) {
				names = append(names, text)
			}
		}
		if names != nil {
			out = append(out, []string{fmt.Sprintf("%s { %s }", address(d, far, f), strings.Join(names, ", "))})
		}
		return out
	}
	homes, fars := of(false, x.Home), of(true, x.Far)
	if x.HasMAC() {
		homes = append(homes, []string{address(d, false, f) + " @" + homeSet(f, i)})
	}
	if len(x.Domain) > 0 {
		fars = append(fars, []string{address(d, true, f) + " @" + farSet(f, i)})
	}
	if len(x.Home) == 0 {
		homes = [][]string{nil}
	}
	if len(x.Far)+len(x.Domain) == 0 {
		fars = [][]string{nil}
	}
	var out [][]string
	for _, h := range homes {
		for _, far := range fars {
			out = append(out, append(slices.Clone(h), far...))
		}
	}
	return out
}

// trusted are the rules of marks that are trusted.
func trusted(d plan.Direction) (out []string) {
	for _, f := range families() {
		for _, c := range plan.AllClasses() {
			var codes []string
			for v := range uint8(64) {
				if of, ok := classify.ClassOfDSCP(v); ok && of == c {
					codes = append(codes, fmt.Sprint(v))
				}
			}
			if codes != nil {
				out = append(out, marked(f, codes)+" goto "+string(d)+"_"+string(c))
			}
		}
	}
	return out
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

// limited writes the chain that drops what is above the limits of machines. Behind NAT the
// home's addresses are those of packets that are forwarded.
func (r renderer) limited() {
	const burst = 100 * time.Millisecond // of its rate, at least leastBurst
	const leastBurst = 20_000            // bytes
	rules := []string{"type filter hook forward priority -1; policy accept;"}
	for _, l := range r.p.Limits {
		_, machine := plan.KindOfHost(l.Machine)
		family := 4
		if strings.Contains(machine, ":") {
			family = 6
		}
		for _, x := range []struct {
			d      plan.Direction
			device string
			rate   unit.Rate
		}{{plan.DirectionDown, "iifname", l.Down}, {plan.DirectionUp, "oifname", l.Up}} {
			if x.rate > 0 {
				bytes := int64(x.rate) / 8
				rules = append(rules, fmt.Sprintf("%s %q %s %s limit rate over %d bytes/second burst %d bytes drop", x.device, r.p.WAN, address(x.d, false, family), machine, bytes, max(int64(float64(bytes)*burst.Seconds()), leastBurst)))
			}
		}
	}
	if len(rules) > 1 {
		r.w.chain("limited", rules...)
	}
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
