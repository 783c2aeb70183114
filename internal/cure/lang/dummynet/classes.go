package dummynet

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"unbloat/internal/cure/plan"
	"unbloat/unit"
)

// Numbers of the queues of classes: ten times the pipe's number plus the
// class's index.
const (
	classQueueOf = 10
	classSlots   = MaxSlots // the limit; CoDel keeps them shorter
	mostRules    = 100      // lines of ipfw(8) that a plan may have
)

// sharesOf returns the shares of a direction's classes; nil if it has none, or
// if dummynet can't have them. Each class's queue has CoDel, in place of
// fq_codel.
func sharesOf(p plan.Plan, s *plan.Shaper) []plan.Share {
	if s.AQM != plan.FQCoDel {
		return nil
	}
	return p.Classes.Of(s == p.Down)
}

// classQueue returns the number of a class's queue.
func classQueue(pipe int, c plan.Class) int {
	return pipe*classQueueOf + 1 + slices.Index(plan.AllClasses(), c)
}

// weight returns a class's share of its pipe as dummynet's weight, 1…100.
func weight(sh plan.Share, r unit.Rate) int {
	return min(max(int(sh.Guarantee*100/max(r, 1)), 1), MaxWeight)
}

// codel writes the CoDel parameters of a class's queue.
func codel(s plan.Shaper) string {
	ecn := "noecn"
	if s.ECN {
		ecn = "ecn"
	}
	return fmt.Sprintf("target %s interval %s %s", unit.MsOrUs(s.Target), unit.MsOrUs(s.Interval), ecn)
}

// addClasses makes the pipe of a direction with classes: WF2Q+ shares it by
// weight between one queue per class, each with CoDel. fq_codel would ignore
// the classes.
func (c *Config) addClasses(number int, s plan.Shaper, shares []plan.Share) error {
	if s.Rate < 1 || s.Rate > MaxRate {
		return fmt.Errorf("rate %s is not within 1 bit/s…%s", s.Rate, MaxRate)
	}
	c.Pipes = append(c.Pipes, Pipe{Number: number, Bandwidth: s.Rate})
	c.Scheds = append(c.Scheds, Sched{Number: number, Pipe: number, Type: "wf2q+"})
	for _, sh := range shares {
		c.Queues = append(c.Queues, Queue{Number: classQueue(number, sh.Class), Sched: number, Weight: weight(sh, s.Rate), Slots: classSlots, CoDel: codel(s)})
	}
	return nil
}

// A match is one alternative of a rule, in ipfw(8)'s syntax.
type match struct {
	class            plan.Class
	proto            string // ip, tcp, udp, icmp, ipv6-icmp, sctp, esp, gre
	home, far        string // addresses of one family, "any"
	homePort, farEnd string // ports, "" for any
	options          string // "dscp ef"
}

// ipfw writes the match for packets that leave by the WAN, or enter it.
func (m match) ipfw(d plan.Direction, wan string) string {
	from, fromPort, to, toPort, way := m.home, m.homePort, m.far, m.farEnd, "out xmit "+wan
	if d == plan.DirectionDown {
		from, fromPort, to, toPort, way = m.far, m.farEnd, m.home, m.homePort, "in recv "+wan
	}
	w := []string{m.proto, "from", from}
	if fromPort != "" {
		w = append(w, fromPort)
	}
	w = append(w, "to", to)
	if toPort != "" {
		w = append(w, "dst-port", toPort)
	}
	if m.options != "" {
		w = append(w, m.options)
	}
	return strings.Join(append(w, way), " ")
}

// matches returns the matches that decide a packet's class; the first wins: the
// plan's rules, then DNS, ping and acknowledgements.
func matches(p plan.Plan, d plan.Direction) []match {
	var out []match
	for _, r := range p.Classes.Rules {
		if r.Direction == "" || r.Direction == d {
			out = append(out, alternatives(r)...)
		}
	}
	for _, proto := range []string{"udp", "tcp"} {
		out = append(out, match{class: plan.Voice, proto: proto, home: "any", far: "any", farEnd: "53"})
	}
	return append(append(out, pings(p)...), match{class: plan.Interactive, proto: "tcp", home: "any", far: "any", options: "tcpflags ack iplen 0-80"})
}

// pings returns what matches ping, unless that has passed as control traffic.
func pings(p plan.Plan) (out []match) {
	if p.Control {
		return nil
	}
	for _, proto := range []string{"icmp", "ipv6-icmp"} {
		out = append(out, match{class: plan.Voice, proto: proto, home: "any", far: "any"})
	}
	return out
}

// alternatives returns a rule's matches: one per protocol, IP version and end
// that the port may be at.
func alternatives(r plan.Rule) []match {
	protocols := []string{cmp.Or(r.Protocol, "ip")}
	switch {
	case r.Protocol == "icmp":
		protocols = []string{"icmp", "ipv6-icmp"}
	case r.Protocol == "" && r.HasPorts():
		protocols = []string{"udp", "tcp"}
	}
	var out []match
	for _, proto := range protocols {
		for _, pair := range families(r.Home, r.Far) {
			for _, e := range r.PortsByEnd() {
				out = append(out, match{r.Class, proto, pair[0], pair[1], portList(e.Home), portList(e.Far), dscpOption(r.DSCP)})
			}
		}
	}
	return out
}

// families pairs the addresses of both ends by IP version.
func families(home, far []string) (out [][2]string) {
	if len(home)+len(far) == 0 {
		return [][2]string{{"any", "any"}}
	}
	for _, v6 := range []bool{false, true} {
		of := func(list []string) (string, bool) {
			if len(list) == 0 {
				return "any", true
			}
			kept := slices.DeleteFunc(slices.Clone(list), func(a string) bool { return strings.Contains(a, ":") != v6 })
			return strings.Join(kept, ","), len(kept) > 0
		}
		h, okH := of(home)
		f, okF := of(far)
		if okH && okF {
			out = append(out, [2]string{h, f})
		}
	}
	return out
}

func portList(ports []plan.PortRange) string {
	var out []string
	for _, p := range ports {
		out = append(out, p.String())
	}
	return strings.Join(out, ",")
}

// dscpOption writes code points as `ipfw list` does: by name, sorted.
func dscpOption(list []string) string {
	var codes []uint8
	for _, s := range list {
		if n, err := plan.ParseDSCP(s); err == nil && !slices.Contains(codes, n) {
			codes = append(codes, n)
		}
	}
	if codes == nil {
		return ""
	}
	slices.Sort(codes)
	var names []string
	for _, n := range codes {
		names = append(names, dscpName(n))
	}
	return "dscp " + strings.Join(names, ",")
}

// dscpName returns ipfw(8)'s name of a code point, or its number if it has
// none.
func dscpName(n uint8) string {
	class, drop := n>>3, n>>1&3
	switch {
	case n == 0:
		return "be"
	case n == 44:
		return "va"
	case n == 46:
		return "ef"
	case n&7 == 0:
		return fmt.Sprintf("cs%d", class)
	case n&1 == 0 && class >= 1 && class <= 4 && drop >= 1:
		return fmt.Sprintf("af%d%d", class, drop)
	}
	return strconv.Itoa(int(n))
}

// addClassRules adds the rules of a direction with classes.
func (c *Config) addClassRules(p plan.Plan, d plan.Direction, number int) {
	add := func(class plan.Class, text string) {
		c.Rules = append(c.Rules, Rule{Number: FirstRule + len(c.Rules), Action: "queue", Target: classQueue(number, class), Match: text})
	}
	for _, m := range matches(p, d) {
		add(m.class, m.ipfw(d, p.WAN))
	}
	add(plan.Normal, match{proto: "ip", home: "any", far: "any"}.ipfw(d, p.WAN))
}
