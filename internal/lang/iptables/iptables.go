// Package iptables renders the classes of a plan as rules of iptables(8) 1.4.21
// for the table mangle, for kernels without nftables, and reads back what
// `iptables -t mangle -S` lists. It is pure.
//
// The rules look at packets of IPv4 in POSTROUTING, where the home's addresses are
// still those of its machines, and give each its HTB class by the target CLASSIFY.
// What they remember is in bits of the connection's mark (CONNMARK), in meters
// (hashlimit) and in lists of addresses (recent): see classify.Policy's Hashed.
package iptables

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"unbloat/internal/classify"
	"unbloat/internal/lang/nft"
	"unbloat/internal/plan"
)

// Table is the table of iptables that the rules are in.
const Table = "mangle"

// Prefix begins the names of our chains, meters and lists; markPrefix that of the
// empty chain that carries the hash of what was rendered.
const (
	Prefix     = "ub_"
	markPrefix = Prefix + "plan_"
)

// A Set is the chains and rules of a plan, in the order in which they are made. The
// zero one means none.
type Set struct {
	Chains []string
	Rules  []string // as in "-A ub_up_class -p tcp -g ub_up_tcp"
}

// Policy returns the rules and limits of a plan for a target like this.
func Policy(p plan.Plan) classify.Policy {
	policy := p.Policy()
	policy.Hashed, policy.DownByMark = true, false
	policy.Limits.Acks = 0
	return policy
}

// Render returns the rules of a plan; none if its classes do not go by behaviour.
// root is the major of the shapers' root qdiscs, as in "b10a:".
func Render(p plan.Plan, root string) Set {
	if !p.ByBehaviour() {
		return Set{}
	}
	t := classify.Build(Policy(p))
	r := renderer{p: p, root: root}
	var out Set
	for _, c := range t.Chains {
		out.Chains = append(out.Chains, Prefix+c.Name)
		for _, s := range c.Steps {
			for _, words := range r.step(c.Direction, s) {
				out.Rules = append(out.Rules, strings.Join(slices.Concat([]string{"-A", Prefix + c.Name}, words), " "))
			}
		}
	}
	for _, d := range []struct {
		way    plan.Direction
		s      *plan.Shaper
		shares []plan.Share
	}{{plan.DirectionUp, p.Up, p.Classes.Up}, {plan.DirectionDown, p.Down, p.Classes.Down}} {
		if d.s != nil && d.shares != nil {
			out.Rules = append(out.Rules, fmt.Sprintf("-A POSTROUTING -o %s -j %s%s_class", d.s.Device, Prefix, d.way))
		}
	}
	h := fnv.New64a()
	h.Write([]byte(strings.Join(out.Rules, "\n")))
	out.Chains = append([]string{fmt.Sprintf("%s%016x", markPrefix, h.Sum64())}, out.Chains...)
	return out
}

// Restored writes the set as `iptables-restore --noflush` reads it.
func (s Set) Restored() string {
	var b strings.Builder
	b.WriteString("*" + Table + "\n")
	for _, c := range s.Chains {
		b.WriteString(":" + c + " - [0:0]\n")
	}
	for _, r := range s.Rules {
		b.WriteString(r + "\n")
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

// Digest returns a one-line summary of the set, for people and for comparing: the
// plan's hash, and where each rule leads. It is "" for none. Versions of iptables
// list the same match in different words, so those are not in it.
func (s Set) Digest() string { return digest(s.Chains, s.Rules) }

// Listed returns the same of what `iptables -t mangle -S` lists.
func Listed(text string) string {
	var chains, rules []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		name, isChain := strings.CutPrefix(line, "-N "+Prefix)
		switch {
		case isChain:
			chains = append(chains, Prefix+name)
		case strings.HasPrefix(line, "-A "+Prefix) || strings.Contains(line, " "+Prefix):
			rules = append(rules, line)
		}
	}
	return digest(chains, rules)
}

func digest(chains, rules []string) string {
	if len(chains)+len(rules) == 0 {
		return ""
	}
	hash := "no plan"
	for _, c := range chains {
		if text, is := strings.CutPrefix(c, markPrefix); is {
			hash = "plan " + text
		}
	}
	// The kernel keeps the order of rules within a chain, not that of chains.
	lead := map[string][]string{}
	for _, r := range rules {
		w := strings.Fields(r)
		to := ""
		for i, x := range w {
			if (x == "-j" || x == "-g") && i+1 < len(w) {
				to = x + " " + w[i+1]
			}
			if x == "-o" && i+1 < len(w) {
				to = x + " " + w[i+1] + " " + to
			}
		}
		if len(w) > 1 {
			lead[w[1]] = append(lead[w[1]], to)
		}
	}
	h := fnv.New32a()
	for _, c := range slices.Sorted(slices.Values(append(slices.Clone(chains), "POSTROUTING"))) {
		fmt.Fprintf(h, "%s %q\n", c, lead[c])
	}
	return fmt.Sprintf("the classes of %s by iptables: %d chains, %d rules (%08x)", hash, len(chains), len(rules), h.Sum32())
}

// A renderer writes the rules of one plan.
type renderer struct {
	p    plan.Plan
	root string
}

// step writes a step's rules: one for each of the alternatives of its conditions,
// none if it is for IPv6 alone.
func (r renderer) step(d plan.Direction, s classify.Step) [][]string {
	rules := []rule{{}}
	for _, c := range s.If {
		var next []rule
		for _, x := range rules {
			next = append(next, x.with(d, c)...)
		}
		rules = next
	}
	var out [][]string
	for _, x := range rules {
		for _, e := range s.Do {
			x = r.effect(d, x, e)
		}
		words := x.words()
		switch s.Then {
		case classify.Goto:
			words = append(words, "-g", Prefix+s.To)
		case classify.Jump:
			words = append(words, "-j", Prefix+s.To)
		case classify.Accept, classify.Drop:
			panic("iptables: no rule of these ends a packet's way")
		}
		if (s.Then == classify.Goto || s.Then == classify.Jump) && x.target != nil {
			panic("iptables: a rule has one target")
		}
		out = append(out, words)
	}
	return out
}

// A rule is what one matches, and what it does.
type rule struct {
	protocol string
	match    []string
	target   []string
}

func (x rule) words() []string {
	var out []string
	if x.protocol != "" {
		out = strings.Fields(x.protocol)
	}
	return slices.Concat(out, x.match, x.target)
}

func (x rule) and(words ...string) []rule {
	x.match = slices.Concat(x.match, words)
	return []rule{x}
}

// of is x for packets of a protocol; none if x is for another.
func (x rule) of(protocol string) []rule {
	if x.protocol != "" && x.protocol != "-p "+protocol {
		return nil
	}
	x.protocol = "-p " + protocol
	return []rule{x}
}

// with returns x with one more condition.
func (x rule) with(d plan.Direction, c classify.Cond) []rule {
	switch c := c.(type) {
	case classify.Test:
		return x.test(c)
	case classify.Within:
		return x.within(d, c)
	case classify.Addresses:
		if c.Family != 4 {
			return nil
		}
		option := "-s"
		if c.Far == (d == plan.DirectionUp) {
			option = "-d"
		}
		var out []rule
		for _, n := range c.Names {
			out = append(out, x.and(option, n)...)
		}
		return out
	case classify.Member:
		return x.and("-m", "recent", "--rcheck", "--seconds", strconv.Itoa(int(c.Set.Timeout/time.Second)), "--name", Prefix+c.Set.Name, home(d))
	case classify.Meter:
		var words []string
		for i, rate := range c.Rates {
			words = append(words, meter(d, c.Set, i, rate)...)
		}
		return x.and(words...)
	}
	panic(fmt.Sprintf("iptables: no condition %T", c))
}

// home is the end whose address a list holds.
func home(d plan.Direction) string {
	if d == plan.DirectionUp {
		return "--rsource"
	}
	return "--rdest"
}

// span writes what is from a to b, both included; b < 0: no end.
func span(a, b int64) string {
	if b < 0 {
		return strconv.FormatInt(a, 10) + ":"
	}
	return fmt.Sprintf("%d:%d", a, b)
}

// ends returns the first and last number that pass a test; last < 0: no end.
func ends(t classify.Test) (a, b int64) {
	v := int64(t.Value)
	switch t.Op {
	case classify.Less:
		return 0, v - 1
	case classify.AtMost:
		return 0, v
	case classify.More:
		return v + 1, -1
	case classify.AtLeast:
		return v, -1
	case classify.Between:
		return v, int64(t.To)
	}
	return v, v
}

// longest is the length of the longest IP packet.
const longest = 65535

func (x rule) test(t classify.Test) []rule {
	not := func(words ...string) []string {
		if t.Op == classify.NotEqual {
			return append([]string{"!"}, words...)
		}
		return words
	}
	switch t.Field {
	case classify.Length:
		a, b := ends(t)
		if low := int64(^t.Mask); t.Mask != 0 && t.Op == classify.NotEqual { // all bits of the mask are 0 up to low
			a, b = low+1, longest
		} else if t.Mask != 0 {
			a, b = 0, low
		}
		if b < 0 {
			b = longest
		}
		return x.and("-m", "length", "--length", span(a, b))
	case classify.ProtocolIs:
		return x.of(protocols()[uint8(t.Value)])
	case classify.FamilyIs:
		if t.Value != 4 {
			return nil
		}
		return []rule{x}
	case classify.FlagsOf:
		var out []rule
		for _, y := range x.of("tcp") {
			out = append(out, y.and("-m", "tcp", "--tcp-flags", "FIN,SYN,RST,PSH,ACK,URG", "ACK")...)
		}
		return out
	case classify.CtMark:
		return x.and(append([]string{"-m", "connmark"}, not("--mark", fmt.Sprintf("0x%x/0x%x", t.Value, t.Mask))...)...)
	case classify.CtBytes:
		return x.and("-m", "connbytes", "--connbytes", span(ends(t)), "--connbytes-dir", "both", "--connbytes-mode", "bytes")
	case classify.CtPackets:
		return x.and("-m", "connbytes", "--connbytes", span(ends(t)), "--connbytes-dir", "both", "--connbytes-mode", "packets")
	case classify.CtIsNew:
		return x.and("-m", "conntrack", "--ctstate", "NEW")
	case classify.CtIsAnswered:
		return x.and(append([]string{"-m", "conntrack"}, not("--ctstatus", "SEEN_REPLY")...)...)
	}
	panic(fmt.Sprintf("iptables: no field %d", t.Field))
}

func protocols() map[uint8]string {
	return map[uint8]string{classify.TCP: "tcp", classify.UDP: "udp", classify.ICMP: "icmp", classify.SCTP: "sctp", classify.ESP: "esp", classify.GRE: "gre"}
}

// mostPorts is how many ports the match multiport takes; a range counts twice.
const mostPorts = 15

func (x rule) within(d plan.Direction, w classify.Within) []rule {
	var out []rule
	switch w.Field {
	case classify.ProtocolIs:
		for _, r := range w.Ranges {
			if name := protocols()[uint8(r.From)]; name != "" {
				out = append(out, x.of(name)...)
			}
		}
	case classify.CodePoint:
		if w.Family != 4 {
			return nil
		}
		for _, r := range w.Ranges {
			out = append(out, x.and("-m", "dscp", "--dscp", fmt.Sprintf("0x%02x", r.From))...)
		}
	case classify.HomePortIs, classify.FarPortIs:
		option := "--sports"
		if (w.Field == classify.FarPortIs) == (d == plan.DirectionUp) {
			option = "--dports"
		}
		if w.Protocol != 0 {
			next := x.of(protocols()[w.Protocol])
			if next == nil {
				return nil
			}
			x = next[0]
		}
		var list []string
		n := 0
		flush := func() {
			if list != nil {
				out = append(out, x.and("-m", "multiport", option, strings.Join(list, ","))...)
			}
			list, n = nil, 0
		}
		for _, r := range w.Ranges {
			size := 1
			if r.From != r.To {
				size = 2
			}
			if n+size > mostPorts {
				flush()
			}
			list, n = append(list, strings.Replace(r.String(), "-", ":", 1)), n+size
		}
		flush()
	default:
		panic(fmt.Sprintf("iptables: no values of field %d", w.Field))
	}
	return out
}

// meter writes the i-th meter of a set's keys. The first byte of a name after ours
// tells those of one set apart. A meter is known by its name, also by rules that are
// loaded later, and keeps its rate then.
func meter(d plan.Direction, s *classify.Set, i int, r classify.Rate) []string {
	src := "src"
	if d == plan.DirectionDown {
		src = "dst"
	}
	keys := map[classify.KeyKind]string{
		classify.HomeAddress:        src + "ip",
		classify.HomeAddressAndPort: src + "ip," + src + "port",
		classify.FlowKey:            "srcip,srcport,dstip,dstport",
	}[s.Key]
	name := Prefix + s.Name
	if i > 0 {
		name += "b"
	}
	option, amount := "--hashlimit-upto", ""
	if r.Over {
		option = "--hashlimit-above"
	}
	words := []string{"-m", "hashlimit"}
	switch {
	case r.Bytes:
		amount = strconv.FormatInt(r.N, 10) + "b/s"
		words = append(words, option, amount)
	default:
		per := "/sec"
		if r.Per == time.Minute {
			per = "/min"
		}
		words = append(words, option, strconv.FormatInt(r.N, 10)+per, "--hashlimit-burst", strconv.FormatInt(r.Burst, 10))
	}
	return append(words, "--hashlimit-mode", keys, "--hashlimit-name", name, "--hashlimit-htable-size", strconv.Itoa(buckets),
		"--hashlimit-htable-max", strconv.Itoa(s.Size), "--hashlimit-htable-expire", strconv.FormatInt(s.Timeout.Milliseconds(), 10))
}

// buckets is the size of a meter's hash table.
const buckets = 4096

// effect returns x with what it does.
func (r renderer) effect(d plan.Direction, x rule, e classify.Effect) rule {
	if x.target != nil {
		panic("iptables: a rule has one target")
	}
	switch e := e.(type) {
	case classify.SetMark:
		mask := e.Or
		if e.And != 0 {
			mask |= ^e.And
		}
		x.target = []string{"-j", "CONNMARK", "--set-xmark", fmt.Sprintf("0x%x/0x%x", e.Or, mask)}
	case classify.Remember:
		x.match = append(slices.Clone(x.match), "-m", "recent", "--set", "--name", Prefix+e.Set.Name, home(d))
	case classify.Classify:
		x.target = []string{"-j", "CLASSIFY", "--set-class", fmt.Sprintf("%s%x", r.root, nft.Minor(r.p, e.Direction, plan.Tin(e.Lane.Tin)))}
	default:
		panic(fmt.Sprintf("iptables: no effect %T", e))
	}
	return x
}
