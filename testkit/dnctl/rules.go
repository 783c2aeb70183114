package dnctl

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// lastRule is the number of the kernel's own default rule.
const lastRule = 65535

// A rule is one rule of ipfw, as ipfw prints it.
type rule struct {
	number int
	text   string
}

// A body is the part of a rule after its number. Syntax that is not known here
// ends the run.
type body struct {
	*run
	av                 []string
	action             string
	justOptions        bool // no "proto from … to …"
	proto              string
	from, to           string
	fromPorts, toPorts []string
	options            []string
	comment            string
}

// add runs `add [N] action …` and prints the rule as the kernel returns it.
func (r *run) add(av []string) {
	number := 0
	if len(av) > 0 && digit(av[0]) {
		number, av = atoi(av[0]), av[1:]
	}
	if len(av) > 1 && (r.matches(av[0], "set") || r.matches(av[0], "prob")) {
		r.unknown("`%s` of a rule", av[0])
	}
	b := &body{run: r, av: av}
	b.readAction()
	b.readBody()
	b.readOptions()
	if number == 0 {
		r.unknown("the number that the kernel gives a rule without one")
	}
	if !r.testOnly && (number < 1 || number >= lastRule) {
		r.fail(exitUnavailable, "getsockopt(IP_FW_XADD): Invalid argument")
	}
	x := rule{number & 0xffff, fmt.Sprintf("%05d %s", number&0xffff, b.text())}
	if !r.testOnly {
		r.rules = append(r.rules, x)
		slices.SortStableFunc(r.rules, func(a, b rule) int { return cmp.Compare(a.number, b.number) })
	}
	if !r.quiet {
		r.out.WriteString(x.text + "\n")
	}
}

// Load adds an existing rule, as ipfw lists it.
func (m *Machine) Load(text string) {
	n, err := strconv.Atoi(strings.Fields(text)[0])
	if err != nil {
		panic("a rule without a number: " + text)
	}
	m.rules = append(m.rules, rule{n, text})
	slices.SortStableFunc(m.rules, func(a, b rule) int { return cmp.Compare(a.number, b.number) })
}

func (r *run) removeRule(n int) {
	before := len(r.rules)
	if n == 0 {
		r.unknown("`delete 0`")
	}
	if n != lastRule && !r.testOnly {
		r.rules = slices.DeleteFunc(r.rules, func(x rule) bool { return x.number == n })
	}
	if len(r.rules) == before && !r.quiet {
		r.warn("rule %d not found", n)
	}
}

// next returns the next word. Without one it ends the run with the message.
func (b *body) next(missing string) string {
	if len(b.av) == 0 {
		b.fail(exitUsage, "%s", missing)
	}
	w := b.av[0]
	b.av = b.av[1:]
	return w
}

func (b *body) readAction() {
	w := b.next("missing action")
	switch w {
	case "allow", "accept", "pass", "permit":
		b.action = "allow"
	case "deny", "drop":
		b.action = "deny"
	case "count", "return":
		b.action = w
	case "skipto", "pipe", "queue", "call":
		if len(b.av) == 0 {
			b.fail(exitUsage, "missing argument for %s", w)
		}
		if !digit(b.av[0]) {
			if b.av[0] == "tablearg" {
				b.action = w + " tablearg"
				b.av = b.av[1:]
				break
			}
			b.fail(exitData, "illegal argument for %s", w)
		}
		n, _ := strtoulBase(b.av[0], 10)
		if n16 := uint16(n); n16 == 0 || n16 == 65535 {
			b.fail(exitData, "illegal argument for %s", w)
		}
		b.action = fmt.Sprintf("%s %d", w, uint16(n))
		b.av = b.av[1:]
	default:
		b.unknown("the action %s", w)
	}
	if len(b.av) > 0 && slices.Contains([]string{"log", "altq", "tag", "untag"}, b.av[0]) {
		b.unknown("%s", b.av[0])
	}
}

// plain refuses lists of alternatives.
func (b *body) plain(w string) string {
	if strings.ContainsAny(w, "({") && !strings.HasPrefix(w, "table(") || w == "or" {
		b.unknown("alternatives in brackets")
	}
	return w
}

// negation reads an optional `not`.
func (b *body) negation() string {
	if len(b.av) > 0 && b.matches(b.av[0], "not") {
		b.av = b.av[1:]
		return "not "
	}
	return ""
}

// readBody reads "proto from A [ports] to B [ports]", or nothing if the next
// word is no protocol.
func (b *body) readBody() {
	if len(b.av) == 0 {
		b.fail(exitUsage, "missing protocol")
	}
	b.plain(b.av[0])
	not := b.negation()
	if len(b.av) == 0 {
		b.fail(exitUsage, "missing protocol")
	}
	name, ok := protocol(b.av[0])
	if !ok {
		if not != "" {
			b.av = append([]string{"not"}, b.av...)
		}
		b.justOptions = true
		return
	}
	b.av = b.av[1:]
	b.proto = not + name
	if len(b.av) == 0 || !b.matches(b.av[0], "from") {
		b.fail(exitUsage, "missing ``from''")
	}
	b.av = b.av[1:]
	b.from, b.fromPorts = b.end("source", "to")
	if len(b.av) == 0 || !b.matches(b.av[0], "to") {
		b.fail(exitUsage, "missing ``to''")
	}
	b.av = b.av[1:]
	b.to, b.toPorts = b.end("dst", "")
}

// end reads an address and the ports after it.
func (b *body) end(which, until string) (address string, ports []string) {
	not := b.negation()
	w := b.plain(b.next("missing " + which + " address"))
	address = not + b.address(w)
	if len(b.av) == 0 || b.av[0] == until {
		return address, nil
	}
	if b.av[0] == "any" {
		b.av = b.av[1:]
		return address, nil
	}
	if list, ok := b.ports(b.av[0]); ok {
		b.av = b.av[1:]
		ports = []string{list}
	}
	return address, ports
}

// protocol returns how ipfw prints a protocol: by name if it has one.
func protocol(w string) (string, bool) {
	if w != "" && strings.HasPrefix("all", w) {
		return "ip", true
	}
	switch w {
	case "ip":
		return "ip", true
	case "ip4", "ipv4":
		return "ip4", true
	case "ip6", "ipv6":
		return "ip6", true
	}
	names := map[string]int{"icmp": 1, "igmp": 2, "tcp": 6, "udp": 17, "gre": 47, "esp": 50, "ah": 51, "ipv6-icmp": 58, "ospf": 89, "carp": 112, "sctp": 132, "pfsync": 240, "udplite": 136}
	if _, ok := names[w]; ok {
		return w, true
	}
	if n, err := strconv.Atoi(w); err == nil && n > 0 {
		for name, number := range names {
			if number == n&0xff {
				return name, true
			}
		}
		return strconv.Itoa(n & 0xff), true
	}
	return "", false
}

// address returns how ipfw prints a list of addresses.
func (b *body) address(w string) string {
	if w == "me" || w == "me6" || w == "any" {
		return w
	}
	if strings.HasPrefix(w, "table(") {
		name, ok := strings.CutSuffix(strings.TrimPrefix(w, "table("), ")")
		if !ok || name == "" || strings.Contains(name, ",") {
			b.unknown("the table %s", w)
		}
		return "table(" + name + ")"
	}
	var out []string
	v6 := false
	for i, part := range strings.Split(w, ",") {
		host, bits, hasBits := strings.Cut(part, "/")
		a, err := netip.ParseAddr(host)
		if err != nil || a.Zone() != "" || strings.Contains(part, ":") && a.Is4() {
			b.unknown("the host %s", part)
		}
		if i == 0 {
			v6 = a.Is6()
		} else if v6 != a.Is6() {
			if v6 {
				b.fail(exitData, "bad address")
			}
			b.fail(exitNoHost, "hostname ``%s'' unknown", host)
		}
		most := 32
		if v6 {
			most = 128
		}
		n := most
		if hasBits {
			if n = atoi(bits); n > most || n < 0 {
				b.fail(exitData, "bad width ``%s''", bits)
			}
		}
		if n == 0 {
			return "any"
		}
		text := netip.PrefixFrom(a, n).Masked().Addr().String()
		if n < most {
			text += "/" + strconv.Itoa(n)
		}
		out = append(out, text)
	}
	return strings.Join(out, ",")
}

// ports returns how ipfw prints a list of ports and ranges, or false if the
// word is no such list.
func (b *body) ports(w string) (string, bool) {
	var out []string
	one := func(s string) (string, bool) {
		if digit(s) {
			n, rest := strtoul(s)
			if rest != "" {
				return "", false
			}
			return strconv.Itoa(int(uint16(n))), true
		}
		n, ok := map[string]string{"http": "80", "https": "443", "domain": "53", "ssh": "22", "smtp": "25", "ntp": "123", "ftp": "21", "imap": "143", "imaps": "993", "sip": "5060"}[s]
		return n, ok
	}
	for part := range strings.SplitSeq(w, ",") {
		low, high, isRange := strings.Cut(part, "-")
		text, ok := one(low)
		if !ok {
			return "", false
		}
		if isRange {
			to, ok := one(high)
			if !ok {
				return "", false
			}
			if to != text {
				text += "-" + to
			}
		}
		out = append(out, text)
	}
	return strings.Join(out, ","), true
}

// readOptions reads the options, which keep their order.
func (b *body) readOptions() {
	not := ""
	add := func(format string, args ...any) {
		b.options = append(b.options, not+fmt.Sprintf(format, args...))
		not = ""
	}
	toggle := func() {
		if not != "" {
			b.fail(exitUsage, "double \"not\" not allowed\n")
		}
		not = "not "
	}
	for len(b.av) > 0 {
		w := b.next("")
		if rest, ok := strings.CutPrefix(w, "!"); ok {
			toggle()
			w = rest
		}
		switch w {
		case "not":
			toggle()
		case "in":
			b.way(&not, "in", "out")
		case "out":
			b.way(&not, "out", "in")
		case "layer2":
			add("layer2")
		case "established", "estab":
			add("established")
		case "xmit", "recv", "via":
			name := b.next("recv, xmit, via require interface name or address")
			if strings.HasPrefix(name, "table(") || digit(name) {
				b.unknown("%s %s", w, name)
			}
			if name == "any" {
				not = ""
				continue
			}
			add("%s %s", w, name[:min(len(name), 15)])
		case "src-port", "dst-port":
			name := map[string]string{"src-port": "source", "dst-port": "destination"}[w]
			list := b.next("missing " + name + " port")
			if list == "any" {
				not = ""
				continue
			}
			text, ok := b.ports(list)
			if !ok {
				b.fail(exitData, "invalid %s port %s", name, list)
			}
			if not != "" {
				b.unknown("`not %s`", w)
			}
			if w == "src-port" {
				b.fromPorts = append(b.fromPorts, text)
			} else {
				b.toPorts = append(b.toPorts, text)
			}
		case "iplen", "iplength", "ipttl", "ipid", "tcpdatalen":
			list := b.next(w + " requires length")
			text, ok := b.ports(list)
			if !ok {
				b.fail(exitData, "invalid ip len %s", list)
			}
			add("%s %s", w, text)
		case "dscp":
			add("dscp %s", b.dscp(b.next("missing DSCP code")))
		case "tcpflags", "tcpflgs":
			add("tcpflags %s", b.tcpFlags(b.next("missing argument for tcpflags")))
		case "flow":
			w := b.next("missing table name")
			name, ok := strings.CutPrefix(w, "table(")
			if !ok {
				b.fail(exitData, "enclose table name into \"table()\"")
			}
			if name, ok = strings.CutSuffix(name, ")"); !ok || name == "" || strings.Contains(name, ",") {
				b.unknown("the table %s", w)
			}
			if t := b.tables[name]; !b.testOnly && (t == nil || t.kind != "flow") {
				b.unknown("a rule that looks up a table of flows that is not there")
			}
			add("flow table(%s)", name)
		case "mac-type":
			add("mac-type %s", b.macTypes(b.next("missing mac type")))
		case "//":
			b.comment = strings.Join(b.av, " ")
			b.av = nil
		default:
			b.unknown("the option %s", w)
		}
	}
	if len(b.fromPorts) > 1 || len(b.toPorts) > 1 {
		b.unknown("ports named twice")
	}
}

// way adds the direction, in or out; `not in` is out.
func (b *body) way(not *string, is, else_ string) {
	if *not != "" {
		is = else_
	}
	*not = ""
	b.options = append(b.options, is)
}

// dscp returns code points as ipfw prints them: by name, in ascending order.
func (b *body) dscp(list string) string {
	var set [64]bool
	for s := range strings.SplitSeq(list, ",") {
		n := -1
		if s != "" && (s[0] >= 'a' && s[0] <= 'z' || s[0] >= 'A' && s[0] <= 'Z') {
			for code := range 64 {
				if s == codePoint(code) || s == "cs0" && code == 0 {
					n = code
				}
			}
			if s == "va" { // not in the source that this follows; older tools answer Unknown DSCP code
				n = 44
			}
			if n < 0 {
				b.fail(exitData, "Unknown DSCP code")
			}
		} else if v, _ := strtoulBase(s, 10); v <= 63 {
			n = int(v)
		} else {
			b.fail(exitData, "Invalid DSCP value")
		}
		set[n] = true
	}
	var out []string
	for n, is := range set {
		if is {
			out = append(out, cmp.Or(codePoint(n), strconv.Itoa(n)))
		}
	}
	return strings.Join(out, ",")
}

// codePoint returns ipfw's name of a code point, or "".
func codePoint(n int) string {
	switch {
	case n == 0:
		return "be"
	case n == 46:
		return "ef"
	case n%8 == 0:
		return fmt.Sprintf("cs%d", n/8)
	case n%2 == 0 && n/8 >= 1 && n/8 <= 4:
		return fmt.Sprintf("af%d%d", n/8, n%8/2)
	}
	return ""
}

func (b *body) tcpFlags(list string) string {
	names := []string{"syn", "fin", "ack", "psh", "rst", "urg"}
	set, clear := map[string]bool{}, map[string]bool{}
	for s := range strings.SplitSeq(list, ",") {
		name, off := strings.CutPrefix(s, "!")
		if !slices.Contains(names, name) {
			b.fail(exitData, "invalid flag %s", name)
		}
		if off {
			clear[name] = true
		} else {
			set[name] = true
		}
	}
	var out []string
	for _, n := range names {
		if set[n] {
			out = append(out, n)
		}
	}
	for _, n := range names {
		if clear[n] {
			out = append(out, "!"+n)
		}
	}
	return strings.Join(out, ",")
}

func (b *body) macTypes(list string) string {
	var out []string
	for s := range strings.SplitSeq(list, ",") {
		n, ok := map[string]uint64{"ip": 0x800, "ipv4": 0x800, "ipv6": 0x86dd, "arp": 0x806, "rarp": 0x8035, "vlan": 0x8100}[s]
		if !ok {
			var rest string
			if n, rest = strtoul(s); rest != "" || !digit(s) {
				b.unknown("the mac-type %s", s)
			}
		}
		out = append(out, fmt.Sprintf("0x%04x", n))
	}
	return strings.Join(out, ",")
}

// text prints the rule without its number.
func (b *body) text() string {
	w := []string{b.action}
	if !b.justOptions {
		w = append(w, b.proto, "from", b.from)
		w = append(w, b.fromPorts...)
		w = append(w, "to", b.to)
		w = append(w, b.toPorts...)
	}
	w = append(w, b.options...)
	if b.comment != "" {
		w = append(w, "// "+b.comment)
	}
	return strings.Join(w, " ")
}
