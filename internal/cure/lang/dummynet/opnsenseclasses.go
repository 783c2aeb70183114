package dummynet

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"unbloat/internal/cure/plan"
)

// longestAck is the longest IP packet that is taken for an acknowledgement without
// data, in bytes.
const longestAck = "80"

// ClassRules is the most OPNsense rules that the classes of one direction may
// use.
const ClassRules = 20

// Sequences of our rules: the first of a direction's class rules, and the rule
// for everything else.
const (
	classSequence = 10
	restSequence  = 1000
)

// classItems returns the names from which the uuids of the classes' items are
// derived.
func classItems() (queues, rules []string) {
	for _, d := range []plan.Direction{plan.DirectionUp, plan.DirectionDown} {
		for _, c := range plan.AllClasses() {
			queues = append(queues, classItem(d, c))
		}
		for i := range ClassRules {
			rules = append(rules, classRule(d, i))
		}
	}
	return queues, rules
}

func classItem(d plan.Direction, c plan.Class) string { return "class " + string(d) + " " + string(c) }

func classRule(d plan.Direction, i int) string {
	return fmt.Sprintf("class %s rule %d", d, i+1)
}

// addClasses makes the items of a direction with classes: a pipe that shares by
// weight, a queue with CoDel per class, and the rules. The model accepts one
// port or range per rule.
func (it *Items) addClasses(p plan.Plan, d plan.Direction, s plan.Shaper, shares []plan.Share) error {
	pipe, _, err := pipeItem(string(d), s)
	if err != nil {
		return err
	}
	pipe.Scheduler, pipe.CoDelTarget, pipe.CoDelInterval, pipe.CoDelECN = "", "", "", "0" // empty is WF2Q+
	pipe.Quantum, pipe.Limit, pipe.Flows = "", "", ""
	it.Pipes = append(it.Pipes, pipe)
	for _, sh := range shares {
		it.addQueue(classItem(d, sh.Class), pipe.UUID, strconv.Itoa(weight(sh, s.Rate)))
		q := &it.Queues[len(it.Queues)-1]
		q.CoDelEnable, q.CoDelTarget, q.CoDelInterval, q.CoDelECN = "1", wholeMs(s.Target), wholeMs(s.Interval), "0"
		if s.ECN {
			q.CoDelECN = "1"
		}
	}
	n := 0
	for _, m := range matches(p, d) { // the first match wins here too
		for _, r := range m.items(d) {
			if n == ClassRules {
				return fmt.Errorf("the classes' rules take more than %d of OPNsense's, which have one port or range each; join or leave out some", ClassRules)
			}
			it.addRule(p.WAN, classRule(d, n), classSequence+n, r.Proto, way(d), classItem(d, m.class))
			last := &it.Rules[len(it.Rules)-1]
			last.Source, last.SourcePort, last.Destination, last.DestPort, last.DSCP, last.IPLen = r.Source, r.SourcePort, r.Destination, r.DestPort, r.DSCP, r.IPLen
			n++
		}
	}
	it.addRule(p.WAN, string(d), restSequence, "ip", way(d), classItem(d, plan.Normal))
	return nil
}

func way(d plan.Direction) string {
	if d == plan.DirectionDown {
		return "in"
	}
	return "out"
}

// items converts a match to OPNsense's rules, one per pair of ports.
func (m match) items(d plan.Direction) (out []RuleItem) {
	split := func(s string) []string {
		if s == "" {
			return []string{"any"}
		}
		return strings.Split(s, ",")
	}
	r := RuleItem{Proto: m.proto}
	if dscp, ok := strings.CutPrefix(m.options, "dscp "); ok {
		r.DSCP = sorted(dscp)
	} else if m.options != "" {
		r.Proto, r.IPLen = "tcp_ack", longestAck // tcp_ack alone is every segment but a connection's first
	}
	for _, home := range split(m.homePort) {
		for _, far := range split(m.farEnd) {
			r.Source, r.SourcePort, r.Destination, r.DestPort = sorted(m.home), home, sorted(m.far), far
			if d == plan.DirectionDown {
				r.Source, r.SourcePort, r.Destination, r.DestPort = r.Destination, r.DestPort, r.Source, r.SourcePort
			}
			out = append(out, r)
		}
	}
	return out
}

// sorted sorts a list as the API returns it.
func sorted(list string) string {
	words := strings.Split(list, ",")
	slices.Sort(words)
	return strings.Join(words, ",")
}
