package pfctl

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A flow is a queue of today's grammar.
type flow struct {
	name, iface, parent     string
	share, least, most      curve
	flows, quantum, qlimit  int64
	isDefault, hasBandwidth bool
	hasFlows                bool
	matches                 int
	below                   []*flow
}

// A curve is a rate, with a higher or lower one for the first ms.
type curve struct {
	rate  uint64
	burst uint64
	ms    uint64
}

// queue reads `queue NAME …`.
func (p *parser) queue() {
	p.take()
	q := &flow{name: p.name()}
	ifaces := p.interfaces()
	seen := map[string]bool{}
	twice := func(word string) {
		if seen[word] {
			p.fail("%s cannot be respecified", word)
		}
		seen[word] = true
	}
	ranged := func(what string, least, most int64) int64 {
		n := p.number()
		word := what
		if what == "flows" {
			word = "number of flows"
		}
		twice(word)
		if n < least || n > most {
			p.fail("%s out of range: max %d", word, most)
		}
		return n
	}
	options := 0
	for ; ; options++ {
		switch {
		case p.accept("bandwidth"):
			share := p.curve()
			least, most := p.bounds()
			twice("bandwidth")
			q.share, q.least, q.most, q.hasBandwidth = share, least, most, true
		case p.accept("parent"):
			name := p.name()
			twice("parent")
			q.parent = name
		case p.accept("default"):
			twice("default")
			q.isDefault = true
		case p.accept("qlimit"):
			q.qlimit = ranged("qlimit", 0, 65535)
		case p.accept("flows"):
			q.flows, q.hasFlows = ranged("flows", 1, 32767), true
		case p.accept("quantum"):
			q.quantum = ranged("quantum", 1, 65535)
		case options == 0:
			p.syntax()
		default:
			p.lineEnd()
			p.addQueue(q, ifaces, seen["parent"])
			return
		}
	}
}

// bounds reads `min` and `max` after a bandwidth, in either order.
func (p *parser) bounds() (least, most curve) {
	comma := p.accept(",")
	if !comma && !p.is("min", "max") {
		return least, most
	}
	switch {
	case p.accept("min"):
		least = p.curve()
		if comma = p.accept(","); comma && !p.is("max") {
			p.syntax()
		}
		if p.accept("max") {
			most = p.curve()
		}
	case p.accept("max"):
		most = p.curve()
		if comma = p.accept(","); comma && !p.is("min") {
			p.syntax()
		}
		if p.accept("min") {
			least = p.curve()
		}
	default:
		p.syntax()
	}
	return least, most
}

// curve reads 10M, or 10M burst 90K for 100ms.
func (p *parser) curve() curve {
	rate, percent := p.bandwidth()
	c := curve{rate: rate}
	if p.accept("burst") {
		burst, more := p.bandwidth()
		p.expect("for")
		s := p.name()
		digits := strings.TrimRight(s, "abcdefghijklmnopqrstuvwxyz")
		ms, err := strconv.ParseUint(digits, 10, 32)
		if s[len(digits):] != "ms" || err != nil && digits != "" {
			p.fail("time in scspec must be in ms")
		}
		c.burst, c.ms, percent = burst, ms, percent || more
	}
	if percent {
		p.fail("no bandwidth in %% yet")
	}
	return c
}

// bandwidth reads 10M, 9.5Mb, 950Kbit or 1000.
func (p *parser) bandwidth() (rate uint64, percent bool) {
	t := p.peek()
	if t.kind == number {
		p.take()
		if t.number < 0 {
			p.fail("bandwidth number too big")
		}
		return uint64(t.number), false
	}
	v, unit := cFloat(p.name())
	if len(unit) > 1 && slices.Contains([]string{"Bit", "B", "bit", "b"}, unit[1:]) {
		unit = unit[:1]
	}
	switch unit {
	case "b":
	case "K":
		v *= 1e3
	case "M":
		v *= 1e6
	case "G":
		v *= 1e9
	case "%":
		if v < 0 || v > 100 {
			p.fail("bandwidth spec out of range")
		}
		return 0, int(v) != 0
	default:
		p.fail("unknown unit \"%s\"", unit)
	}
	if v < 0 || v > 1<<63 {
		p.fail("bandwidth number too big")
	}
	return uint64(v), false
}

// addQueue adds the queue, once for each interface.
func (p *parser) addQueue(q *flow, ifaces []iface, hasParent bool) {
	if len(ifaces) == 0 && !hasParent {
		p.fail("root queue without interface")
	}
	if len(ifaces) > 0 && !p.run.exists(ifaces[0].name) {
		p.fail("not an interface")
	}
	for _, i := range orOne(ifaces, iface{}) {
		one := *q
		one.iface = i.name
		if !q.hasBandwidth && !q.hasFlows {
			p.errorf("no bandwidth or flow specification")
			return
		}
		if len(q.name) > maxQueue {
			p.errorf("queuename too long")
			return
		}
		if len(q.parent) > maxQueue {
			p.errorf("parent too long")
			return
		}
		if p.anchor > 0 {
			p.run.print("must not have queue definitions in an anchor\n")
			p.errorf("cannot add queue")
			return
		}
		if one.parent == "" {
			for _, r := range p.run.next.roots {
				if r.iface == one.iface {
					p.run.print("A root queue is already defined on %s\n", r.iface)
					p.errorf("cannot add queue")
					return
				}
			}
			p.run.next.roots = append(p.run.next.roots, &one)
		} else {
			p.run.next.children = append(p.run.next.children, &one)
		}
	}
}

// isRoot reports whether a queue is a root class of HFSC.
func (q *flow) isRoot() bool { return q.parent == "" && q.hasBandwidth }

// findChildren puts queues below their parent q. It reports whether one of them
// is the default.
func (r *run) findChildren(q *flow) (hasDefault bool) {
	hasDefault = q.isDefault
	for _, c := range r.next.children {
		if c.parent != q.name || c.iface != "" && c.iface != q.iface {
			continue
		}
		if c.matches++; c.matches > 10000 {
			r.stop("pfctl_find_childqs: excessive matches, loop?")
		}
		i := slices.IndexFunc(q.below, func(o *flow) bool { return o.name == c.name })
		if i < 0 {
			one := *c
			one.below = nil
			q.below = append(q.below, &one)
			continue
		}
		switch have := q.below[i]; {
		case have.iface != "" && c.iface != "":
			r.stop("queue %s on %s respecified", have.name, have.iface)
		case have.iface == "" && c.iface == "":
			r.stop("queue %s respecified", have.name)
		case have.iface == "":
			one := *c
			one.below = have.below
			q.below[i] = &one
		}
	}
	for _, c := range q.below {
		if r.findChildren(c) {
			hasDefault = true
		}
	}
	if len(q.below) > 0 {
		if q.isDefault {
			r.stop("default queue %s is not a leaf queue", q.name)
		}
		if q.hasFlows {
			r.stop("flow queue %s is not a leaf queue", q.name)
		}
	}
	return hasDefault
}

// checkQueues makes pfctl's checks of all queues together. It returns false if
// one fails without ending the program.
func (r *run) checkQueues() bool {
	for _, q := range r.next.roots {
		hasDefault := r.findChildren(q)
		if !q.isRoot() && len(q.below) > 0 {
			if q.hasFlows {
				r.stop("root queue %s doesn't support hierarchy", q.name)
			}
			r.stop("no bandwidth was specified for root queue %s", q.name)
		}
		if q.isRoot() && !hasDefault {
			r.stop("no default queue specified")
		}
	}
	ok := true
	for _, rule := range r.next.rules {
		for _, name := range []string{rule.opts.queue, rule.opts.first} {
			if slices.ContainsFunc(r.next.roots, func(q *flow) bool { return name != "" && q.name == name && len(q.below) > 0 }) {
				r.print("queue %s: packets must be assigned to leaf queues only\n", name)
				ok = false
				break
			}
		}
	}
	if !ok {
		return false
	}
	for _, c := range r.next.children {
		if c.matches == 0 {
			r.stop("queue %s: parent %s not found", c.name, c.parent)
		}
		if c.share.rate == 0 && c.share.burst == 0 {
			r.stop("queue %s: no bandwidth was specified", c.name)
		}
	}
	return true
}

// all returns the queue and those below it, in the order in which they are
// loaded.
func (q *flow) all(iface string) []*flow {
	one := *q
	one.iface = iface
	out := []*flow{&one}
	for _, c := range q.below {
		out = append(out, c.all(iface)...)
	}
	return out
}

// text prints a queue.
func (q *flow) text() string {
	s := "queue " + q.name
	if q.parent != "" {
		s += " parent " + q.parent
	} else if q.iface != "" {
		s += " on " + q.iface
	}
	if q.hasFlows {
		s += fmt.Sprintf(" flows %d", q.flows)
		if q.quantum > 0 {
			s += fmt.Sprintf(" quantum %d", q.quantum)
		}
	}
	if q.share.rate != 0 || q.share.burst != 0 {
		s += q.share.text(" bandwidth ") + q.least.text(", min ") + q.most.text(", max ")
	}
	if q.isDefault {
		s += " default"
	}
	if q.qlimit != 0 {
		s += fmt.Sprintf(" qlimit %d", q.qlimit)
	}
	return s
}

func (c curve) text(before string) string {
	s := rateText(before, c.rate)
	if c.ms != 0 {
		s += " burst " + rateText("", c.burst) + fmt.Sprintf(" for %dms", c.ms)
	}
	return s
}

// rateText prints a rate in the largest unit in which it is a whole number.
// Below 1000 the unit is a blank.
func rateText(before string, rate uint64) string {
	if rate == 0 {
		return ""
	}
	i := 0
	for ; rate >= 1000 && i <= 3 && rate%1000 == 0; i++ {
		rate /= 1000
	}
	return fmt.Sprintf("%s%d%c", before, rate, " KMG\x00"[i])
}

// counted prints a queue as `pfctl -vsq` does.
func (q *flow) counted(c Count) string {
	limit := q.qlimit
	if limit == 0 {
		if limit = 50; q.hasFlows {
			limit = 1024
		}
	}
	s := q.text() + "\n" + c.text()
	if q.parent == "" && q.hasFlows && !q.isRoot() {
		return s + fmt.Sprintf("  [ qlength: %3d/%3d  avg delay: %.3fms std-dev: %.3fms  flows: %3d ]\n", c.Waiting, limit, 0.0, 0.0, 0)
	}
	return s + fmt.Sprintf("  [ qlength: %3d/%3d ]\n", c.Waiting, limit)
}

func (c Count) text() string {
	return fmt.Sprintf("  [ pkts: %10d  bytes: %10d  dropped pkts: %6d bytes: %6d ]\n", c.Packets, c.Bytes, c.Drops, c.DroppedBytes)
}
