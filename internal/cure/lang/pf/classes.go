package pf

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"unbloat/internal/cure/plan"
	"unbloat/unit"
)

// classFlows is the number of flow queues of a class.
const classFlows = 1024

// prio returns a class's priority in pf (0…7): it is used on interfaces without
// queues and in VLAN tags.
func prio(c plan.Class) int {
	switch c {
	case plan.Voice:
		return 6
	case plan.Interactive:
		return 5
	case plan.Normal:
		return 3
	}
	return 1
}

// ClassQueue returns the name of a class's queue on a device. It contains the
// device: pf identifies queues by name alone.
func ClassQueue(device string, c plan.Class) string { return device + "_" + string(c) }

// classQueues makes the queues of one direction with classes: a root with the
// rate, and a flow queue per class below it.
func classQueues(s plan.Shaper, shares []plan.Share) ([]Queue, error) {
	root := Queue{Name: s.Device + "_out", Device: s.Device, Bandwidth: s.Rate, Max: s.Rate}
	out := []Queue{root}
	for _, sh := range shares {
		q := Queue{
			Name: ClassQueue(s.Device, sh.Class), Parent: root.Name, Flows: s.Flows, Quantum: int(s.Quantum),
			Bandwidth: max(sh.Guarantee, unit.KbitPerSecond), Max: s.Rate, Qlimit: s.Limit, Default: sh.Class == plan.Normal,
		}
		q.Flows = cmp.Or(q.Flows, classFlows)
		if sh.Limit > 0 {
			q.Max = sh.Limit
		}
		if err := q.check(); err != nil {
			return nil, fmt.Errorf("render queue %s: %w", q.Name, err)
		}
		out = append(out, q)
	}
	return out, nil
}

// An Assign returns the words of a match rule that assign a class's queues, and
// the queues' names. first is the second queue of a lower class, for pure TCP
// acknowledgements and packets with the low delay TOS; "": none.
type Assign func(queue, first string, c plan.Class) (words string, queues []string)

// Matches writes the match rules of a direction. A queue belongs to a state,
// which a connection's first packet creates; for the download that is mostly a
// packet that comes in from the home. The last match wins, so the plan's first
// rule is the last here.
func Matches(device string, d plan.Direction, rules []plan.Rule, assign Assign) []Rule {
	w := ruleWriter{device: device, direction: d, assign: assign}
	w.add(plan.Normal, "proto tcp", "", "", "")
	w.addPlain(plan.Voice, "inet proto icmp")
	w.addPlain(plan.Voice, "inet6 proto icmp6")
	w.add(plan.Voice, "proto { tcp udp }", "", "port 53", "")
	for _, r := range slices.Backward(rules) {
		if r.Direction == "" || r.Direction == d {
			w.rule(r)
		}
	}
	return w.out
}

type ruleWriter struct {
	device    string
	direction plan.Direction
	assign    Assign
	out       []Rule
}

// rule writes a rule of the plan: all its alternatives, for connections opened
// from either side. A connection from outside arrives at the router's own
// address, so a machine behind NAT can't be matched there; a port and an IPv6
// address can.
func (w *ruleWriter) rule(r plan.Rule) {
	shown := r.Home
	if w.direction == plan.DirectionUp {
		shown = slices.DeleteFunc(slices.Clone(r.Home), plan.HiddenByNAT)
	}
	for _, p := range protocols(r) {
		for _, e := range r.PortsByEnd() {
			for _, mark := range marks(r) {
				home, okHome := p.of(r.Home)
				far, okFar := p.of(r.Far)
				if !okHome || !okFar || !share(home, far) {
					continue // pfctl(8) rejects a rule that no packet can match
				}
				w.line(r.Class, w.fromHome(), p.words, end(home, e.Home), end(far, e.Far), mark)
				if home, ok := p.of(shown); ok && len(shown) > 0 == (len(r.Home) > 0) && share(home, far) {
					w.line(r.Class, w.fromOutside(), p.words, end(far, e.Far), end(home, e.Home), mark)
				}
			}
		}
	}
}

// A protocol is a rule's protocol and the IP version that it requires.
type protocol struct {
	words  string
	family string // inet, inet6; "": both
}

func protocols(r plan.Rule) []protocol {
	switch {
	case r.Protocol == "icmp":
		return []protocol{{"inet proto icmp", "inet"}, {"inet6 proto icmp6", "inet6"}}
	case r.Protocol != "":
		return []protocol{{"proto " + r.Protocol, ""}}
	case r.HasPorts():
		return []protocol{{"proto { tcp udp }", ""}}
	}
	return []protocol{{}}
}

// of returns the addresses of the protocol's family; false if a list has none.
func (p protocol) of(addresses []string) ([]string, bool) {
	if len(addresses) == 0 || p.family == "" {
		return addresses, true
	}
	kept := slices.DeleteFunc(slices.Clone(addresses), func(a string) bool { return plan.IsIPv4(a) != (p.family == "inet") })
	return kept, len(kept) > 0
}

// share reports whether both ends can have addresses of one family.
func share(home, far []string) bool {
	return len(home) == 0 || len(far) == 0 || slices.ContainsFunc(home, func(h string) bool {
		return slices.ContainsFunc(far, func(f string) bool { return plan.IsIPv4(h) == plan.IsIPv4(f) })
	})
}

// marks returns a rule's code points; "" is any.
func marks(r plan.Rule) []string {
	if len(r.DSCP) == 0 {
		return []string{""}
	}
	var out []string
	for _, s := range r.DSCP {
		v, _ := plan.ParseDSCP(s)
		out = append(out, fmt.Sprintf("tos 0x%02x", v<<2))
	}
	return out
}

// fromHome and fromOutside return the direction in which a connection's first
// packet crosses the device.
func (w *ruleWriter) fromHome() string {
	if w.direction == plan.DirectionDown {
		return "in"
	}
	return "out"
}

func (w *ruleWriter) fromOutside() string {
	if w.direction == plan.DirectionDown {
		return "out"
	}
	return "in"
}

// add writes a match for connections opened from either side. home and far are
// ports, such as "port 22"; "" is any.
func (w *ruleWriter) add(c plan.Class, protocol, home, far, more string) {
	w.line(c, w.fromHome(), protocol, home, far, more)
	w.line(c, w.fromOutside(), protocol, far, home, more)
}

// addPlain writes a match that is the same from both ends.
func (w *ruleWriter) addPlain(c plan.Class, protocol string) { w.add(c, protocol, "", "", "") }

func (w *ruleWriter) line(c plan.Class, way, protocol, from, to, more string) {
	words := []string{"match", way, "on", w.device}
	say := func(before, s string) {
		if s != "" {
			words = append(words, before+s)
		}
	}
	say("", protocol)
	if from != "" || to != "" {
		words = append(words, "from "+orAny(from), "to "+orAny(to))
	}
	say("", more)
	first := ""
	if (c == plan.Normal || c == plan.Bulk) && (protocol == "" || strings.Contains(protocol, "tcp")) {
		first = ClassQueue(w.device, plan.Interactive)
	}
	set, queues := w.assign(ClassQueue(w.device, c), first, c)
	w.out = append(w.out, Rule{Text: strings.Join(append(words, set), " "), Queues: queues})
}

// setQueue is the Assign of OpenBSD's current grammar.
func setQueue(queue, first string, c plan.Class) (string, []string) {
	if first == "" {
		return fmt.Sprintf("set ( queue %s, prio %d )", queue, prio(c)), []string{queue}
	}
	return fmt.Sprintf("set ( queue ( %s, %s ), prio ( %d, %d ) )", queue, first, prio(c), prio(plan.Interactive)), []string{queue, first}
}

func orAny(s string) string {
	if s == "" || strings.HasPrefix(s, "port ") {
		return strings.TrimSpace("any " + s)
	}
	return s
}

// end writes addresses and ports for `from` and `to`.
func end(addresses []string, ports []plan.PortRange) string {
	var parts []string
	if len(addresses) > 0 {
		parts = append(parts, set(addresses))
	}
	if len(ports) > 0 {
		var names []string
		for _, p := range ports {
			names = append(names, strings.Replace(p.String(), "-", ":", 1))
		}
		parts = append(parts, "port "+set(names))
	}
	return strings.Join(parts, " ")
}

func set(list []string) string {
	if len(list) == 1 {
		return list[0]
	}
	return "{ " + strings.Join(list, " ") + " }"
}
