package pfctl

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Sections of a pf.conf, in the order that ALTQ's grammar requires.
const (
	settings = iota + 1
	normalization
	queueing
	translating
	filtering
)

// inSection checks that a statement is in its section. Today's grammar allows
// any order.
func (p *parser) inSection(s int) {
	if !p.old {
		return
	}
	if !p.anyOrder && p.section > s {
		p.fail("Rules must be in order: options, normalization, queueing, translation, filtering")
	}
	p.section = s
}

// option reads `set …`.
func (p *parser) option() {
	p.take()
	t := p.peek()
	if t.kind != word {
		p.syntax()
	}
	switch t.text {
	case "optimization":
		p.take()
		name := p.name()
		p.inSection(settings)
		if !slices.Contains([]string{"normal", "default", "satellite", "high-latency", "conservative", "aggressive"}, strings.ToLower(name)) {
			p.run.warn("invalid state timeouts optimization")
			p.fail("unknown optimization %s", name)
		}
		p.run.say("set optimization %s\n", name)
	case "ruleset-optimization":
		p.take()
		if name := p.text(); name != "none" && name != "basic" && name != "profile" {
			p.fail("unknown ruleset-optimization %s", name)
		}
	case "timeout", "limit":
		p.take()
		item := func() { p.timeoutOrLimit(t.text) }
		p.list(item)
	case "loginterface":
		p.take()
		name := "all"
		if !p.accept("all") {
			name = p.name()
		}
		p.inSection(settings)
		p.run.say("set loginterface %s\n", name)
	case "hostid":
		p.take()
		p.hostID()
	case "block-policy":
		p.take()
		how := p.peek().text
		if !p.accept("drop") && !p.accept("return") {
			p.syntax()
		}
		p.run.say("set block-policy %s\n", how)
		p.inSection(settings)
		p.blockReturn = how == "return"
	case "state-policy":
		p.take()
		how := p.peek().text
		if !p.accept("if-bound") && !p.accept("floating") {
			p.syntax()
		}
		p.run.say("set state-policy %s\n", how)
		p.ifBound = how == "if-bound"
	case "debug":
		p.take()
		p.debug()
	case "skip":
		p.take()
		p.skip(p.interfaces())
	case "fingerprints":
		p.unknown("fingerprints of operating systems")
	case "require-order":
		if !p.old {
			p.syntax()
		}
		p.take()
		p.anyOrder = !p.yes()
		p.run.say("set require-order %s\n", map[bool]string{true: "no", false: "yes"}[p.anyOrder])
	case "reassemble":
		if p.old {
			p.syntax()
		}
		p.take()
		on, noDF := p.yes(), ""
		if p.accept("no-df") {
			noDF = "no-df"
		}
		p.run.say("set reassemble %s %s\n", map[bool]string{true: "yes", false: "no"}[on], noDF)
	case "state-defaults":
		if p.old {
			p.syntax()
		}
		p.take()
		var list []stateOption
		for first := true; first || p.is(",") || !p.is("\n"); first = false {
			p.accept(",")
			list = append(list, p.stateOption())
		}
		if p.defaults != nil {
			p.fail("cannot redefine state-defaults")
		}
		p.defaults = list
	case "syncookies":
		if p.old {
			p.syntax()
		}
		p.take()
		how := p.name()
		if how != "never" && how != "adaptive" && how != "always" {
			p.fail("illegal value for syncookies")
		}
		if p.is("(") {
			p.unknown("the marks of syncookies")
		}
		p.run.say("set syncookies %s\n", how)
	default:
		p.syntax()
	}
}

func (p *parser) yes() bool {
	if p.accept("no") {
		return false
	}
	if s := p.name(); s != "yes" {
		p.fail("invalid value '%s', expected 'yes' or 'no'", s)
	}
	return true
}

func (p *parser) timeoutOrLimit(what string) {
	name := p.name()
	n := p.number()
	p.inSection(settings)
	p.positive(n)
	list := timeouts()
	if what == "limit" {
		list = []string{"states", "src-nodes", "frags", "tables", "table-entries"}
		if !p.old {
			list = append(list, "pktdelay-pkts", "anchors")
		}
	}
	if !slices.Contains(list, strings.ToLower(name)) {
		if what == "limit" {
			p.run.warn("Bad pool name.")
			p.fail("unable to set limit %s %d", name, n)
		}
		p.run.warn("Bad timeout name.")
		p.fail("unknown timeout %s", name)
	}
	p.run.say("set %s %s %d\n", what, name, int32(uint32(n)))
}

func (p *parser) hostID() {
	t := p.peek()
	var n uint64
	switch t.kind {
	case number:
		n = uint64(t.number)
	case str:
		v, err := strconv.ParseUint(cNumber(t.text), 0, 64)
		if err != nil {
			p.take()
			p.fail("%s is not a number", t.text)
		}
		n = v
	default:
		p.syntax()
	}
	p.take()
	p.inSection(settings)
	if n == 0 || n > math.MaxUint32 {
		p.fail("hostid must be non-zero")
	}
	p.run.say("set hostid 0x%08x\n", n)
}

func (p *parser) debug() {
	levels := []string{"none", "urgent", "misc", "loud"}
	if !p.old {
		levels = []string{"emerg", "alert", "crit", "err", "warning", "notice", "info", "debug", "none", "urgent", "misc", "loud"}
	}
	level := "debug"
	if p.old || !p.accept("debug") {
		level = p.name()
	}
	p.inSection(settings)
	if !slices.Contains(levels, strings.ToLower(level)) {
		p.run.warn("unknown debug level \"%s\"", level)
		p.fail("error setting debuglevel %s", level)
	}
	p.run.say("set debug %s\n", level)
}

func (p *parser) skip(ifaces []iface) {
	if len(ifaces) == 0 || len(ifaces) == 1 && !ifaces[0].not && ifaces[0].name == "none" {
		p.run.say("set skip on none\n")
		return
	}
	text, bad := "set skip on {", false
	for _, i := range ifaces {
		text += " " + i.name
		if i.not {
			p.errorf("skip on ! <interface> is not supported")
			bad = true
		}
	}
	p.run.say("%s }\n", text)
	if bad {
		p.fail("error setting skip interface(s)")
	}
}

// table reads `table <name> …`.
func (p *parser) table() {
	p.take()
	p.expect("<")
	name := p.name()
	p.expect(">")
	flags := map[string]bool{}
	text, braces, inside := "", false, false
	for more := true; more; {
		switch {
		case p.peek().kind == str:
			o := p.take().text
			if o != "const" && o != "persist" && o != "counters" {
				p.fail("invalid table option '%s'", o)
			}
			flags[o] = true
		case p.accept("file"):
			file := p.name()
			if _, ok := p.run.File(file); !ok {
				p.fail("cannot load \"%s\": No such file or directory", file)
			}
			p.unknown("tables in files")
		case p.accept("{"):
			p.newlines()
			braces = true
			if p.accept("}") {
				break
			}
			if !inside {
				text += " {"
			}
			inside = true
			text += p.tableHosts()
		default:
			more = false
		}
	}
	p.lineEnd()
	if len(name) > 31 {
		p.fail("table name too long, max 31 chars")
	}
	out := "table <" + name + ">"
	for _, f := range []string{"const", "persist", "counters"} {
		if flags[f] {
			out += " " + f
		}
	}
	switch {
	case inside:
		out += text + " }"
	case braces:
		out += " { }"
	}
	p.run.say("%s\n", out)
	if !p.old && p.run.noAction && p.run.verbose {
		fmt.Fprintf(&p.run.stderr, "%s: skipping duplicate table checks for <%s>\n", p.where(), name)
	}
}

// tableHosts reads the addresses of a table, up to the }.
func (p *parser) tableHosts() (text string) {
	for {
		not := p.accept("!")
		if p.is("any") && p.old {
			p.take()
		} else {
			for _, h := range p.oneHost() {
				switch h.place {
				case masked:
				case spread:
					p.fail("address ranges are not permitted inside tables")
				case dynamic:
					p.fail("dynamic addresses are not permitted inside tables")
				case inTable:
					p.fail("tables cannot contain tables")
				case noRoute:
					p.fail("\"no-route\" is not permitted inside tables")
				case noReverse:
					p.fail("\"urpf-failed\" is not permitted inside tables")
				default:
					p.fail("unknown address type 6")
				}
				text += " "
				if not {
					text += "!"
				}
				text += h.text(h.af)
			}
		}
		p.newlines()
		if p.accept("}") {
			return text
		}
		p.accept(",")
	}
}

// anchorRule reads `anchor …`, with or without rules in { }.
func (p *parser) anchorRule() {
	p.take()
	r := rule{action: "anchor"}
	if p.peek().kind == str {
		r.name = p.take().text
		r.named = true
		if !p.old && r.name == "" {
			p.fail("anchor name must not be empty")
		}
		if strings.HasPrefix(r.name, "_") || strings.Contains(r.name, "/_") {
			p.fail("anchor names beginning with '_' are reserved for internal use")
		}
	}
	r.dir = p.direction()
	r.quick = p.accept("quick")
	ifaces := p.interfaces()
	r.af = p.family()
	protos := p.protos()
	from := p.fromTo()
	r.opts = p.filterOptions()
	if p.accept("{") {
		r.body = p.block()
	} else {
		p.lineEnd()
	}
	p.inSection(filtering)
	if r.body == nil && !r.named {
		p.fail("anchors without explicit rules must specify a name")
	}
	if r.body != nil && !p.old && strings.Contains(r.name, "/") {
		p.fail("anchor paths containing '/' cannot be used for inline anchors.")
	}
	p.checkOptions(&r, protos)
	if r.opts.keep != "" {
		p.fail("cannot specify state handling on anchors")
	}
	p.expand(r, ifaces, protos, from)
}

// block reads the rules of an anchor, up to the }.
func (p *parser) block() *[]rule {
	body := []rule{}
	outer := p.rules
	p.rules = &body
	p.anchor++
	defer func() { p.rules = outer }()
	p.expect("\n")
	for !p.accept("}") {
		switch {
		case p.is("pass", "block", "match"):
			p.filterRule()
		case p.is("anchor"):
			p.anchorRule()
		case !p.old && p.is("table"):
			p.table()
		case !p.old && p.is("include"):
			p.included()
		case !p.is("\n"):
			p.syntax()
		}
		p.expect("\n")
	}
	p.anchor--
	return &body
}

// load reads `load anchor …`. The file must exist.
func (p *parser) load() {
	p.take()
	p.expect("anchor")
	if p.peek().kind != str {
		if p.is("from") && !p.old {
			p.fail("anchor name is missing")
		}
		p.syntax()
	}
	p.take()
	p.expect("from")
	p.text()
	p.unknown("anchors of other files")
}

// antispoof makes rules that block packets with a forged source address.
func (p *parser) antispoof() {
	p.take()
	head := rule{action: "block", block: "drop", dir: "in"}
	p.logQuick(&head)
	p.expect("for")
	var list []host
	p.list(func() {
		if p.accept("(") {
			i := p.oneInterface()
			p.expect(")")
			list = append(list, host{place: dynamic, name: i.name, bits: 128})
			return
		}
		list = append(list, host{name: p.oneInterface().name})
	})
	head.af = p.family()
	head.opts = filterOptions{seen: map[string]bool{}, prio: -1, rtable: -1, setTOS: -1}
	for {
		if p.accept("label") {
			l := p.name()
			p.once(&head.opts, "label", "label cannot be redefined")
			head.opts.label = l
		} else if p.accept("rtable") {
			head.opts.rtable = p.routingTable()
		} else {
			break
		}
	}
	p.lineEnd()
	p.inSection(filtering)
	if len(head.opts.label) > maxLabel {
		p.fail("rule label too long (max %d chars)", maxLabel)
	}
	for _, i := range list {
		net, own := []host{}, []host{}
		if i.place == dynamic {
			n := i
			n.mods = []string{"network"}
			net, own = append(net, n), append(own, i)
		} else if there, ok := p.run.find(i.name); ok {
			net, own = there.hosts([]string{"network"}), there.hosts(nil)
		}
		if len(net) > 0 {
			p.expand(head, []iface{{name: i.name, not: true, domain: -1}}, nil, ends{src: net})
		}
		if len(own) > 0 && !strings.HasPrefix(i.name, "lo") {
			p.expand(head, nil, nil, ends{src: own})
		}
	}
}

// translation reads the statements that come before the filter rules in ALTQ's
// grammar: scrub, nat and rdr.
func (p *parser) translation() {
	no := p.accept("no")
	r := rule{}
	t := p.peek()
	switch {
	case p.accept("scrub"):
		r.action = "scrub"
	case p.accept("nat"), p.accept("rdr"):
		r.action = t.text
	case p.is("binat", "binat-anchor"), p.is("nat-anchor", "rdr-anchor"):
		p.unknown(t.text)
	default:
		p.syntax()
	}
	if r.action != "scrub" {
		if r.pass = p.accept("pass"); p.accept("log") {
			r.log = " log" + p.logOptions()
		}
		if no && r.pass {
			p.fail("\"pass\" not valid with \"no\"")
		}
	}
	if no {
		r.action = "no " + r.action
	}
	if strings.HasSuffix(r.action, "scrub") {
		p.scrubRule(r)
		return
	}
	p.natRule(r)
}

func (p *parser) scrubRule(r rule) {
	r.dir = p.direction()
	p.logQuick(&r)
	ifaces := p.interfaces()
	r.af = p.family()
	protos := p.protos()
	from := p.fromTo()
	r.opts = filterOptions{seen: map[string]bool{}, prio: -1, rtable: -1, setTOS: -1}
	seen := map[string]bool{}
	for {
		if p.accept("rtable") {
			r.opts.rtable = p.routingTable()
		} else if p.is("!", "tagged") {
			r.opts.taggedNot = p.accept("!")
			p.expect("tagged")
			r.opts.tagged = p.text()
		} else if !p.scrubOption(&r.scrub, seen) {
			break
		}
	}
	p.lineEnd()
	p.inSection(normalization)
	p.checkTags(r.opts)
	if r.quick {
		p.fail("scrub rules do not support 'quick'")
	}
	if r.scrub.reassemble && r.dir != "" {
		p.fail("reassemble tcp rules can not specify direction")
	}
	outer := p.rules
	p.rules = &p.run.next.scrubs
	defer func() { p.rules = outer }()
	p.expand(r, ifaces, protos, from)
}

func (p *parser) natRule(r rule) {
	ifaces := p.interfaces()
	r.af = p.family()
	protos := p.protos()
	from := p.fromTo()
	r.opts = filterOptions{seen: map[string]bool{}, prio: -1, rtable: -1, setTOS: -1}
	if p.accept("tag") {
		r.opts.tag = p.name()
	}
	if p.is("!", "tagged") {
		r.opts.taggedNot = p.accept("!")
		p.expect("tagged")
		r.opts.tagged = p.text()
	}
	if p.accept("rtable") {
		r.opts.rtable = p.routingTable()
	}
	arrow := p.accept("->")
	var to []host
	var at port
	static := false
	if arrow {
		if p.is("{") {
			p.unknown("pools of addresses")
		}
		to = p.oneHost()
		if p.accept("port") {
			a, b := p.portRange(true)
			if at = (port{op: "=", a: a}); b >= 0 {
				at = port{op: ":", a: a, b: b}
			}
		}
		if p.is("bitmask", "random", "source-hash", "round-robin", "sticky-address") {
			p.unknown("pools of addresses")
		}
		static = p.accept("static-port")
	}
	p.lineEnd()
	p.inSection(translating)
	p.checkTags(r.opts)
	for _, list := range [][]host{from.src, from.dst} {
		if r.af == 0 && len(list) > 0 {
			r.af = list[0].af
		}
	}
	if strings.HasPrefix(r.action, "no ") {
		if arrow {
			p.fail("translation rule with 'no' does not need '->'")
		}
	} else {
		if !arrow {
			p.fail("translation rule requires '-> address'")
		}
		if r.af == 0 {
			r.af = to[0].af
		}
		to = slices.DeleteFunc(to, func(h host) bool { return r.af != 0 && h.af != 0 && h.af != r.af })
		if len(to) == 0 {
			p.fail("no translation address with matching address family found.")
		}
		if static && r.action != "nat" {
			p.fail("the 'static-port' option is only valid with nat rules")
		}
		r.target = p.target(to, r.af, at, static)
	}
	outer := p.rules
	if p.rules = &p.run.next.nats; strings.HasSuffix(r.action, "rdr") {
		p.rules = &p.run.next.rdrs
	}
	defer func() { p.rules = outer }()
	p.expand(r, ifaces, protos, from)
}

// target prints the target of a translation.
func (p *parser) target(to []host, af int, at port, static bool) string {
	var names []string
	pool := len(to) > 1
	for _, h := range to {
		names = append(names, h.text(af))
		pool = pool || h.place == inTable || h.place == dynamic && !slices.Contains(h.mods, "0")
	}
	s := " -> " + strings.Join(names, ", ")
	if len(to) > 1 {
		s = " -> { " + strings.Join(names, ", ") + " }"
	}
	switch at.op {
	case "=":
		s += fmt.Sprintf(" port %d", at.a)
	case ":":
		s += fmt.Sprintf(" port %d:%d", at.a, at.b)
	}
	if pool {
		s += " round-robin"
	}
	if static {
		s += " static-port"
	}
	return s
}
