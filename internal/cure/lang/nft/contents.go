package nft

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"unbloat/internal/cure/classify"
	"unbloat/internal/cure/plan"
)

// nft(8) does not list a rule as it was written: it prints bits as prefixes,
// code points by name, one-element sets as the element, and leaves out implied
// matches; versions differ too. So both sides are converted to one form that
// keeps the rule's meaning, and then compared.

// contents returns a table's parts by name, each with its lines converted by
// form: rules in order, the lines of sets and limits sorted.
func (t Table) contents(form func(string) string) map[string][]string {
	parts := map[string][]string{}
	at, rules, open := "", false, ""
	for line := range strings.Lines(t.Text) {
		line = strings.TrimSpace(line)
		w := strings.Fields(line)
		switch {
		case open == "" && len(w) == 3 && slices.Contains([]string{"chain", "set", "limit", "map", "counter", "quota", "flowtable"}, w[0]) && w[2] == "{":
			at, rules = w[0]+" "+w[1], w[0] == "chain"
			parts[at] = nil
		case open == "" && line == "}":
			if at != "" && !rules {
				slices.Sort(parts[at])
			}
			at = ""
		case at == "" || line == "":
		default: // a long rule may go over several lines
			if open += " " + line; strings.Count(open, "{") == strings.Count(open, "}") {
				parts[at] = append(parts[at], form(strings.TrimSpace(open)))
				open = ""
			}
		}
	}
	return parts
}

// isHook reports whether a line of a chain declares its hook and is not a rule.
func isHook(line string) bool { return strings.HasPrefix(line, "type ") }

// plan returns the hash of the rendered text that the table carries; "" if it
// has none.
func (t Table) plan() string {
	_, after, _ := strings.Cut(t.Text, "chain "+planMark)
	id, _, _ := strings.Cut(after, " ")
	return id
}

// canonical converts a rule or any other line to the form that is compared.
func canonical(line string) string {
	if devices, ok := strings.CutPrefix(line, "devices = {"); ok { // of a flow table, in any order
		names := strings.FieldsFunc(devices, func(r rune) bool { return strings.ContainsRune(" \",;}", r) })
		slices.Sort(names)
		return "devices " + strings.Join(names, " ")
	}
	if at, ok := strings.CutPrefix(line, "hook ingress priority "); ok && (strings.TrimRight(at, ";") == "filter" || strings.TrimRight(at, ";") == "0") {
		return "hook ingress priority 0"
	}
	c := canon{in: tokens(line)}
	for len(c.in) > 0 {
		c.next()
	}
	if len(c.out) > 0 && c.out[0] == "type" {
		return strings.Join(c.out, " ")
	}
	for _, x := range []string{c.protocol, c.family} {
		if x != "" {
			c.out = append([]string{x}, c.out...)
		}
	}
	return strings.Join(c.out, " ")
}

// tokens splits a line into words. Braces, brackets and commas are separate
// words, except those of "@th,32,32".
func tokens(line string) []string {
	var out []string
	for _, w := range strings.Fields(line) {
		if strings.HasPrefix(w, "@th,") {
			out = append(out, w)
			continue
		}
		for w != "" {
			n := strings.IndexAny(w, "{}(),;")
			switch n {
			case -1:
				n = len(w)
			case 0:
				n = 1
			}
			out, w = append(out, w[:n]), w[n:]
		}
	}
	return out
}

// A canon reads a line's words and writes the canonical ones. Matches on
// protocol and IP version come first, in whatever form they were written.
type canon struct {
	in, out          []string
	family, protocol string
}

// peek returns the n-th next word; "" if there is none.
func (c *canon) peek(n int) string {
	if n < len(c.in) {
		return c.in[n]
	}
	return ""
}

func (c *canon) take(n int) []string {
	n = min(n, len(c.in))
	w := c.in[:n]
	c.in = c.in[n:]
	return w
}

func (c *canon) say(w ...string) { c.out = append(c.out, w...) }

// next reads the next statement.
func (c *canon) next() {
	a, b := c.peek(0), c.peek(1)
	switch {
	case a == "meta" && b == "nfproto" && (c.peek(2) == "ipv4" || c.peek(2) == "ipv6"):
		c.family = c.take(3)[2]
	case a == "meta" && b == "l4proto" && c.peek(2) != ".":
		c.take(2)
		c.layer4()
	case (a == "tcp" || a == "udp" || a == "sctp") && (b == "dport" || b == "sport"):
		c.protocol = c.take(1)[0]
		c.say("th", c.take(1)[0])
		c.value(identity)
	case a == "tcp" && b == "flags":
		c.flags()
	case a == "tcp" && b == "option":
		c.protocol = "tcp"
		c.say(c.take(2)...)
	case (a == "ip" || a == "ip6") && (b == "saddr" || b == "daddr" || b == "dscp"):
		c.family = map[string]string{"ip": "ipv4", "ip6": "ipv6"}[a]
		c.say(c.take(2)...)
		if b == "dscp" {
			if c.peek(0) == "set" {
				c.say(c.take(1)...)
			}
			c.value(codePoint)
		} else if c.peek(0) != "." && !strings.HasPrefix(c.peek(0), "@") {
			c.value(wholeAddress)
		}
	case a == "th" && (b == "dport" || b == "sport"), a == "ether" && b == "saddr":
		if c.say(c.take(2)...); c.peek(0) != "." && !strings.HasPrefix(c.peek(0), "@") {
			c.value(identity)
		}
	case a == "ct" && b == "mark" && c.peek(2) == "set" && c.peek(3) == "ct" && c.peek(4) == "mark":
		c.setMark()
	case a == "ct" && b == "mark":
		c.mark()
	case strings.HasPrefix(a, "@th,"):
		c.payload()
	case a == "limit" && b == "rate", a == "rate":
		c.rate()
	case a == "priority" && len(c.out) > 1 && c.out[0] == "type": // of a chain's hook
		c.priority()
	case a == "flags" && len(c.out) == 0: // of a set
		var all []string
		for _, w := range c.take(len(c.in)) {
			if w != "," {
				all = append(all, w)
			}
		}
		slices.Sort(all)
		c.say("flags " + strings.Join(all, ","))
	case a == "==":
		c.take(1)
	case a == "and" || a == "or":
		c.take(1)
		c.say(map[string]string{"and": "&", "or": "|"}[a])
	default:
		c.say(number(c.take(1)[0]))
	}
}

// layer4 reads what follows "meta l4proto". A rule for a single protocol
// implies it; ICMP also implies the IP version, so nft does not list that.
func (c *canon) layer4() {
	if c.peek(0) == "==" {
		c.take(1)
	}
	if p := c.peek(0); p != "!=" && p != "{" {
		c.take(1)
		c.protocol = protocolName(p)
		switch c.protocol {
		case "icmp":
			c.family = "ipv4"
		case "ipv6-icmp":
			c.family = "ipv6"
		}
		return
	}
	c.say("meta", "l4proto")
	c.value(protocolName)
}

// protocolName returns a protocol's name; some versions of nft list its number.
func protocolName(s string) string {
	if n, err := strconv.ParseUint(s, 0, 8); err == nil {
		switch name := classify.NameOf(uint8(n)); {
		case n == classify.ICMPv6:
			return "ipv6-icmp"
		case name != "":
			return name
		}
	}
	return s
}

func identity(s string) string { return number(s) }

// wholeAddress removes the prefix length of a single address (/32, /128).
func wholeAddress(s string) string {
	if strings.Contains(s, ":") {
		return strings.TrimSuffix(s, "/128")
	}
	return strings.TrimSuffix(s, "/32")
}

// codePoint returns a DSCP name as its number.
func codePoint(s string) string {
	if s == "lephb" { // nft's name
		return "1"
	}
	if v, err := plan.ParseDSCP(s); err == nil {
		return strconv.Itoa(int(v))
	}
	return number(s)
}

// number converts a number to decimal; other words stay as they are.
func number(s string) string {
	if v, err := strconv.ParseUint(s, 0, 64); err == nil && (len(s) == 1 || s[0] != '0' || strings.HasPrefix(s, "0x")) {
		return strconv.FormatUint(v, 10)
	}
	if s == "seen-reply" { // a bit of ct status
		return "2"
	}
	return s
}

// value reads a value or an anonymous set, which is sorted; a set of one
// element is that element.
func (c *canon) value(form func(string) string) {
	if c.peek(0) == "==" {
		c.take(1)
	}
	if c.peek(0) == "!=" {
		c.say(c.take(1)...)
	}
	if c.peek(0) != "{" {
		if len(c.in) > 0 {
			c.say(form(c.take(1)[0]))
		}
		return
	}
	c.take(1)
	var all []string
	for len(c.in) > 0 {
		w := c.take(1)[0]
		if w == "}" {
			break
		}
		if w != "," {
			all = append(all, form(w))
		}
	}
	slices.Sort(all)
	if all = slices.Compact(all); len(all) == 1 {
		c.say(all[0])
		return
	}
	c.say("{ " + strings.Join(all, ", ") + " }")
}

// flags reads TCP flags under a mask: "& (fin | syn) == ack", or "ack / fin,syn".
func (c *canon) flags() {
	bits := map[string]uint64{"fin": classify.FIN, "syn": classify.SYN, "rst": classify.RST, "psh": classify.PSH, "ack": classify.ACK, "urg": classify.URG, "ecn": 64, "cwr": 128}
	c.take(2)
	c.protocol = "tcp"
	list := func() (sum uint64) {
		for len(c.in) > 0 {
			w := c.peek(0)
			n, err := strconv.ParseUint(w, 0, 8)
			if v, ok := bits[w]; ok {
				sum |= v
			} else if err == nil {
				sum |= n
			} else if !slices.Contains([]string{"|", ",", "(", ")"}, w) {
				break
			}
			c.take(1)
		}
		return sum
	}
	op := ""
	if w := c.peek(0); w == "==" || w == "!=" {
		op = c.take(1)[0]
	}
	value, mask := list(), uint64(0xff)
	switch c.peek(0) {
	case "/":
		c.take(1)
		mask = list()
	case "&", "and":
		c.take(1)
		mask = list()
		if w := c.peek(0); w == "==" || w == "!=" {
			op = c.take(1)[0]
		}
		value = list()
	}
	if op == "==" {
		op = ""
	}
	c.say(fmt.Sprintf("tcp flags & %d %s%d", mask, op, value))
}

// mark reads a comparison of the connection's mark: "& MASK == VALUE", or as
// nft lists a mask of leading bits: "VALUE/LENGTH".
func (c *canon) mark() {
	c.take(2)
	mask, op := uint64(0xffffffff), ""
	if w := c.peek(0); w == "&" || w == "and" {
		c.take(1)
		mask = parse(c.take(1))
	}
	if w := c.peek(0); w == "==" || w == "!=" {
		op = strings.TrimPrefix(c.take(1)[0], "==")
	}
	value, length, prefix := strings.Cut(c.peek(0), "/")
	if c.take(1); prefix {
		n, _ := strconv.Atoi(length)
		mask = 0xffffffff &^ (1<<(32-min(max(n, 0), 32)) - 1)
	}
	c.say(fmt.Sprintf("ct mark & %d %s%s", mask, op, number(value)))
}

// setMark reads an assignment to the connection's mark: "& AND
//
// OR". Bits that OR sets may be in AND or not.
func (c *canon) setMark() {
	c.take(5)
	and, or := uint64(0xffffffff), uint64(0)
	for {
		switch c.peek(0) {
		case "&", "and":
			c.take(1)
			and &= parse(c.take(1))
			continue
		case "|", "or":
			c.take(1)
			or |= parse(c.take(1))
			continue
		}
		break
	}
	c.say(fmt.Sprintf("ct mark set & %d | %d", and&^or, or))
}

// payload reads a comparison of bits of the transport header. Masked bits are
// listed as a whole word with a mask or, since nft 1.1.3, as those bits alone:
// "@th,32,32 & 0x0000f800 != 0" is "@th,48,5 != 0".
func (c *canon) payload() {
	word := c.take(1)[0]
	var from, length int
	if n, err := fmt.Sscanf(word, "@th,%d,%d", &from, &length); n != 2 || err != nil || length < 1 || length > 64 {
		c.say(word)
		return
	}
	mask, op := ^uint64(0)>>(64-length), "=="
	if w := c.peek(0); w == "&" || w == "and" {
		c.take(1)
		mask = parse(c.take(1))
	}
	if slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, c.peek(0)) {
		op = c.take(1)[0]
	}
	value := c.peek(0)
	low, high := bits.TrailingZeros64(mask), bits.Len64(mask)
	if v, err := strconv.ParseUint(value, 0, 64); err == nil {
		if mask != 0 && high <= length && mask>>low == ^uint64(0)>>(64-(high-low)) && v>>low<<low == v {
			from, length, mask, v = from+length-high, high-low, mask>>low, v>>low
		}
		value = strconv.FormatUint(v, 10)
	}
	c.take(1)
	c.say(fmt.Sprintf("@th,%d,%d & %d %s %s", from, length, mask, op, value))
}

// parse reads a number that is a single word; 0 if there is none.
func parse(w []string) uint64 {
	if len(w) == 0 {
		return 0
	}
	v, _ := strconv.ParseUint(w[0], 0, 64)
	return v
}

// rate reads "limit rate over 25 kbytes/second burst 12 kbytes": in bytes. The
// default burst is five packets.
func (c *canon) rate() {
	for c.peek(0) == "limit" || c.peek(0) == "rate" || c.peek(0) == "over" {
		c.say(c.take(1)...)
	}
	amount := func(n string) (uint64, string) {
		v := parse([]string{n})
		unit, _, _ := strings.Cut(c.peek(0), "/")
		by, ok := map[string]uint64{"bytes": 1, "kbytes": 1 << 10, "mbytes": 1 << 20, "gbytes": 1 << 30, "packets": 1}[unit]
		if !ok {
			return v, ""
		}
		per := strings.TrimPrefix(c.take(1)[0], unit)
		if unit != "packets" {
			per += " bytes"
		}
		return v * by, per
	}
	n, per, packets := strings.Cut(c.peek(0), "/")
	c.take(1)
	if packets {
		c.say(n + "/" + per)
	} else {
		v, per := amount(n)
		c.say(fmt.Sprintf("%d%s", v, per))
	}
	if c.peek(0) != "burst" {
		if packets {
			c.say("burst 5")
		}
		return
	}
	c.take(1)
	v, of := amount(strings.Join(c.take(1), ""))
	c.say(fmt.Sprintf("burst %d%s", v, of))
}

// priority reads a chain's priority: a number, or a name with an offset.
func (c *canon) priority() {
	c.take(1)
	at := 0
	sign := 1
	for len(c.in) > 0 && c.peek(0) != ";" {
		w := c.take(1)[0]
		named, ok := map[string]int{"raw": -300, "mangle": -150, "dstnat": -100, "filter": 0, "security": 50, "srcnat": 100}[w]
		n, err := strconv.Atoi(w)
		switch {
		case ok:
			at += named
		case w == "-":
			sign = -1
		case w == "+":
			sign = 1
		case err == nil:
			at += sign * n
		}
	}
	c.say("priority", strconv.Itoa(at))
}
