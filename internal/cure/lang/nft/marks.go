package nft

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"unbloat/internal/cure/classify"
)

const (
	ours = uint32(classify.MarkBits)
	all  = ^uint32(0)
)

// Foreign returns the rules of other programs that write, copy or compare the bits of marks
// in which unbloat keeps its classes, each once, as a person finds them again. A VPN or a
// second line often copies the mark of a connection to its packets and routes by it. With a
// bit more in that mark the packets go another way, or are dropped.
//
// ruleset is what `nft list ruleset` prints, tables what iptables-save(8) prints, by the program
// that makes such rules (iptables, ip6tables), and policies what a command such as `ip rule`
// prints, by that command.
func Foreign(ruleset string, tables, policies map[string]string) []string {
	var out []string
	add := func(rules []string) {
		for _, r := range rules {
			if !slices.Contains(out, r) {
				out = append(out, r)
			}
		}
	}
	// Tables of nftables that iptables manages are read as iptables prints them.
	add(ofNftables(ruleset, func(family, name string) bool {
		tool := map[string]string{"ip": "iptables", "ip6": "ip6tables"}[family]
		return family == Family && IsOurs(name) || slices.Contains(strings.Split(tables[tool], "\n"), "*"+name)
	}))
	for _, tool := range slices.Sorted(maps.Keys(tables)) {
		add(ofIptables(tool, tables[tool]))
	}
	for _, command := range slices.Sorted(maps.Keys(policies)) {
		add(ofPolicies(command, policies[command]))
	}
	return out
}

// ofNftables reads what nft(8) lists, without the tables to be passed over.
func ofNftables(text string, pass func(family, name string) bool) []string {
	var out []string
	table, passed, chain, depth := "", false, false, 0
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		words := wordsOf(line)
		switch first := append(words, "", "", ""); {
		case depth == 0 && first[0] == "table":
			table, passed = first[1]+" "+first[2], pass(first[1], first[2])
		case depth == 1:
			chain = first[0] == "chain"
		case depth > 1 && chain && !passed && nftTouches(words):
			out = append(out, fmt.Sprintf("table %s: %s", table, line))
		}
		for _, w := range words {
			depth += map[string]int{"{": 1, "}": -1}[w]
		}
	}
	return out
}

// wordsOf splits a line of nft(8) without its texts in quotes and its comment.
func wordsOf(line string) []string {
	var plain strings.Builder
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 0 {
			plain.WriteString(part + " _ ")
		}
	}
	code, _, _ := strings.Cut(plain.String(), "#")
	return strings.Fields(strings.NewReplacer("{", " { ", "}", " } ", "(", " ( ", ")", " ) ", ",", " ").Replace(code))
}

// nftTouches reports whether a rule writes, copies or compares our bits.
func nftTouches(words []string) bool {
	x := &expression{words: words}
	for x.at < len(words) {
		if x.word(0) == "fib" { // a look into the routes, whose own rules are read elsewhere
			for x.at += 2; x.word(0) == "."; {
				x.at += 2
			}
		}
		of := x.mark()
		switch {
		case of == "":
			x.at++
			continue
		case x.word(0) != "set":
			x.at -= len(strings.Fields(of))
			if x.value(true).ct&ours != 0 {
				return true
			}
			continue
		}
		x.at++
		v := x.value(false)
		if of == "ct mark" && v.own&ours != ours || v.ct&ours != 0 && of != "ct mark" {
			return true
		}
	}
	return false
}

// A value is what an expression of marks may be, bit by bit.
type value struct {
	own uint32 // just the connection's own bits
	ct  uint32 // that depend on a mark which is looked at
	may uint32 // that may be set otherwise
}

// An expression reads the words of a rule.
type expression struct {
	words []string
	at    int
}

func (x *expression) word(n int) string {
	if x.at+n < len(x.words) {
		return x.words[x.at+n]
	}
	return ""
}

// mark reads the name of a mark: "ct mark", "meta mark", or "mark", which older versions of
// nft(8) write for a packet's; "" if there is none.
func (x *expression) mark() string {
	before := ""
	if x.at > 0 {
		before = x.words[x.at-1]
	}
	name := ""
	switch a, b := x.word(0), x.word(1); {
	case (a == "ct" || a == "meta") && b == "mark":
		name = a + " mark"
	case a == "mark" && !slices.Contains([]string{"socket", "jump", "goto"}, before):
		name = a
	}
	x.at += len(strings.Fields(name))
	return name
}

// value reads an expression. looks says that a packet's mark is looked at, not only made
// anew.
func (x *expression) value(looks bool) value {
	v := x.operation(looks, 0)
	if w := x.word(0); w == "map" || w == "vmap" {
		x.at++
		return value{ct: v.ct, may: all}
	}
	return v
}

// operation reads what binds as strongly as level or stronger: or, xor, and.
func (x *expression) operation(looks bool, level int) value {
	names := [...][]string{{"|", "or"}, {"^", "xor"}, {"&", "and"}}
	if level == len(names) {
		return x.term(looks)
	}
	v := x.operation(looks, level+1)
	for slices.Contains(names[level], x.word(0)) {
		x.at++
		number, err := strconv.ParseUint(x.word(0), 0, 32)
		w := x.operation(looks, level+1)
		switch mask := uint32(number); {
		case level < 2:
			v = value{own: v.own&^w.may&^w.ct | w.own&^v.may&^v.ct, ct: v.ct | w.ct, may: v.may | w.may}
		case err == nil:
			v = value{own: v.own & mask, ct: v.ct & mask, may: v.may & mask}
		default:
			v = value{ct: v.ct | w.ct, may: all}
		}
	}
	return v
}

func (x *expression) term(looks bool) (v value) {
	n, err := strconv.ParseUint(x.word(0), 0, 32)
	switch of := x.mark(); {
	case of == "ct mark":
		v = value{own: all, ct: all}
	case of != "" && looks:
		v = value{ct: all, may: all}
	case of != "":
		v = value{may: all}
	case err == nil:
		x.at++
		v = value{may: uint32(n)}
	case x.word(0) == "(":
		x.at++
		v = x.value(looks)
		x.at++
	default:
		x.at++
		v = value{may: all}
	}
	if w := x.word(0); w == "<<" || w == ">>" {
		x.at += 2
		if v.ct != 0 {
			v.ct = all
		}
		v = value{ct: v.ct, may: all}
	}
	return v
}

// ofIptables reads what iptables-save(8) prints of the rules of a tool.
func ofIptables(tool, text string) []string {
	var out []string
	table := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, is := strings.CutPrefix(line, "*"); is {
			table = " -t " + name
		}
		if strings.HasPrefix(line, "-A ") && iptablesTouches(strings.Fields(line)) {
			out = append(out, tool+table+" "+line)
		}
	}
	return out
}

// iptablesTouches reports whether a rule writes, copies or compares our bits.
func iptablesTouches(words []string) bool {
	option := func(from int, names ...string) string {
		for i := from; i+1 < len(words); i++ {
			if slices.Contains(names, words[i]) {
				return words[i+1]
			}
		}
		return ""
	}
	for i := 1; i < len(words); i++ {
		touched := uint32(0)
		switch words[i-1] + " " + words[i] {
		case "-m mark", "-m connmark":
			_, touched = valueAndMask(option(i, "--mark"))
		case "-j CONNMARK":
			rest := words[i:]
			_, from := valueAndMask("/" + option(i, "--nfmask", "--mask"))
			_, to := valueAndMask("/" + option(i, "--ctmask", "--mask"))
			switch {
			case slices.Contains(rest, "--left-shift-mark") || slices.Contains(rest, "--right-shift-mark"):
				touched = all
			case slices.Contains(rest, "--restore-mark"):
				touched = to
			case slices.Contains(rest, "--save-mark"):
				touched = from | to
			default:
				v, mask := valueAndMask(option(i, "--set-xmark", "--set-mark"))
				touched = v | mask
			}
		}
		if touched&ours != 0 {
			return true
		}
	}
	return false
}

// valueAndMask reads a mark such as 0x1/0xff. Without a mask it is about all bits, and so is what
// can't be read.
func valueAndMask(text string) (v, mask uint32) {
	a, b, _ := strings.Cut(text, "/")
	n, _ := strconv.ParseUint(a, 0, 32)
	m, err := strconv.ParseUint(b, 0, 32)
	if err != nil {
		return uint32(n), all
	}
	return uint32(n), uint32(m)
}

// ofPolicies reads what `ip rule` prints.
func ofPolicies(command, text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if i := slices.Index(words, "fwmark"); i >= 0 && i+1 < len(words) {
			if _, mask := valueAndMask(words[i+1]); mask&ours != 0 {
				out = append(out, command+": "+strings.Join(words[1:], " "))
			}
		}
	}
	return out
}
