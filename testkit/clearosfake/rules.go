package clearosfake

import (
	"strconv"
	"strings"
)

// A rule is one entry of QOS_PRIOMARK4 or 6, or of their custom lists.
type rule struct {
	fields []string
	custom bool
}

// field returns a field, counted from 1, and whether the rule has it.
func (r rule) field(n int) (string, bool) {
	if n > len(r.fields) {
		return "", false
	}
	return r.fields[n-1], true
}

// rules returns those of the family, the custom ones last.
func (e *engine) rules() (out []rule) {
	n := strings.TrimPrefix(e.family, "ipv")
	for _, entry := range entries(e.set["QOS_PRIOMARK"+n]) {
		out = append(out, rule{fields: strings.Split(entry, "|")})
	}
	for line := range strings.SplitSeq(packed(e.set["QOS_PRIOMARK"+n+"_CUSTOM"]), "\n") {
		if line != "" {
			out = append(out, rule{fields: strings.Split(line, "|"), custom: true})
		}
	}
	return out
}

// packed removes extra blanks and line ends from a list of custom rules.
func packed(s string) string {
	for _, x := range []struct{ old, new string }{{"  ", " "}, {"\t", ""}, {"\n\n", "\n"}, {"\n ", "\n"}} {
		for strings.Contains(s, x.old) {
			s = strings.ReplaceAll(s, x.old, x.new)
		}
	}
	return strings.TrimSuffix(strings.TrimPrefix(s, " "), " ")
}

// is reports whether a field is the number, as Lua reads it.
func (e *engine) is(field string, n int) bool {
	field = strings.TrimSpace(field)
	if strings.HasPrefix(strings.ToLower(field), "0x") || strings.HasPrefix(strings.ToLower(strings.TrimLeft(field, "+-")), "inf") {
		e.refuse("the number %q", field)
	}
	v, err := strconv.ParseFloat(field, 64)
	return err == nil && v == float64(n)
}

// mark writes the rules that mark one direction of an interface. The marks are
// always those of the first interface's classes.
func (e *engine) mark(direction int, dev, chain string, rules []rule) bool {
	for _, r := range rules {
		on, _ := r.field(3)
		where, _ := r.field(2)
		way, _ := r.field(4)
		if !e.is(on, 1) || where != dev && where != "*" || !e.is(way, direction) {
			continue
		}
		prio, _ := r.field(5)
		if r.custom {
			words, has := r.field(6)
			if !has {
				return e.fail(329, "attempt to concatenate field 'param' (a nil value)")
			}
			e.execute("iptables -t mangle -A %s %s -j MARK --set-mark 1%s", chain, words, prio)
			continue
		}
		words, ok := e.match(r)
		if !ok {
			return false
		}
		e.execute("iptables -t mangle -A %s%s-j MARK --set-mark 1%s", chain, words, prio)
	}
	return true
}

// match writes a rule's match.
func (e *engine) match(r rule) (string, bool) {
	several := func(ports string) bool { return strings.ContainsAny(ports, ":,") }
	sport, has := r.field(8)
	if !has {
		return "", e.fail(275, "bad argument #1 to 'find' (string expected, got nil)")
	}
	dport, has := r.field(10)
	if !has {
		return "", e.fail(280, "bad argument #1 to 'find' (string expected, got nil)")
	}
	proto, _ := r.field(6)
	saddr, _ := r.field(7)
	daddr, _ := r.field(9)
	words := " "
	if not, is := strings.CutPrefix(proto, "!"); is {
		words += "! -p " + not + " "
	} else if proto != "-" {
		words += "-p " + proto + " "
	}
	if several(sport) || several(dport) {
		words += "-m multiport "
	}
	for _, x := range []struct {
		option, value string
		port          bool
	}{{"-s", saddr, false}, {"--sport", sport, true}, {"-d", daddr, false}, {"--dport", dport, true}} {
		if x.value == "-" {
			continue
		}
		if x.port && several(x.value) {
			x.option += "s"
		}
		words += x.option + " " + x.value + " "
	}
	return words, true
}
