package dummynet

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"unbloat/internal/cure/plan"
)

// divide gives a limiter one queue with CoDel per class, which share it by
// weight.
func (l *Limiter) divide(s plan.Shaper, shares []plan.Share) {
	l.Sched = "wf2q+"
	l.Target, l.Interval, l.Quantum, l.Limit, l.Flows, l.ECN = "", "", "", "", "", ""
	l.Children = nil
	for _, sh := range shares {
		q := LimiterQueue{
			Name: l.Name + "_" + string(sh.Class), Enabled: "on", Mask: "none",
			Weight: strconv.Itoa(weight(sh, s.Rate)), Qlimit: strconv.Itoa(classSlots), AQM: "codel", Target: wholeMs(s.Target), Interval: wholeMs(s.Interval),
		}
		if s.ECN {
			q.ECN = "on"
		}
		l.Children = append(l.Children, q)
	}
}

// words returns the part of the queue's line in rules.limiter after the pipe's
// number.
func (q LimiterQueue) words() string {
	var w []string
	if q.Qlimit != "" {
		w = append(w, "queue", q.Qlimit)
	}
	if q.Weight != "" {
		w = append(w, "weight", q.Weight)
	}
	w = append(w, q.AQM)
	if q.AQM == "codel" {
		ecn := "noecn"
		if q.ECN == "on" {
			ecn = "ecn"
		}
		w = append(w, "target", q.Target+"ms", "interval", q.Interval+"ms", ecn)
	}
	return strings.Join(w, " ")
}

// A RuleEnd is one end in a rule of pfSense's; "" is any.
type RuleEnd struct{ Address, Port string }

// classRules returns the rules of a plan with classes in pf's order: the last
// match wins. There is one for each direction of opening a connection; its
// packets use the class's queues in both directions.
func (ls Limiters) classRules(p plan.Plan) ([]LimiterRule, error) {
	everything := match{class: plan.Normal, proto: "ip", home: "any", far: "any"}
	list := append([]match{everything}, pings(p)...)
	for _, proto := range []string{"udp", "tcp"} {
		list = append(list, match{class: plan.Voice, proto: proto, home: "any", far: "any", farEnd: "53"})
	}
	for _, r := range slices.Backward(p.Classes.Rules) {
		list = append(list, alternatives(r)...)
	}
	var out []LimiterRule
	for _, direction := range []string{"out", "in"} {
		if direction == "in" && len(ls.Queues) < 2 {
			break // a rule can't have a queue for replies alone
		}
		for _, m := range list {
			for _, ends := range m.pairs() {
				r := ls.ruleFor(direction, m.class)
				r.Name = fmt.Sprintf("%s, opened %s, %d", m.class, direction, len(out)+1)
				r.Family, r.Protocol = familyOf(m.proto, ends), strings.TrimPrefix(m.proto, "ipv6-")
				if m.proto == "ip" {
					r.Protocol = ""
				}
				if r.From, r.To = ends[0], ends[1]; direction == "in" {
					r.From, r.To = ends[1], ends[0]
				}
				out = append(out, r)
			}
		}
	}
	if len(out) > mostRules {
		return nil, fmt.Errorf("the classes' rules take %d of pfSense's, which have one address and one port or range each; at most %d, join or leave out some", len(out), mostRules)
	}
	return out, nil
}

// ruleFor returns a rule that sends connections opened in this direction
// through a class's queues.
func (ls Limiters) ruleFor(direction string, c plan.Class) LimiterRule {
	at := slices.Index(plan.AllClasses(), c)
	r := LimiterRule{Direction: direction}
	use := []LimiterQueue{ls.Queues[0].Children[at]}
	if len(ls.Queues) > 1 {
		use = append(use, ls.Queues[1].Children[at])
	}
	if direction == "in" {
		slices.Reverse(use)
	}
	r.In = use[0].Name
	if len(use) > 1 {
		r.Out = use[1].Name
	}
	return r
}

// pairs splits a match into pairs of ends (home, far) with one address and one
// port or range each.
func (m match) pairs() (out [][2]RuleEnd) {
	split := func(s string) []string {
		if s == "any" {
			s = ""
		}
		return strings.Split(s, ",")
	}
	for _, home := range split(m.home) {
		for _, far := range split(m.far) {
			for _, homePort := range split(m.homePort) {
				for _, farPort := range split(m.farEnd) {
					out = append(out, [2]RuleEnd{{home, homePort}, {far, farPort}})
				}
			}
		}
	}
	return out
}

// familyOf returns the IP versions of a rule in pfSense's notation.
func familyOf(proto string, ends [2]RuleEnd) string {
	addresses := ends[0].Address + ends[1].Address
	switch {
	case proto == "ipv6-icmp" || strings.Contains(addresses, ":"):
		return "inet6"
	case proto == "icmp" || addresses != "":
		return "inet"
	}
	return "inet46"
}
