package pfctl

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// ALTQ's schedulers. A queue with noScheduler uses its interface's scheduler.
const (
	noScheduler = ""
	cbq         = "cbq"
	priq        = "priq"
	hfsc        = "hfsc"
)

// ALTQ's default values.
const (
	altqQlimit   = 50
	altqPriority = 1
)

// A share is a bandwidth as written: a rate, or a percentage of the parent's.
type share struct {
	rate    uint32
	percent uint32
}

func (s share) of(parent uint32) uint32 {
	if s.rate > 0 {
		return s.rate
	}
	return parent / 100 * s.percent
}

// A serviceCurve is one of HFSC's curves: m1 bit/s for d ms, then m2.
type serviceCurve struct {
	m1, m2 uint32
	d      int64
}

// A schedulerSpec is a scheduler with its options as written.
type schedulerSpec struct {
	kind   string
	flags  map[string]bool
	curves map[string]spec
}

type spec struct {
	m1, m2 share
	d      int64
}

// An altq is a queue of ALTQ or, if it has no name, an interface.
type altq struct {
	name, iface, parent string
	kind                string
	rate                uint32 // of the interface
	bandwidth           uint32
	priority            int64
	qlimit              int64
	tbrsize             int64
	flags               map[string]bool
	root                bool
	curves              map[string]serviceCurve
}

// altqOptions are the options of an interface or a queue.
type altqOptions struct {
	bandwidth share
	scheduler schedulerSpec
	priority  int64
	tbrsize   int64
	qlimit    int64
}

// A slot is a queue name that an interface or another queue listed.
type slot struct{ name, parent, iface, kind string }

// altqInterface reads `altq on …`.
func (p *parser) altqInterface() {
	p.expect("altq")
	ifaces := p.interfaces()
	o := p.altqOptions()
	p.expect("queue")
	names := p.queueNames()
	if names == nil {
		p.lineEnd()
	}
	p.inSection(queueing)
	if o.scheduler.kind == noScheduler {
		p.fail("no scheduler specified!")
	}
	if names == nil {
		p.fail("no child queues specified")
	}
	bad := false
	for _, i := range orOne(ifaces, iface{}) {
		if i.not {
			p.errorf("altq on ! <interface> is not supported")
			bad = true
			continue
		}
		if !p.addInterface(i.name, names, o) {
			bad = true
		}
	}
	if bad {
		panic(gaveUp{})
	}
}

// addInterface gives an interface a scheduler and a root queue, and remembers
// the names of its queues.
func (p *parser) addInterface(name string, names []string, o altqOptions) bool {
	ok := true
	a := altq{iface: name, kind: o.scheduler.kind, qlimit: o.qlimit, tbrsize: o.tbrsize}
	if p.interfaceRate(&a, o) {
		p.run.addALTQ(a)
	} else {
		ok = false
	}
	p.run.say("%squeue { %s }\n", p.run.last.interfaceText(&o.bandwidth, o.scheduler), strings.Join(names, " "))
	root := ""
	if a.kind != priq {
		root = "root_" + name
		q := altq{name: root, iface: name, qlimit: a.qlimit, kind: a.kind}
		if p.evaluate(&q, share{rate: a.rate}, o.scheduler) {
			p.run.addALTQ(q)
		} else {
			ok = false
		}
	}
	for _, n := range names {
		p.run.slots = append(p.run.slots, slot{n, root, name, a.kind})
	}
	return ok
}

// interfaceRate sets an interface's rate and the size of its token bucket.
func (p *parser) interfaceRate(a *altq, o altqOptions) (ok bool) {
	ok = true
	a.rate = o.bandwidth.rate
	if a.rate == 0 {
		i, there := p.run.find(a.iface)
		if !there {
			p.run.stop("SIOCGIFDATA: Device not configured")
		}
		if speed := uint32(i.Speed); speed == 0 {
			p.run.errln("interface %s does not know its bandwidth, please specify an absolute bandwidth", a.iface)
			ok = false
		} else if a.rate = o.bandwidth.of(speed); a.rate == 0 {
			a.rate = speed
		}
	}
	a.take(o.scheduler, a.rate)
	if a.tbrsize == 0 {
		packets := int64(24)
		switch {
		case a.rate <= 1e6:
			packets = 1
		case a.rate <= 10e6:
			packets = 4
		case a.rate <= 200e6:
			packets = 8
		}
		a.tbrsize = min(packets*int64(p.run.mtu(a.iface)), 0xffff)
	}
	return ok
}

// altqQueue reads `queue NAME …` as in ALTQ's grammar.
func (p *parser) altqQueue() {
	p.take()
	q := altq{name: p.name()}
	ifaces := p.interfaces()
	o := p.altqOptions()
	below := p.queueNames()
	if below == nil {
		p.lineEnd()
	}
	p.inSection(queueing)
	if len(q.name) > maxQueue {
		p.fail("queue name too long (max %d chars)", maxQueue)
	}
	if o.tbrsize != 0 {
		p.fail("cannot specify tbrsize for queue")
	}
	q.priority, q.qlimit, q.kind = o.priority, o.qlimit, o.scheduler.kind
	if !p.addALTQQueue(q, ifaces, below, o) {
		p.fail("errors in queue definition")
	}
}

// addALTQQueue adds a queue wherever an interface or a queue listed its name.
func (p *parser) addALTQQueue(q altq, ifaces []iface, below []string, o altqOptions) bool {
	if len(p.run.slots) == 0 {
		p.errorf("queue %s has no parent", q.name)
		return false
	}
	found, ok := 0, true
	for _, i := range orOne(ifaces, iface{}) {
		for n := 0; n < len(p.run.slots); n++ { // the loop appends to slots
			s := p.run.slots[n]
			if s.name != q.name || i.name != "" && (i.name == s.iface) == i.not {
				continue
			}
			found++
			one := q
			if one.kind != noScheduler && one.kind != s.kind {
				p.errorf("exactly one scheduler type per interface allowed")
				return false
			}
			one.kind, one.iface, one.parent = s.kind, s.iface, s.parent
			if one.kind == priq {
				if below != nil {
					p.errorf("priq queues cannot have child queues")
					return false
				}
				if o.bandwidth.rate > 0 || o.bandwidth.percent < 100 {
					p.errorf("priq doesn't take bandwidth")
					return false
				}
			}
			if p.evaluate(&one, o.bandwidth, o.scheduler) {
				p.run.addALTQ(one)
			} else {
				ok = false
			}
			for _, b := range below {
				if b == q.name {
					p.errorf("queue cannot have itself as child")
					ok = false
					continue
				}
				p.run.slots = append(p.run.slots, slot{b, q.name, s.iface, s.kind})
			}
			if i.name != "" || found == 1 {
				text := p.run.last.queueText(0, &o.bandwidth, i.name != "", o.scheduler)
				if below != nil {
					text += "{ " + strings.Join(below, " ") + " }"
				}
				p.run.say("%s\n", text)
			}
		}
	}
	if found == 0 {
		p.errorf("queue %s has no parent", q.name)
		return false
	}
	return ok
}

// evaluate checks a queue against its interface, its parent and its siblings.
func (p *parser) evaluate(q *altq, bandwidth share, scheduler schedulerSpec) bool {
	r := p.run
	on, there := r.findALTQ("", q.iface)
	if !there {
		r.errln("altq not defined on %s", q.iface)
		return false
	}
	q.kind, q.rate = on.kind, on.rate
	if _, twice := r.findALTQ(q.name, q.iface); twice {
		r.errln("queue %s already exists on interface %s", q.name, q.iface)
		return false
	}
	var parent *altq
	if q.parent != "" {
		if parent, there = r.findALTQ(q.parent, q.iface); !there {
			r.errln("parent %s not found for %s", q.parent, q.name)
			return false
		}
	}
	if q.qlimit == 0 {
		q.qlimit = altqQlimit
	}
	above := uint32(0)
	if parent != nil {
		above = parent.bandwidth
	}
	if q.kind != priq {
		q.bandwidth = bandwidth.of(above)
		if q.bandwidth > q.rate {
			r.errln("bandwidth for %s higher than interface", q.name)
			return false
		}
		if parent != nil {
			if q.bandwidth > above {
				r.warn("bandwidth for %s higher than parent", q.name)
				return false
			}
			sum := q.bandwidth
			for _, o := range r.next.altqs {
				if o.iface == q.iface && o.name != "" && o.parent == q.parent {
					sum += o.bandwidth
				}
			}
			if sum > above {
				r.warn("the sum of the child bandwidth higher than parent \"%s\"", parent.name)
			}
		}
	}
	q.take(scheduler, above)
	switch q.kind {
	case cbq:
		return r.evaluateCBQ(q)
	case priq:
		return r.evaluatePRIQ(q)
	}
	return r.evaluateHFSC(q, parent)
}

// take sets a queue's options. Percentages are of the parent's rate.
func (q *altq) take(s schedulerSpec, above uint32) {
	q.flags, q.curves = s.flags, map[string]serviceCurve{}
	for name, c := range s.curves {
		q.curves[name] = serviceCurve{c.m1.of(above), c.m2.of(above), c.d}
	}
}

func (r *run) evaluateCBQ(q *altq) bool {
	if q.priority >= 8 {
		r.warn("priority out of range: max 7")
		return false
	}
	q.root = q.parent == ""
	size := float64(r.mtu(q.iface))
	perByte := 8e9 / float64(q.rate)
	part := 0.0001
	if q.bandwidth != 0 {
		part = float64(q.bandwidth) / float64(q.rate)
	}
	if perByte/part*size > math.MaxInt32 {
		if q.bandwidth != 0 {
			r.warn("queue bandwidth must be larger than %s", rate2str(perByte*size/math.MaxInt32*float64(q.rate)))
		}
		r.errln("cbq: queue %s is too slow!", q.name)
	}
	return true
}

func (r *run) evaluatePRIQ(q *altq) bool {
	if q.priority >= 16 {
		r.warn("priority out of range: max 15")
		return false
	}
	for _, o := range r.next.altqs {
		if o.iface == q.iface && o.name != "" && o.priority == q.priority {
			r.warn("%s and %s have the same priority", o.name, q.name)
			return false
		}
	}
	return true
}

// evaluateHFSC is HFSC's admission control. The sum of real-time curves must
// fit into 80 % of the interface's rate, the link shares of siblings into their
// parent's, and no upper limit may exceed the interface's rate.
func (r *run) evaluateHFSC(q, parent *altq) bool {
	if q.parent == "" {
		q.curves["linkshare"] = serviceCurve{m1: q.rate, m2: q.rate}
		return true
	}
	ls := q.curves["linkshare"]
	if ls.m2 == 0 {
		ls.m2 = q.bandwidth
		q.curves["linkshare"] = ls
	}
	rt, ul := q.curves["realtime"], q.curves["upperlimit"]
	for _, c := range []serviceCurve{rt, ls, ul} {
		if c.m1 > 0 && c.m2 == 0 {
			r.warn("m2 is zero for %s", q.name)
			return false
		}
	}
	for _, c := range []serviceCurve{rt, ls, ul} {
		if c.m1 < c.m2 && c.m1 != 0 {
			r.warn("m1 must be zero for convex curve: %s", q.name)
			return false
		}
	}
	var sure, parts []serviceCurve
	for _, o := range r.next.altqs {
		if o.iface != q.iface || o.name == "" {
			continue
		}
		if rt.m2 != 0 && o.curves["realtime"].m2 != 0 {
			sure = append(sure, o.curves["realtime"])
		}
		if o.parent == q.parent && ls.m2 != 0 && o.curves["linkshare"].m2 != 0 {
			parts = append(parts, o.curves["linkshare"])
		}
	}
	if rt.m2 != 0 {
		most := serviceCurve{m2: q.rate / 100 * 80}
		if !under(append(sure, rt), most) {
			r.warn("real-time sc exceeds 80%% of the interface bandwidth (%s)", rate2str(float64(most.m2)))
			return false
		}
	}
	if ls.m2 != 0 && !under(append(parts, ls), parent.curves["linkshare"]) {
		r.warn("linkshare sc exceeds parent's sc")
		return false
	}
	if ul.m2 != 0 {
		if ul.m1 > q.rate || ul.m2 > q.rate {
			r.warn("upper-limit larger than interface bandwidth")
			return false
		}
		if rt.m2 != 0 && rt.m2 > ul.m2 {
			r.warn("upper-limit sc smaller than real-time sc")
			return false
		}
	}
	return true
}

// at returns the curve's integral after x ms.
func (c serviceCurve) at(x float64) float64 {
	d := float64(c.d)
	if x <= d {
		return x * float64(c.m1)
	}
	return d*float64(c.m1) + (x-d)*float64(c.m2)
}

// under reports whether the sum of the curves never exceeds most.
func under(curves []serviceCurve, most serviceCurve) bool {
	points := []float64{0}
	slope := 0.0
	for _, c := range curves {
		if c.m1 == 0 && c.m2 == 0 {
			continue
		}
		points = append(points, float64(c.d))
		slope += float64(c.m2)
	}
	if most.m1 == 0 && most.m2 == 0 {
		return slope == 0
	}
	sum := func(x float64) (y float64) {
		for _, c := range curves {
			y += c.at(x)
		}
		return y
	}
	for _, x := range points {
		if sum(x) > most.at(x) {
			return false
		}
	}
	last := slices.Max(points)
	return slope <= float64(most.m2) && (last >= float64(most.d) || slope <= float64(most.m1) || sum(float64(most.d)) <= most.at(float64(most.d)))
}

// checkALTQ makes pfctl's last check: every interface needs one default queue,
// which is a leaf. As in pfctl, only the last interface's result counts.
func (r *run) checkALTQ() bool {
	ok := true
	for _, on := range r.next.altqs {
		if on.name != "" {
			continue
		}
		ok = true
		defaults, roots := 0, 0
		var leaf altq
		for _, q := range r.next.altqs {
			if q.iface != on.iface || q.name == "" || on.kind == hfsc && q.parent == "" {
				continue
			}
			if q.root {
				roots++
			}
			if q.flags["default"] {
				defaults++
				leaf = q
			}
		}
		if on.kind == cbq && roots != 1 {
			r.warn("should have one root queue on %s", on.iface)
			ok = false
		}
		if defaults != 1 {
			r.warn("should have one default queue on %s", on.iface)
			ok = false
			continue
		}
		for _, q := range r.next.altqs {
			if on.kind == hfsc && q.iface == on.iface && q.name != "" && q.parent == leaf.name {
				r.warn("default queue is not a leaf")
				ok = false
			}
		}
	}
	return ok
}

func (r *run) addALTQ(a altq) {
	r.last = a
	r.next.altqs = append(r.next.altqs, a)
}

func (r *run) findALTQ(name, iface string) (*altq, bool) {
	for i := range r.next.altqs {
		if a := &r.next.altqs[i]; a.name == name && a.iface == iface {
			return a, true
		}
	}
	return nil, false
}

// queueNames reads the list of queues of an interface or a queue; nil: it has
// none.
func (p *parser) queueNames() (out []string) {
	if !p.is("{") && p.peek().kind != str {
		return nil
	}
	p.list(func() {
		name := p.name()
		if len(name) > maxQueue {
			p.fail("queue name '%s' too long (max %d chars)", name, maxQueue)
		}
		out = append(out, name)
	})
	return out
}

// altqOptions reads the options of an interface or a queue, in any order.
func (p *parser) altqOptions() altqOptions {
	o := altqOptions{bandwidth: share{percent: 100}, priority: altqPriority, qlimit: altqQlimit}
	seen := map[string]bool{}
	twice := func(w string) {
		if seen[w] {
			p.fail("%s cannot be respecified", w)
		}
		seen[w] = true
	}
	ranged := func(w, message string, most int64) int64 {
		n := p.number()
		twice(w)
		if n < 0 || n > most {
			p.fail("%s: max %d", message, most)
		}
		return n
	}
	for {
		switch {
		case p.accept("bandwidth"):
			b := p.altqBandwidth()
			twice("bandwidth")
			o.bandwidth = b
		case p.accept("priority"):
			o.priority = ranged("priority", "priority out of range", 255)
		case p.accept("qlimit"):
			o.qlimit = ranged("qlimit", "qlimit out of range", 65535)
		case p.accept("tbrsize"):
			o.tbrsize = ranged("tbrsize", "tbrsize too big", 65535)
		case p.is(cbq, priq, hfsc):
			s := p.scheduler()
			twice("scheduler")
			o.scheduler = s
		default:
			return o
		}
	}
}

// altqBandwidth reads 1Mb, 950Kb, 100% or 1000. The rate has 32 bits, and
// overflows as in pfctl.
func (p *parser) altqBandwidth() share {
	if t := p.peek(); t.kind == number {
		p.take()
		if t.number < 0 || t.number > math.MaxUint32 {
			p.fail("bandwidth number too big")
		}
		return share{rate: uint32(t.number)}
	}
	v, unit := cFloat(p.name())
	switch unit {
	case "b":
	case "Kb":
		v *= 1e3
	case "Mb":
		v *= 1e6
	case "Gb":
		v *= 1e9
	case "%":
		if v < 0 || v > 100 {
			p.fail("bandwidth spec out of range")
		}
		return share{percent: uint32(v)}
	default:
		p.fail("unknown unit %s", unit)
	}
	if v >= 1<<63 {
		return share{}
	}
	return share{rate: uint32(int64(v))}
}

// scheduler reads cbq, priq or hfsc, with options in parentheses.
func (p *parser) scheduler() schedulerSpec {
	s := schedulerSpec{kind: p.take().text, flags: map[string]bool{}, curves: map[string]spec{}}
	if !p.is("(") {
		return s
	}
	p.bracketed(func() {
		if s.kind == hfsc && p.is("linkshare", "realtime", "upperlimit") {
			p.serviceCurve(s.curves)
			return
		}
		switch name := p.name(); {
		case name == "default", name == "red", name == "rio", name == "borrow" && s.kind == cbq:
			s.flags[name] = true
		case name == "ecn":
			s.flags["red"], s.flags["ecn"] = true, true
		default:
			p.fail("unknown %s flag \"%s\"", s.kind, name)
		}
	})
	return s
}

// serviceCurve reads `realtime 1Mb` or `realtime (2Mb 100 1Mb)`.
func (p *parser) serviceCurve(curves map[string]spec) {
	name := p.take().text
	var c spec
	if p.accept("(") {
		c.m1 = p.altqBandwidth()
		p.accept(",")
		c.d = p.number()
		p.accept(",")
		c.m2 = p.altqBandwidth()
		p.expect(")")
		if c.d < 0 || c.d > math.MaxInt32 {
			p.fail("timing in curve out of range")
		}
	} else {
		c.m2 = p.altqBandwidth()
	}
	if _, twice := curves[name]; twice {
		p.fail("%s already specified", name)
	}
	curves[name] = c
}

// interfaceText prints the line of an interface, without its list of queues.
func (q altq) interfaceText(written *share, s schedulerSpec) string {
	if q.name != "" {
		return q.queueText(0, written, true, s)
	}
	text := "altq on " + q.iface + " "
	if o := q.optionsText(&s); o != "" {
		text += o
	} else if q.kind != noScheduler {
		text += q.kind + " "
	}
	if written != nil && written.percent > 0 {
		if written.percent < 100 {
			text += fmt.Sprintf("bandwidth %d%% ", written.percent)
		}
	} else {
		text += "bandwidth " + rate2str(float64(q.rate)) + " "
	}
	if q.qlimit != altqQlimit {
		text += fmt.Sprintf("qlimit %d ", q.qlimit)
	}
	return text + fmt.Sprintf("tbrsize %d ", q.tbrsize)
}

// queueText prints a queue. written is the bandwidth as in pf.conf, or nil for
// a queue that is loaded.
func (q altq) queueText(level int, written *share, named bool, s schedulerSpec) string {
	text := "queue " + strings.Repeat(" ", level) + q.name + " "
	if named {
		text += "on " + q.iface + " "
	}
	if q.kind == cbq || q.kind == hfsc {
		if written != nil && written.percent > 0 {
			if written.percent < 100 {
				text += fmt.Sprintf("bandwidth %d%% ", written.percent)
			}
		} else {
			text += "bandwidth " + rate2str(float64(q.bandwidth)) + " "
		}
	}
	if q.priority != altqPriority {
		text += fmt.Sprintf("priority %d ", q.priority)
	}
	if q.qlimit != altqQlimit {
		text += fmt.Sprintf("qlimit %d ", q.qlimit)
	}
	if written == nil {
		return text + q.optionsText(nil)
	}
	return text + q.optionsText(&s)
}

// optionsText prints a scheduler's options, or nothing if it has none.
func (q altq) optionsText(s *schedulerSpec) string {
	var words []string
	for _, f := range []string{"red", "ecn", "rio", "borrow"} {
		if q.flags[f] {
			words = append(words, f)
		}
	}
	if q.root && q.kind == cbq {
		words = append(words, "wrr", "root")
	}
	if q.flags["default"] {
		words = append(words, "default")
	}
	if q.kind == hfsc {
		for _, name := range []string{"realtime", "linkshare", "upperlimit"} {
			c := q.curves[name]
			if c.m2 == 0 || name == "linkshare" && c.m2 == q.bandwidth && c.d == 0 {
				continue
			}
			var written spec
			if s != nil {
				written = s.curves[name]
			}
			words = append(words, curveText(name, c, written))
		}
	}
	if len(words) == 0 {
		return ""
	}
	return q.kind + "( " + strings.Join(words, " ") + " ) "
}

func curveText(name string, c serviceCurve, written spec) string {
	one := func(rate uint32, as share) string {
		if as.percent > 0 {
			return fmt.Sprintf("%d%%", as.percent)
		}
		return rate2str(float64(rate))
	}
	if c.d == 0 {
		return name + " " + one(c.m2, written.m2)
	}
	return fmt.Sprintf("%s(%s %d %s)", name, one(c.m1, written.m1), c.d, one(c.m2, written.m2))
}

// rate2str prints a rate with two decimals, or with none if it is whole.
func rate2str(rate float64) string {
	i := 0
	for ; rate >= 1000 && i <= 3; i++ {
		rate /= 1000
	}
	if int(rate*100)%100 != 0 {
		return fmt.Sprintf("%.2f%cb", rate, " KMG"[i])
	}
	return fmt.Sprintf("%d%cb", int(rate), " KMG"[i])
}

// showALTQ prints an interface's queues as a tree.
func (p *Program) showALTQ(b *strings.Builder, q altq, level int, counters bool) {
	b.WriteString(q.queueText(level, nil, true, schedulerSpec{}))
	var below []altq
	var names []string
	for _, o := range p.loaded.altqs {
		if o.name != "" && o.iface == q.iface && o.parent == q.name {
			below = append(below, o)
			names = append(names, o.name)
		}
	}
	if len(names) > 0 {
		b.WriteString("{" + strings.Join(names, ", ") + "}")
	}
	b.WriteString("\n")
	if counters {
		c := p.counts(q.name)
		b.WriteString(c.text())
		switch q.kind {
		case cbq:
			fmt.Fprintf(b, "  [ qlength: %3d/%3d  borrows: %6d  suspends: %6d ]\n", c.Waiting, q.qlimit, 0, 0)
		default:
			fmt.Fprintf(b, "  [ qlength: %3d/%3d ]\n", c.Waiting, q.qlimit)
		}
	}
	for _, o := range below {
		p.showALTQ(b, o, level+1, counters)
	}
}
