package pfctl

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A rule is one filter rule, after lists were expanded.
type rule struct {
	action    string // pass, block, match, scrub, nat, rdr, anchor …
	block     string // the answer of a block rule
	returnRST bool
	dir       string // in, out
	log       string
	quick     bool
	iface     iface
	af, proto int
	src, dst  host
	srcPort   port
	dstPort   port
	opts      filterOptions
	icmp      *icmpSpec
	user      ugid
	group     ugid
	flags     string
	keep      string
	name      string  // of an anchor
	named     bool    // an anchor with a name
	body      *[]rule // of an anchor in { }
	label     string
	tag       string
	tagged    string
	target    string // of a translation
	pass      bool   // of a translation
	scrub     scrubOptions
}

// An iface is the interface after `on`.
type iface struct {
	name   string
	not    bool
	domain int // rdomain; −1: none
}

// A port is one port, a range, or a comparison.
type port struct {
	op   string // "": any; "=", "!=", "<", "<=", ">", ">=", ":", "><", "<>"
	a, b int
}

// A ugid is a user or a group.
type ugid struct {
	op   string
	a, b int64
}

type icmpSpec struct{ af, kind, code int } // code −1: any

// filterOptions are the options that may follow the addresses of a rule.
type filterOptions struct {
	seen      map[string]bool
	users     []ugid
	groups    []ugid
	flagsSet  bool
	flags     string // S/SA; "" with flagsSet: any
	icmp      []icmpSpec
	prio      int // −1: none
	tos       int // 0: none
	keep      string
	keepSet   bool
	state     []stateOption
	fragment  bool
	allowOpts bool
	label     string
	queue     string
	first     string // the queue of packets that ask for low delay
	tag       string
	tagged    string
	taggedNot bool
	prob      uint32
	rtable    int64 // −1: none
	received  *iface
	once      bool
	rate      [2]int64
	setPrio   []int
	setTOS    int // −1: none
	delay     int64
	scrub     scrubOptions
	natTo     *redirect
	rdrTo     *redirect
}

type scrubOptions struct {
	noDF, randomID, reassemble bool
	minTTL, maxMSS             int64
	setTOS                     int // old only; 0: none
	fragments                  string
}

// A redirect is the target of nat-to or rdr-to.
type redirect struct {
	hosts  []host
	port   port
	static bool
}

// A stateOption is one option in the parentheses after `keep state`.
type stateOption struct {
	name  string
	a, b  int64
	text  string // of a table
	flush string
}

// filterRule reads a rule that begins with `pass`, `block` or `match`.
func (p *parser) filterRule() {
	r := rule{action: p.take().text}
	if r.action == "block" {
		p.blockAnswer(&r)
	}
	r.dir = p.direction()
	p.logQuick(&r)
	ifaces := p.interfaces()
	if p.old && p.is("fastroute", "route-to", "reply-to", "dup-to") {
		p.unknown(p.peek().text)
	}
	r.af = p.family()
	protos := p.protos()
	from := p.fromTo()
	r.opts = p.filterOptions()
	p.lineEnd()
	p.inSection(filtering)
	p.checkOptions(&r, protos)
	p.stateful(&r)
	p.expand(r, ifaces, protos, from)
}

// blockAnswer reads the answer of a block rule.
func (p *parser) blockAnswer(r *rule) {
	code := func(af int) int {
		t := p.peek()
		if t.kind == number {
			p.take()
			if t.number < 0 || t.number > 255 {
				p.fail("invalid icmp code %d", t.number)
			}
			return int(t.number)
		}
		name := p.name()
		n, ok := unreachCodes(af)[name]
		if !ok {
			if v, err := strconv.ParseUint(name, 0, 64); err == nil && v <= 255 {
				return int(v)
			}
			p.fail("unknown icmp code %s", name)
		}
		return n
	}
	show := func(af, n int) string {
		if name := unreachName(af, n); name != "" {
			return name
		}
		return strconv.Itoa(n)
	}
	icmpCodes := [2]int{3, 4} // port-unr
	r.block = "drop"
	if p.blockReturn {
		r.block = "return"
	}
	switch {
	case p.accept("drop"):
		r.block = "drop"
	case p.accept("return-rst"):
		r.block, r.returnRST = "return-rst", true
		if p.accept("(") {
			p.expect("ttl")
			n := p.number()
			if n < 0 || n > 255 {
				p.fail("illegal ttl value %d", n)
			}
			p.expect(")")
			if n > 0 {
				r.block = fmt.Sprintf("return-rst(ttl %d)", n)
			}
		}
	case p.accept("return-icmp"):
		if p.accept("(") {
			icmpCodes[0] = code(4)
			icmpCodes[1] = 3 // pfctl(8) uses IPv4's default here, printed as IPv6's
			if !p.is(")") {
				p.accept(",")
				icmpCodes[1] = code(6)
			}
			p.expect(")")
		}
		r.block = "return-icmp\x00" + show(4, icmpCodes[0]) + "\x00" + show(6, icmpCodes[1])
	case p.accept("return-icmp6"):
		if p.accept("(") {
			icmpCodes[1] = code(6)
			p.expect(")")
		}
		r.block = "return-icmp\x00" + show(4, icmpCodes[0]) + "\x00" + show(6, icmpCodes[1])
	case p.accept("return"):
		r.block = "return"
	}
}

func (p *parser) direction() string {
	switch {
	case p.accept("in"):
		return "in"
	case p.accept("out"):
		return "out"
	}
	return ""
}

func (p *parser) logQuick(r *rule) {
	r.quick = p.accept("quick")
	if p.accept("log") {
		r.log = " log" + p.logOptions()
		r.quick = p.accept("quick") || r.quick
	}
}

func (p *parser) logOptions() string {
	if !p.is("(") {
		return ""
	}
	have := map[string]bool{}
	to := int64(0)
	p.bracketed(func() {
		switch {
		case p.accept("all"):
			have["all"] = true
		case !p.old && p.accept("matches"):
			have["matches"] = true
		case p.accept("user"), p.old && p.accept("group"):
			have["user"] = true
		case p.accept("to"):
			name := p.text()
			digits, ok := strings.CutPrefix(name, "pflog")
			if !ok {
				p.fail("%s: should be a pflog interface", name)
			}
			n, err := strconv.ParseInt(digits, 10, 64)
			if err != nil {
				p.fail("%s: invalid", name)
			}
			if n < 0 || n > 255 {
				p.fail("%s: too large", name)
			}
			if n > 0 {
				to = n
			}
		default:
			p.syntax()
		}
	})
	var out []string
	for _, w := range []string{"all", "matches", "user"} {
		if have[w] {
			out = append(out, w)
		}
	}
	if to > 0 {
		out = append(out, fmt.Sprintf("to pflog%d", to))
	}
	if len(out) == 0 {
		return ""
	}
	return " (" + strings.Join(out, ", ") + ")"
}

// interfaces reads the interfaces after `on`; nil: all.
func (p *parser) interfaces() (out []iface) {
	if !p.accept("on") {
		return nil
	}
	p.list(func() {
		not := p.accept("!")
		i := p.oneInterface()
		i.not = not
		out = append(out, i)
	})
	return out
}

func (p *parser) oneInterface() iface {
	switch {
	case !p.old && p.accept("any"):
		return iface{name: "any", domain: -1}
	case !p.old && p.accept("rdomain"):
		n := p.number()
		if n < 0 || n > 255 {
			p.errorf("rdomain %d outside range", n)
		}
		return iface{domain: int(n)}
	}
	name := p.name()
	if len(name) > maxInterface {
		p.fail("interface name too long")
	}
	return iface{name: name, domain: -1}
}

func (p *parser) family() int {
	switch {
	case p.accept("inet"):
		return 4
	case p.accept("inet6"):
		return 6
	}
	return 0
}

// protos reads the protocols after `proto`; nil: all.
func (p *parser) protos() (out []int) {
	if !p.accept("proto") {
		return nil
	}
	p.list(func() {
		n := int64(0)
		if t := p.peek(); t.kind == number {
			p.take()
			if n = t.number; n < 0 || n > 255 {
				p.fail("protocol outside range")
			}
		} else {
			name := p.name()
			m, ok := protocolNumber(name)
			if !ok {
				p.fail("unknown protocol %s", name)
			}
			n = int64(m)
		}
		if n == 0 {
			p.fail("proto 0 cannot be used")
		}
		out = append(out, int(n))
	})
	return out
}

// ends are a rule's sources and destinations.
type ends struct {
	src, dst         []host
	srcPort, dstPort []port
}

func (p *parser) fromTo() (e ends) {
	if p.accept("all") {
		return e
	}
	if p.accept("from") {
		e.src, e.srcPort = p.hostsAndPorts()
	}
	if p.is("os") {
		p.unknown("fingerprints of operating systems")
	}
	if p.accept("to") {
		e.dst, e.dstPort = p.hostsAndPorts()
		for _, h := range e.dst {
			if h.place == noReverse {
				p.fail("\"urpf-failed\" is not permitted in a destination address")
			}
		}
	}
	return e
}

func (p *parser) hostsAndPorts() (hosts []host, ports []port) {
	if !p.is("port") {
		hosts = p.hosts()
	}
	if p.accept("port") {
		p.list(func() { ports = append(ports, p.port()) })
	}
	return hosts, ports
}

// compare reads a comparison operator before a port or a user.
func (p *parser) compare() string {
	for _, op := range []string{"!=", "<=", ">="} {
		if p.accept(op) {
			return op
		}
	}
	for _, op := range []string{"=", "!", "<", ">"} {
		if !p.accept(op) {
			continue
		}
		if op == "!" {
			p.expect("=")
			return "!="
		}
		if p.old && op != "=" && p.accept("=") {
			return op + "="
		}
		return op
	}
	return ""
}

// port reads 22, ssh, 5060:5061, > 1023 or 1 >< 9.
func (p *parser) port() port {
	if op := p.compare(); op != "" {
		a, b := p.portRange(true)
		if b >= 0 {
			p.fail("':' cannot be used with an other port operator")
		}
		return port{op: op, a: a}
	}
	a, b := p.portRange(true)
	for _, op := range []string{"><", "<>"} {
		if p.accept(op) {
			c, d := p.portRange(true)
			if b >= 0 || d >= 0 {
				p.fail("':' cannot be used with an other port operator")
			}
			if !p.old && (a > c || op == "><" && a == c) {
				p.fail("invalid port range")
			}
			return port{op: op, a: a, b: c}
		}
	}
	if b < 0 {
		return port{op: "=", a: a}
	}
	if !p.old && a > b {
		p.fail("invalid port range")
	}
	return port{op: ":", a: a, b: b}
}

// portRange reads one port, or two with : between them; b is −1 for one port.
func (p *parser) portRange(ranges bool) (a, b int) {
	t := p.peek()
	if t.kind != str && t.kind != number {
		p.syntax()
	}
	p.take()
	first, second, two := strings.Cut(t.text, ":")
	if !two {
		return p.service(t.text), -1
	}
	if !ranges {
		p.fail("port is invalid: %s", t.text)
	}
	a, b = p.service(first), p.service(second)
	if a == b {
		return a, -1
	}
	return a, b
}

func (p *parser) service(s string) int {
	digits, negative := strings.CutPrefix(s, "-")
	if v, err := strconv.ParseUint(cNumber(digits), 0, 64); err == nil && !strings.ContainsAny(s, "_oObB") {
		if negative {
			v = -v // as in strtoul(3)
		}
		if v > 65535 {
			p.fail("illegal port value %d", v)
		}
		return int(v)
	}
	n, ok := servicePort(s)
	if !ok {
		p.fail("unknown port %s", s)
	}
	return n
}

// cNumber converts an octal number of C to Go's syntax.
func cNumber(s string) string {
	if len(s) > 1 && s[0] == '0' && isDigit(int(s[1])) {
		return "0o" + s[1:]
	}
	return s
}

// checkOptions makes pfctl's checks of a rule before its lists are expanded.
func (p *parser) checkOptions(r *rule, protos []int) {
	o := &r.opts
	if o.once && r.action != "pass" && r.action != "block" {
		p.fail("'once' only applies to pass/block rules")
	}
	p.checkTags(*o)
	if len(o.label) > maxLabel {
		p.fail("rule label too long (max %d chars)", maxLabel)
	}
	if s, mask, ok := strings.Cut(o.flags, "/"); ok {
		for _, c := range s {
			if !strings.ContainsRune(mask, c) {
				p.fail("flags always false")
			}
		}
	}
	if len(o.queue) > maxQueue {
		p.fail("rule qname too long (max %d chars)", maxQueue)
	}
	if len(o.first) > maxQueue {
		p.fail("rule pqname too long (max %d chars)", maxQueue)
	}
	if o.flags != "" && protos != nil && !slices.Contains(protos, tcp) {
		p.fail("flags only apply to tcp")
	}
}

func (p *parser) checkTags(o filterOptions) {
	if len(o.tag) > maxTag || len(o.tagged) > maxTag {
		p.fail("tag too long, max %d chars", maxTag)
	}
}

// stateful sets how a rule keeps states. Pass rules do unless they say `no
// state`.
func (p *parser) stateful(r *rule) {
	o := &r.opts
	r.keep = o.keep
	if r.keep == "" && r.action == "pass" && !o.keepSet {
		r.keep = "keep"
		o.state = p.defaults
	}
	p.checkStates(r)
	if r.keep != "" && r.action == "pass" && !o.fragment && !o.flagsSet {
		o.flags = "S/SA"
	}
	if r.keep != "" && p.ifBound && !slices.ContainsFunc(o.state, func(s stateOption) bool { return s.name == "floating" || s.name == "if-bound" }) {
		o.state = append(slices.Clone(o.state), stateOption{name: "if-bound"})
	}
}

// expand makes a rule for each combination of the items in lists.
func (p *parser) expand(r rule, ifaces []iface, protos []int, e ends) {
	decide := func(list []host) {
		if r.af != 0 || len(list) == 0 {
			return
		}
		for _, h := range list {
			if h.af != list[0].af {
				return
			}
		}
		r.af = list[0].af
	}
	decide(e.src)
	decide(e.dst)
	af, added := r.af, 0
	for _, i := range orOne(ifaces, iface{domain: -1}) {
		for _, proto := range orOne(protos, 0) {
			for _, icmp := range orOne(r.opts.icmp, icmpSpec{af: -1}) {
				p.combine(e, func(src, dst host, srcPort, dstPort port) {
					for _, user := range orOne(r.opts.users, ugid{}) {
						for _, group := range orOne(r.opts.groups, ugid{}) {
							one := r
							one.af, one.iface, one.proto, one.src, one.dst, one.srcPort, one.dstPort, one.user, one.group = af, i, proto, src, dst, srcPort, dstPort, user, group
							if icmp.af >= 0 {
								one.icmp = &icmp
							}
							if ok, fits := p.one(&one); fits {
								if ok {
									added++
								} else {
									p.errorf("skipping rule due to errors")
								}
							}
						}
					}
				})
			}
		}
	}
	if added == 0 {
		p.errorf("rule expands to no valid combination")
	}
}

// combine calls f with every pair of ends, in the grammar's order.
func (p *parser) combine(e ends, f func(src, dst host, srcPort, dstPort port)) {
	any := host{}
	for _, s := range orOne(e.src, any) {
		if p.old {
			for _, sp := range orOne(e.srcPort, port{}) {
				for _, d := range orOne(e.dst, any) {
					for _, dp := range orOne(e.dstPort, port{}) {
						f(s, d, sp, dp)
					}
				}
			}
			continue
		}
		for _, d := range orOne(e.dst, any) {
			for _, sp := range orOne(e.srcPort, port{}) {
				for _, dp := range orOne(e.dstPort, port{}) {
					f(s, d, sp, dp)
				}
			}
		}
	}
}

func orOne[T any](list []T, none T) []T {
	if len(list) == 0 {
		return []T{none}
	}
	return list
}

// one checks one combination and adds it. fits is false if the addresses are of
// different families.
func (p *parser) one(r *rule) (ok, fits bool) {
	bad := 0
	if r.opts.natTo != nil || r.opts.rdrTo != nil {
		bad += p.redirected(r)
	}
	s, d := r.src.af, r.dst.af
	if r.af != 0 && s != 0 && r.af != s || r.af != 0 && d != 0 && r.af != d || s != 0 && d != 0 && s != d {
		return false, false
	}
	if r.af == 0 {
		r.af = max(s, d)
	}
	r.label = p.expandLabel(r.opts.label, r)
	r.tag, r.tagged = p.expandLabel(r.opts.tag, r), p.expandLabel(r.opts.tagged, r)
	for _, h := range []*host{&r.src, &r.dst} {
		if h.place == dynamic && r.af == 4 && h.bits > 32 {
			h.bits = 32
		}
		if r.af == 4 && h.place != inTable && h.place != spread && h.bits > 32 {
			p.run.errln("netmask %d invalid for IPv4 address", h.bits)
			bad++
		}
	}
	if r.keep != "keep" && r.keep != "" && r.proto != 0 && r.proto != tcp {
		r.keep = "keep"
	}
	if r.proto == 0 || r.proto == tcp {
		r.flags = r.opts.flags
	}
	if r.icmp != nil && (r.icmp.af == 4 && r.proto != icmp || r.icmp.af == 6 && r.proto != icmp6) {
		p.errorf("icmp-type mismatch")
		bad++
	}
	if bad += p.inconsistent(r); bad > 0 {
		return false, true
	}
	*p.rules = append(*p.rules, *r)
	return true, true
}

// inconsistent reports the contradictions in a rule and counts them.
func (p *parser) inconsistent(r *rule) (n int) {
	say := func(wrong bool, format string, args ...any) {
		if wrong {
			p.errorf(format, args...)
			n++
		}
	}
	if r.action == "nat" || r.action == "no nat" || r.action == "no rdr" || r.action == "rdr" {
		if r.action == "rdr" || r.action == "no rdr" {
			none := r.proto != tcp && r.proto != udp
			say(none && r.srcPort.op != "", "src port only applies to tcp/udp")
			say(none && r.dstPort.op != "", "dst port only applies to tcp/udp")
			say(none && strings.Contains(r.target, " port "), "rpool port only applies to tcp/udp")
		}
		return n
	}
	o := r.opts
	ports := r.srcPort.op != "" || r.dstPort.op != ""
	ofPorts := r.proto == tcp || r.proto == udp
	say(!ofPorts && ports, "port only applies to tcp/udp")
	say(!p.old && !ofPorts && r.user.op != "", "user only applies to tcp/udp")
	say(!p.old && !ofPorts && r.group.op != "", "group only applies to tcp/udp")
	say(r.proto != icmp && r.proto != icmp6 && r.icmp != nil, "icmp-type/code only applies to icmp")
	say(r.af == 0 && r.icmp != nil, "must indicate address family with icmp-type/code")
	limited := func(names ...string) bool {
		return slices.ContainsFunc(o.state, func(s stateOption) bool { return slices.Contains(names, s.name) })
	}
	say(limited("overload") && !limited("max-src-conn", "max-src-conn-rate"), "'overload' requires 'max-src-conn' or 'max-src-conn-rate'")
	say(r.proto == icmp && r.af == 6, "proto icmp doesn't match address family inet6")
	say(r.proto == icmp6 && r.af == 4, "proto icmp6 doesn't match address family inet")
	say(o.allowOpts && r.action != "pass", "allow-opts can only be specified for pass rules")
	say(o.fragment && (ports || r.flags != "" || r.icmp != nil), "fragments can be filtered only on IP header fields")
	say(r.returnRST && r.proto != tcp, "return-rst can only be applied to TCP rules")
	if p.old {
		say(r.action == "block" && r.keep != "", "keep state on block rules doesn't make sense")
	} else {
		say(r.action != "pass" && r.keep != "", "keep state is great, but only for pass rules")
	}
	say(limited("sloppy") && (r.keep == "modulate" || r.keep == "synproxy"), "sloppy state matching cannot be used with synproxy state or modulate state")
	if p.old {
		return n
	}
	if r.keep == "synproxy" && r.dir != "in" {
		fmt.Fprintf(&p.run.stderr, "%s: warning: synproxy used for inbound rules only, ignored for outbound\n", p.where())
	}
	translated := o.natTo != nil || o.rdrTo != nil
	say(translated && r.action != "match" && r.keep == "", "nat-to and rdr-to require keep state")
	say(translated && r.dir == "", "nat-to and rdr-to require a direction")
	say(r.af == 6 && (o.scrub.noDF || o.scrub.randomID), "address family inet6 does not support scrub options no-df, random-id")
	return n
}

// expandLabel replaces the macros in a label or tag, such as $if.
func (p *parser) expandLabel(s string, r *rule) string {
	if !strings.Contains(s, "$") {
		return s
	}
	or := func(s, none string) string {
		if s == "" {
			return none
		}
		return s
	}
	ofPort := func(o port) string {
		switch o.op {
		case "":
			return ""
		case "=":
			return strconv.Itoa(o.a)
		case "><", "<>":
			return fmt.Sprintf("%d%s%d", o.a, o.op, o.b)
		case ":":
			return ""
		}
		return o.op + strconv.Itoa(o.a)
	}
	ofHost := func(h host) string {
		t := h.text(r.af)
		if h.place == masked && r.af == 0 {
			t = "any"
		}
		if h.not {
			t = "! " + t
		}
		return t
	}
	proto := or(protocolName(r.proto), strconv.Itoa(r.proto))
	if r.proto == 0 {
		proto = "ip"
	}
	for _, f := range [][2]string{{"$if", or(r.iface.name, "any")}, {"$srcaddr", ofHost(r.src)}, {"$dstaddr", ofHost(r.dst)},
		{"$srcport", ofPort(r.srcPort)}, {"$dstport", ofPort(r.dstPort)}, {"$proto", proto}, {"$nr", strconv.Itoa(len(*p.rules))}} {
		s = strings.ReplaceAll(s, f[0], f[1])
	}
	return s
}

// probability prints a probability in percent.
func probability(n uint32) string {
	s := strconv.FormatFloat(float64(n)*100/(math.MaxUint32+1.0), 'f', 6, 64)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}
