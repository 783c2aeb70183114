package dummynet

import (
	"cmp"
	"fmt"
	"strings"

	"unbloat/internal/cure/plan"
	"unbloat/unit"
)

// Control traffic (plan.Plan.Control) goes through a pipe of its own. Nothing waits
// there: it is wider than any line that dummynet can shape.
const (
	ControlPipe = 3 // its number
	controlRate = 4 * unit.GbitPerSecond
	controlName = "control" // of its items on OPNsense and pfSense
)

// ControlUUID and ControlLimiter tell which pipe it is on OPNsense and on pfSense.
func ControlUUID() string { return UUID("pipe " + controlName) }

// ControlLimiter is its limiter's name.
const ControlLimiter = limiterPrefix + controlName

// controlShaper is the pipe of control traffic.
func controlShaper() plan.Shaper { return plan.Shaper{Rate: controlRate, AQM: plan.FIFO} }

// A passing is one kind of control traffic.
type passing struct {
	proto string // icmp, ipv6-icmp, udp
	ports string // of its destination; "": any
}

// control returns all kinds of control traffic, the same in both directions.
func control() []passing {
	out := []passing{{proto: "icmp"}, {proto: "ipv6-icmp"}}
	for _, ports := range plan.DHCP() {
		out = append(out, passing{"udp", ports.String()})
	}
	return out
}

// addControl adds the pipe of control traffic, and the rules that send it there.
// They must come before all others.
func (c *Config) addControl(p plan.Plan) error {
	if !p.Control {
		return nil
	}
	for _, x := range control() {
		text := x.proto + " from any to any"
		if x.ports != "" {
			text += " dst-port " + x.ports
		}
		c.Rules = append(c.Rules, Rule{Number: FirstRule + len(c.Rules), Action: "pipe", Target: ControlPipe, Match: text + " via " + p.WAN})
	}
	return c.add(ControlPipe, controlShaper())
}

// controlSequence is that of the rules for control traffic. What comes later takes none
// of it, or is meant to take what is left.
const controlSequence = 1

// rule names the rule of a kind of control traffic.
func (x passing) rule() string {
	return strings.TrimSpace(controlName + " " + x.proto + " " + x.ports)
}

// controlRules returns the names of all rules for control traffic.
func controlRules() (out []string) {
	for _, x := range control() {
		out = append(out, x.rule())
	}
	return out
}

// addControl adds the pipe of control traffic, and the rules that send it there.
func (it *Items) addControl(p plan.Plan) error {
	if !p.Control {
		return nil
	}
	pipe, _, err := pipeItem(controlName, controlShaper())
	if err != nil {
		return err
	}
	it.Pipes = append(it.Pipes, pipe)
	for _, x := range control() {
		it.addRule(p.WAN, x.rule(), controlSequence, x.proto, "", "")
		r := &it.Rules[len(it.Rules)-1]
		r.Target, r.DestPort = pipe.UUID, cmp.Or(x.ports, "any")
	}
	return nil
}

// addControl adds the limiter of control traffic, with a queue for each direction: a
// rule of pfSense's takes no queue for both.
func (ls *Limiters) addControl(p plan.Plan, number int) {
	if !p.Control {
		return
	}
	l := limiter(controlName, number, controlShaper())
	q := l.Children[0]
	l.Children = nil
	for _, d := range []plan.Direction{plan.DirectionUp, plan.DirectionDown}[:len(ls.Queues)] {
		q.Name = l.Name + "_" + string(d)
		l.Children = append(l.Children, q)
	}
	ls.Queues = append(ls.Queues, l)
}

// controlRules returns the rules for control traffic, which come last: with pf the last
// that matches decides.
func (ls Limiters) controlRules() (out []LimiterRule) {
	l := ls.Queues[len(ls.Queues)-1]
	if l.Name != ControlLimiter {
		return nil
	}
	for i, direction := range []string{"out", "in"}[:len(l.Children)] {
		r := LimiterRule{Direction: direction, In: l.Children[i].Name}
		if len(l.Children) > 1 {
			r.Out = l.Children[1-i].Name
		}
		for _, x := range control() {
			r.Name = fmt.Sprintf("%s, opened %s, %d", controlName, direction, len(out)+1)
			r.Family, r.Protocol, r.To = familyOf(x.proto, [2]RuleEnd{}), strings.TrimPrefix(x.proto, "ipv6-"), RuleEnd{Port: x.ports}
			out = append(out, r)
		}
	}
	return out
}
