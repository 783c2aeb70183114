package pfctl

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// filterOptions reads the options after the addresses of a rule, in any order.
func (p *parser) filterOptions() filterOptions {
	o := filterOptions{seen: map[string]bool{}, prio: -1, rtable: -1, setTOS: -1}
	for p.filterOption(&o) {
	}
	return o
}

// once refuses an option that was given before.
func (p *parser) once(o *filterOptions, key, message string) {
	if o.seen[key] {
		p.fail("%s", message)
	}
	o.seen[key] = true
}

// filterOption reads one option. It returns false if the next word is none.
func (p *parser) filterOption(o *filterOptions) bool {
	t := p.peek()
	if t.kind != word {
		return false
	}
	switch t.text {
	case "user", "group":
		p.take()
		var list []ugid
		p.list(func() { list = append(list, p.ugid(t.text)) })
		if t.text == "user" {
			o.users = append(list, o.users...)
		} else {
			o.groups = append(list, o.groups...)
		}
	case "flags":
		p.take()
		flags := p.tcpFlags()
		p.once(o, "flags", "flags cannot be redefined")
		o.flagsSet, o.flags = true, flags
	case "icmp-type", "icmp6-type":
		p.take()
		var list []icmpSpec
		af := 4
		if t.text == "icmp6-type" {
			af = 6
		}
		p.list(func() { list = append(list, p.icmpItem(af)) })
		p.once(o, "icmp", "icmp-type cannot be redefined")
		o.icmp = list
	case "tos":
		p.take()
		v := p.tos()
		p.once(o, "tos", "tos cannot be redefined")
		o.tos = v
	case "no", "keep", "modulate", "synproxy":
		p.take()
		p.expect("state")
		var list []stateOption
		if t.text != "no" && p.is("(") {
			p.bracketed(func() { list = append(list, p.stateOption()) })
		}
		p.once(o, "keep", "modulate or keep cannot be redefined")
		o.keepSet, o.state = true, list
		if t.text != "no" {
			o.keep = t.text
		}
	case "fragment":
		p.take()
		o.fragment = true
	case "allow-opts":
		p.take()
		o.allowOpts = true
	case "label":
		p.take()
		l := p.name()
		p.once(o, "label", "label cannot be redefined")
		o.label = l
	case "queue":
		p.take()
		p.assigned(o)
	case "tag":
		p.take()
		o.tag = p.text()
	case "!", "tagged", "received-on":
		not := p.accept("!")
		switch {
		case !p.old && p.accept("received-on"):
			i := p.oneInterface()
			if o.received != nil {
				p.fail("cannot respecify received-on")
			}
			i.not = not
			o.received = &i
		default:
			p.expect("tagged")
			o.tagged, o.taggedNot = p.text(), not
		}
	case "probability":
		p.take()
		o.prob = p.chance()
	case "rtable":
		p.take()
		o.rtable = p.routingTable()
	case "divert-to", "divert-reply", "divert-packet", "af-to", "binat-to", "route-to", "reply-to", "dup-to":
		p.unknown(t.text)
	default:
		return !p.old && p.filterOptionOfToday(o, t.text)
	}
	return true
}

// filterOptionOfToday reads the options that the grammar with ALTQ does not
// have.
func (p *parser) filterOptionOfToday(o *filterOptions, w string) bool {
	switch w {
	case "prio":
		p.take()
		n := p.number()
		p.once(o, "prio", "prio cannot be redefined")
		o.prio = p.prioValue(n)
	case "scrub":
		p.take()
		o.scrub = scrubOptions{}
		seen := map[string]bool{}
		p.bracketed(func() {
			if !p.scrubOption(&o.scrub, seen) {
				p.syntax()
			}
		})
	case "once":
		p.take()
		o.once = true
	case "max-pkt-rate":
		p.take()
		a := p.number()
		p.expect("/")
		b := p.number()
		p.positive(a, b)
		if o.rate[0] != 0 {
			p.fail("cannot respecify max-pkt-rate")
		}
		o.rate = [2]int64{a, b}
	case "nat-to", "rdr-to":
		p.take()
		to := p.redirect()
		p.once(o, w, "cannot respecify "+map[string]string{"nat-to": "nat-to/binat-to", "rdr-to": "rdr-to"}[w])
		if w == "nat-to" {
			o.natTo = to
		} else {
			o.rdrTo = to
		}
	case "set":
		p.take()
		if p.is("(") {
			p.bracketed(func() { p.setItem(o) })
		} else {
			p.setItem(o)
		}
	default:
		return false
	}
	return true
}

// setItem reads one item of `set ( … )`.
func (p *parser) setItem(o *filterOptions) {
	switch {
	case p.accept("prio"):
		var v []int
		if p.accept("(") {
			a := p.number()
			p.accept(",")
			b := p.number()
			p.expect(")")
			if a < 0 || a > 7 || b < 0 || b > 7 {
				p.fail("prio must be 0 - 7")
			}
			v = []int{int(a), int(b)}
		} else {
			n := p.prioValue(p.number())
			v = []int{n, n}
		}
		p.once(o, "set prio", "prio cannot be redefined")
		o.setPrio = v
	case p.accept("queue"):
		p.assigned(o)
	case p.accept("tos"):
		v := p.tos()
		p.once(o, "set tos", "tos cannot be respecified")
		o.setTOS = v
	case p.accept("delay"):
		n := p.number()
		if o.delay != 0 {
			p.fail("delay cannot be respecified")
		}
		if n < 0 || n > 0xffff {
			p.fail("illegal delay value %d (0-65535)", n)
		}
		o.delay = n
		o.seen["delay"] = true
	default:
		p.syntax()
	}
}

func (p *parser) prioValue(n int64) int {
	if n < 0 || n > 7 {
		p.fail("prio must be 0 - 7")
	}
	return int(n)
}

// assigned reads the queues of a rule. Today's pfctl requires that they are
// defined and have a parent; ALTQ's does not check.
func (p *parser) assigned(o *filterOptions) {
	var queue, first string
	two := false
	if p.accept("(") {
		queue = p.name()
		if !p.is(")") {
			p.accept(",")
			first, two = p.name(), true
		}
		p.expect(")")
	} else {
		queue = p.name()
	}
	if !p.old {
		for i, q := range []string{queue, first} {
			if (i == 0 || two) && !slices.ContainsFunc(p.run.next.children, func(c *flow) bool { return c.name == q }) {
				p.fail("queue %s is not defined", q)
			}
		}
	}
	if o.queue != "" {
		p.fail("queue cannot be redefined")
	}
	o.queue, o.first = queue, first
}

func (p *parser) tos() int {
	t := p.peek()
	v := 256
	switch t.kind {
	case number:
		if v = int(t.number); t.number < 0 || t.number > 255 {
			v = 256
		}
	case str:
		key := t.text
		if !p.old {
			key = strings.ToLower(key)
		}
		if n, ok := tosWords(p.old)[key]; ok {
			v = n
		} else if hex, ok := strings.CutPrefix(t.text, "0x"); ok {
			if p.old { // strtoul stops at the first character that is no digit
				hex = hex[:hexDigits(hex)]
			}
			if n, err := strconv.ParseUint(hex, 16, 32); err == nil {
				v = int(n)
			}
		}
	default:
		p.syntax()
	}
	p.take()
	if v > 255 || p.old && v == 0 {
		if p.old && t.kind == number {
			p.unknown("what it says of tos " + t.text)
		}
		p.fail("illegal tos value %s", t.text)
	}
	return v
}

func hexDigits(s string) int {
	for i, c := range s {
		if !strings.ContainsRune("0123456789abcdefABCDEF", c) {
			return i
		}
	}
	return len(s)
}

// tcpFlags reads S/SA, /SFRA or any.
func (p *parser) tcpFlags() string {
	if p.accept("any") {
		return ""
	}
	one := func() string {
		s := p.name()
		out := ""
		for _, f := range "FSRPAUEW" {
			if strings.ContainsRune(s, f) {
				out += string(f)
			}
		}
		if strings.Trim(s, "FSRPAUEW") != "" {
			p.fail("bad flags %s", s)
		}
		if out == "" {
			return "FSRPAUEW"
		}
		return out
	}
	if p.accept("/") {
		return "/" + one()
	}
	set := one()
	p.expect("/")
	return set + "/" + one()
}

func (p *parser) icmpItem(af int) icmpSpec {
	what := map[int]string{4: "icmp", 6: "icmp6"}[af]
	spec := icmpSpec{af: af, code: -1}
	t := p.peek()
	if t.kind == number {
		p.take()
		if t.number < 0 || t.number > 255 {
			p.fail("illegal %s-type %d", what, t.number)
		}
		spec.kind = int(t.number)
	} else {
		name := p.name()
		n, ok := icmpTypes(af)[name]
		if !ok {
			p.fail("unknown %s-type %s", what, name)
		}
		spec.kind = n
	}
	if !p.accept("code") {
		return spec
	}
	if t := p.peek(); t.kind == number {
		p.take()
		if t.number < 0 || t.number > 255 {
			p.fail("illegal icmp-code %d", t.number)
		}
		spec.code = int(t.number)
		return spec
	}
	name := p.name()
	unreach := map[int]int{4: 3, 6: 1}[af]
	n, ok := unreachCodes(af)[name]
	if !ok || spec.kind != unreach {
		if spec.kind != unreach {
			p.unknown("the codes of this icmp-type")
		}
		p.fail("unknown %s-code %s", what, name)
	}
	spec.code = n
	return spec
}

// ugid reads a user or a group: a number, root, wheel, or unknown. It refuses
// other names, which only the router could look up.
func (p *parser) ugid(what string) ugid {
	one := func() int64 {
		if t := p.peek(); t.kind == number {
			p.take()
			if t.number < 0 || t.number >= math.MaxUint32 {
				p.fail("illegal %s value %d", map[string]string{"user": "uid", "group": "gid"}[what], t.number)
			}
			return t.number
		}
		name := p.name()
		switch {
		case name == "unknown":
			return math.MaxUint32
		case what == "user" && name == "root", what == "group" && name == "wheel":
			return 0
		}
		p.fail("unknown %s %s", what, name)
		return 0
	}
	needs := func(wrong bool) {
		if wrong {
			p.fail("%s unknown requires operator = or !=", what)
		}
	}
	if op := p.compare(); op != "" {
		a := one()
		needs(a == math.MaxUint32 && op != "=" && op != "!=")
		return ugid{op, a, a}
	}
	a := one()
	for _, op := range []string{"><", "<>"} {
		if p.accept(op) {
			b := one()
			needs(a == math.MaxUint32 || b == math.MaxUint32)
			return ugid{op, a, b}
		}
	}
	return ugid{"=", a, a}
}

// chance reads a probability.
func (p *parser) chance() uint32 {
	t := p.peek()
	v := float64(t.number)
	switch t.kind {
	case number:
	case str:
		num, percent := strings.CutSuffix(t.text, "%")
		f, rest := cFloat(num)
		if rest != "" {
			p.take()
			p.fail("invalid probability: %s", t.text)
		}
		if v = f; percent {
			v *= 0.01
		}
	default:
		p.syntax()
	}
	p.take()
	n := math.Floor(v*math.MaxUint32 + 0.5)
	if n < 0 || n > math.MaxUint32 {
		if p.old {
			p.fail("invalid probability: %f", n)
		}
		p.fail("invalid probability: %g%%", v*100)
	}
	return max(uint32(n), 1)
}

func (p *parser) routingTable() int64 {
	n := p.number()
	if n < 0 || n > 255 {
		p.fail("invalid rtable id")
	}
	if !p.old && n != 0 {
		p.fail("rtable %d does not exist", n)
	}
	return n
}

func (p *parser) positive(n ...int64) {
	for _, v := range n {
		if v < 0 || v > math.MaxUint32 {
			p.fail("only positive values permitted")
		}
	}
}

// stateOption reads one option in the parentheses after `keep state`.
func (p *parser) stateOption() stateOption {
	t := p.peek()
	if t.kind == str {
		p.take()
		n := p.number()
		p.positive(n)
		if !slices.Contains(timeouts(), t.text) {
			p.fail("illegal timeout name %s", t.text)
		}
		if !strings.Contains(t.text, ".") {
			p.fail("illegal state timeout %s", t.text)
		}
		return stateOption{name: t.text, a: n}
	}
	if t.kind != word {
		p.syntax()
	}
	switch t.text {
	case "max", "max-src-states", "max-src-conn", "max-src-nodes":
		p.take()
		n := p.number()
		p.positive(n)
		return stateOption{name: t.text, a: n}
	case "max-src-conn-rate":
		p.take()
		a := p.number()
		p.expect("/")
		b := p.number()
		p.positive(a, b)
		return stateOption{name: t.text, a: a, b: b}
	case "no-sync", "if-bound", "floating", "sloppy":
		p.take()
		return stateOption{name: t.text}
	case "pflow":
		if p.old {
			p.syntax()
		}
		p.take()
		return stateOption{name: t.text}
	case "source-track":
		p.take()
		s := stateOption{name: t.text}
		if p.is("global", "rule") {
			s.text = p.take().text
		}
		return s
	case "overload":
		p.take()
		p.expect("<")
		name := p.name()
		p.expect(">")
		if len(name) > 31 {
			p.fail("table name '%s' too long", name)
		}
		s := stateOption{name: t.text, text: name}
		if p.accept("flush") {
			s.flush = " flush"
			if p.accept("global") {
				s.flush = " flush global"
			}
		}
		return s
	}
	p.syntax()
	return stateOption{}
}

// checkStates refuses options of states that are given twice or contradict each
// other.
func (p *parser) checkStates(r *rule) {
	seen := map[string]stateOption{}
	lock := false
	for _, s := range r.opts.state {
		_, twice := seen[s.name]
		switch s.name {
		case "if-bound", "floating":
			if lock {
				p.fail("state locking option: multiple definitions")
			}
			lock = true
		case "sloppy":
			if twice {
				p.fail("state sloppy option: multiple definitions")
			}
		case "pflow":
			if twice {
				p.fail("state pflow option: multiple definitions")
			}
		case "no-sync":
			if twice {
				p.fail("state option 'sync' multiple definitions")
			}
		case "overload":
			if twice {
				p.fail("multiple 'overload' table definitions")
			}
		case "max", "source-track", "max-src-states", "max-src-conn", "max-src-nodes", "max-src-conn-rate":
			if twice && seen[s.name].a != 0 || twice && s.name == "source-track" {
				p.fail("state option '%s' multiple definitions", s.name)
			}
			if s.name == "max-src-conn-rate" && (s.a == 0 || s.b == 0) {
				p.fail("'max-src-conn-rate' values must be > 0")
			}
			if s.a == 0 && s.name != "max" && s.name != "source-track" {
				p.fail("'%s' must be > 0", s.name)
			}
		default:
			if twice && seen[s.name].a != 0 {
				p.fail("state timeout %s multiple definitions", s.name)
			}
		}
		seen[s.name] = s
	}
	if seen["source-track"].text == "global" {
		for _, n := range []string{"max-src-nodes", "max-src-conn", "max-src-conn-rate"} {
			if _, ok := seen[n]; ok {
				p.fail("'%s' is incompatible with 'source-track global'", n)
			}
		}
	}
}

// redirect reads the target of nat-to or rdr-to: one address or interface.
func (p *parser) redirect() *redirect {
	if p.is("{") {
		p.unknown("pools of addresses")
	}
	to := &redirect{hosts: p.oneHost()}
	if len(to.hosts) != 1 || to.hosts[0].place != masked && to.hosts[0].place != dynamic {
		p.unknown("pools of addresses")
	}
	if p.is("@", "weight") {
		p.unknown("weights")
	}
	if p.accept("port") {
		a, b := p.portRange(true)
		to.port = port{op: "=", a: a}
		if b >= 0 {
			to.port = port{op: ":", a: a, b: b}
		}
	}
	for {
		switch {
		case p.accept("static-port"):
			if to.static {
				p.fail("static-port cannot be redefined")
			}
			to.static = true
		case p.is("bitmask", "random", "source-hash", "round-robin", "least-states", "sticky-address"):
			p.unknown("pools of addresses")
		default:
			return to
		}
	}
}

// redirected sets a rule's address family to that of its nat-to or rdr-to
// target.
func (p *parser) redirected(r *rule) (bad int) {
	for _, to := range []*redirect{r.opts.rdrTo, r.opts.natTo} {
		if to == nil {
			continue
		}
		h := to.hosts[0]
		if r.af == 0 {
			r.af = h.af
		} else if h.af != 0 && h.af != r.af {
			p.errorf("af mismatch in translation spec")
			bad++
		}
	}
	if to := r.opts.rdrTo; to != nil && to.static {
		p.errorf("the 'static-port' option is only valid with nat rules")
		bad++
	}
	return bad
}

// scrubOption reads one option of scrub. It returns false if the next word is
// none.
func (p *parser) scrubOption(s *scrubOptions, seen map[string]bool) bool {
	ranged := func(w string, most int64, to *int64) {
		n := p.number()
		if seen[w] {
			p.fail("%s cannot be respecified", w)
		}
		if n < 0 || n > most {
			p.fail("illegal %s value %d", w, n)
		}
		seen[w], *to = true, n
	}
	twice := func(b bool, w string) {
		if b {
			p.fail("%s cannot be respecified", w)
		}
	}
	switch {
	case p.accept("no-df"):
		twice(s.noDF, "no-df")
		s.noDF = true
	case p.accept("random-id"):
		twice(s.randomID, "random-id")
		s.randomID = true
	case p.accept("min-ttl"):
		ranged("min-ttl", 255, &s.minTTL)
	case p.accept("max-mss"):
		ranged("max-mss", 65535, &s.maxMSS)
	case p.accept("reassemble"):
		if name := p.name(); !strings.EqualFold(name, "tcp") {
			p.fail("scrub reassemble supports only tcp, not '%s'", name)
		}
		twice(s.reassemble, "reassemble tcp")
		s.reassemble = true
	case p.old && p.accept("set-tos"):
		v := p.tos()
		twice(s.setTOS != 0, "set-tos")
		s.setTOS = v
	case p.old && p.accept("fragment"):
		how := p.peek().text
		if !p.accept("reassemble") && !p.accept("crop") && !p.accept("drop-ovl") {
			p.syntax()
		}
		twice(s.fragments != "", "fragcache")
		s.fragments = how
	default:
		return false
	}
	return true
}

// cFloat reads the number at the start of s as strtod(3) does, and returns the
// rest of s.
func cFloat(s string) (v float64, rest string) {
	n := 0
	digits := func() (any bool) {
		for n < len(s) && isDigit(int(s[n])) {
			n, any = n+1, true
		}
		return any
	}
	if n < len(s) && (s[n] == '-' || s[n] == '+') {
		n++
	}
	if hex := n; len(s) > hex+2 && s[hex] == '0' && (s[hex+1] == 'x' || s[hex+1] == 'X') {
		if k := hexDigits(s[hex+2:]); k > 0 {
			u, err := strconv.ParseUint(s[hex+2:hex+2+k], 16, 64)
			if err == nil {
				return float64(u), s[hex+2+k:]
			}
		}
	}
	some := digits()
	if n < len(s) && s[n] == '.' {
		n++
		if !digits() && !some {
			return 0, s
		}
		some = true
	}
	if !some {
		return 0, s
	}
	if n < len(s) && (s[n] == 'e' || s[n] == 'E') {
		at := n
		n++
		if n < len(s) && (s[n] == '-' || s[n] == '+') {
			n++
		}
		if !digits() {
			n = at
		}
	}
	v, err := strconv.ParseFloat(s[:n], 64)
	if err != nil && !math.IsInf(v, 0) {
		panic(fmt.Sprintf("read %q as a number: %v", s[:n], err))
	}
	return v, s[n:]
}
