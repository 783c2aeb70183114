package nft

import (
	"fmt"
	"slices"
	"strings"

	"unbloat/internal/plan"
)

// explicit returns the rules that somebody wrote, in their order.
func (r renderer) explicit(d plan.Direction) []string {
	var out []string
	for i, x := range r.p.Classes.Rules {
		out = append(out, r.learn(d, i, x)...)
		if x.Direction != "" && x.Direction != d {
			continue
		}
		for _, m := range r.matches(d, i, x) {
			out = append(out, strings.TrimSpace(m+" goto "+fmt.Sprintf("%s_%s", d, x.Class)))
		}
	}
	return out
}

// learn returns what remembers the addresses of machines that a rule knows by
// their MAC address: only what they send carries it.
func (r renderer) learn(d plan.Direction, i int, x plan.Rule) []string {
	if d != plan.DirectionUp {
		return nil
	}
	var macs []string
	for _, h := range x.Home {
		if kind, mac := plan.KindOfHost(h); kind == plan.HostMAC {
			macs = append(macs, mac)
		}
	}
	if macs == nil {
		return nil
	}
	var out []string
	for _, f := range families() {
		out = append(out, fmt.Sprintf("meta nfproto %s ether saddr { %s } update @home%s_%d { %s saddr }", f.proto, strings.Join(macs, ", "), f.n, i+1, f.ip))
	}
	return out
}

// matches returns the alternatives by which packets of a direction fit a rule:
// nft has no "or" between things of different kinds.
func (r renderer) matches(d plan.Direction, i int, x plan.Rule) []string {
	var out []string
	for _, f := range families() {
		ends := r.endpoints(d, i, x, f)
		for _, m := range ends {
			for _, port := range ports(d, x) {
				parts := []string{}
				if m != "" {
					parts = append(parts, m)
				}
				if p := protocol(x, f); p != "" {
					parts = append(parts, p)
				}
				if port != "" {
					parts = append(parts, port)
				}
				if len(x.DSCP) > 0 {
					var marks []string
					for _, s := range x.DSCP {
						v, _ := plan.ParseDSCP(s)
						marks = append(marks, fmt.Sprintf("0x%02x", v))
					}
					parts = append(parts, fmt.Sprintf("%s dscp { %s }", f.ip, strings.Join(marks, ", ")))
				} else if m == "" {
					parts = append([]string{"meta nfproto " + f.proto}, parts...)
				}
				if x.From > 0 {
					parts = append(parts, fmt.Sprintf("ct bytes >= %d", int64(x.From)))
				}
				if x.Below > 0 {
					parts = append(parts, fmt.Sprintf("ct bytes 1-%d", int64(x.Below)-1))
				}
				out = append(out, strings.Join(parts, " "))
			}
		}
	}
	return out
}

// protocol returns the match of a rule's protocol.
func protocol(x plan.Rule, f family) string {
	switch {
	case x.Protocol == "icmp" && f.n == "6":
		return "meta l4proto ipv6-icmp"
	case x.Protocol != "":
		return "meta l4proto " + x.Protocol
	case len(x.Port)+len(x.HomePort)+len(x.FarPort) > 0:
		return "meta l4proto { tcp, udp }"
	}
	return ""
}

// ports returns the alternatives of a rule's ports; one empty if it has none.
func ports(d plan.Direction, x plan.Rule) []string {
	home, far := "th sport", "th dport"
	if d == plan.DirectionDown {
		home, far = far, home
	}
	var both []string
	if len(x.HomePort) > 0 {
		both = append(both, home+" "+portSet(x.HomePort))
	}
	if len(x.FarPort) > 0 {
		both = append(both, far+" "+portSet(x.FarPort))
	}
	rest := strings.Join(both, " ")
	if len(x.Port) == 0 {
		return []string{rest}
	}
	return []string{
		strings.TrimSpace(home + " " + portSet(x.Port) + " " + rest),
		strings.TrimSpace(far + " " + portSet(x.Port) + " " + rest),
	}
}

func portSet(ps []plan.PortRange) string {
	var out []string
	for _, p := range ps {
		out = append(out, p.String())
	}
	return "{ " + strings.Join(out, ", ") + " }"
}

// endpoints returns the alternatives of a rule's addresses for one version of
// IP: one empty if it names none; none if it names only those of the other.
func (r renderer) endpoints(d plan.Direction, i int, x plan.Rule, f family) []string {
	home, _, far, _ := f.ends(d)
	homes := addresses(home, x.Home, f)
	if hasMAC(x.Home) {
		homes = append(homes, fmt.Sprintf("%s @home%s_%d", home, f.n, i+1))
	}
	fars := addresses(far, x.Far, f)
	if len(x.Domain) > 0 {
		fars = append(fars, fmt.Sprintf("%s @far%s_%d", far, f.n, i+1))
	}
	if len(x.Home) == 0 {
		homes = []string{""}
	}
	if len(x.Far)+len(x.Domain) == 0 {
		fars = []string{""}
	}
	var out []string
	for _, h := range homes {
		for _, fr := range fars {
			out = append(out, strings.TrimSpace(h+" "+fr))
		}
	}
	return out
}

func hasMAC(home []string) bool {
	return slices.ContainsFunc(home, func(h string) bool { kind, _ := plan.KindOfHost(h); return kind == plan.HostMAC })
}

// addresses returns the match of those of the list that are of the family.
func addresses(end string, list []string, f family) []string {
	var mine []string
	for _, h := range list {
		if kind, a := plan.KindOfHost(h); kind == plan.HostAddr && strings.Contains(a, ":") == (f.n == "6") {
			mine = append(mine, a)
		}
	}
	if mine == nil {
		return nil
	}
	return []string{fmt.Sprintf("%s { %s }", end, strings.Join(mine, ", "))}
}

// marks returns the rules of trusted DSCP.
func (r renderer) marks(d plan.Direction) []string {
	trusted := r.p.Classes.DSCP.TrustHome
	if d == plan.DirectionDown {
		trusted = r.p.Classes.DSCP.TrustFar
	}
	if !trusted {
		return nil
	}
	byClass := map[plan.Class][]string{}
	for v := range uint8(64) {
		if c, ok := plan.ClassOfDSCP(v); ok {
			byClass[c] = append(byClass[c], fmt.Sprintf("0x%02x", v))
		}
	}
	var out []string
	for _, f := range families() {
		for _, c := range plan.AllClasses() {
			if len(byClass[c]) > 0 {
				out = append(out, fmt.Sprintf("%s dscp { %s } goto %s_%s", f.ip, strings.Join(byClass[c], ", "), d, c))
			}
		}
	}
	return out
}

// ruleSets writes the sets that rules look up: machines by their MAC address,
// which their own packets fill, and domains, which the resolver fills.
func (r renderer) ruleSets() {
	for i, x := range r.p.Classes.Rules {
		for _, f := range families() {
			if hasMAC(x.Home) {
				r.w.set(fmt.Sprintf("home%s_%d", f.n, i+1), f.addr, "1h", 1024)
			}
			if len(x.Domain) > 0 {
				r.w.set(fmt.Sprintf("far%s_%d", f.n, i+1), f.addr, "1d", 4096)
			}
		}
	}
}
