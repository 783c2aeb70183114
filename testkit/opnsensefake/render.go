package opnsensefake

import (
	"fmt"
	"slices"
	"strings"
)

// Files returns the files that a reload writes from the templates, by path. An
// empty value in config.xml counts as missing.
func (o *Router) Files() map[string]string {
	c := &o.config
	rules, _ := c.ipfw()
	return map[string]string{
		"/usr/local/etc/dnctl.conf":            c.dnctlConf(),
		"/usr/local/etc/ipfw.rules":            rules,
		"/usr/local/etc/ipfw_rule_tables.conf": c.tables(),
		"/etc/rc.conf.d/dnctl": "dummynet_enable=\"YES\"\ndnctl_enable=\"" + yes(c.shapes()) + "\"\ndnctl_rules=\"/usr/local/etc/dnctl.conf\"\n" +
			"dnctl_setup=\"/usr/local/opnsense/scripts/shaper/setup.sh\"\ndnctl_skip=\"YES\"\n",
		"/etc/rc.conf.d/ipfw": "firewall_enable=\"" + yes(c.sorts()) + "\"\nfirewall_script=\"/usr/local/etc/rc.ipfw\"\nipfw_skip=\"YES\"\n",
	}
}

func yes(is bool) string {
	if is {
		return "YES"
	}
	return "NO"
}

// shapes reports whether any pipe is enabled.
func (c *config) shapes() bool {
	return slices.ContainsFunc(c.of("pipe"), func(x *item) bool { return x.fields["enabled"] == "1" })
}

// sorts reports whether any rule is enabled.
func (c *config) sorts() bool {
	return slices.ContainsFunc(c.of("rule"), func(x *item) bool { return x.fields["enabled"] == "1" })
}

// byUUID returns the item of any kind with this uuid, the last one in
// config.xml if there are several.
func (c *config) byUUID(uuid string) *item {
	var found *item
	for _, kind := range kinds() {
		for _, x := range c.of(kind) {
			if x.uuid == uuid {
				found = x
			}
		}
	}
	return found
}

// setIf returns " word value", or "" if the value is empty.
func setIf(word, value, after string) string {
	if value == "" {
		return ""
	}
	return " " + word + " " + value + after
}

func masked(f map[string]string) string {
	switch f["mask"] {
	case "src-ip", "dst-ip":
		return " mask " + f["mask"] + " /32 "
	case "src-ip6", "dst-ip6":
		return " mask " + f["mask"] + " /128 "
	}
	return ""
}

// codel returns the options of CoDel.
func codel(f map[string]string) string {
	s := setIf("target", f["codel_target"], " ") + setIf("interval", f["codel_interval"], " ")
	if f["codel_ecn_enable"] == "1" {
		return s + " ecn "
	}
	return s + " noecn "
}

func bar(title string) string {
	line := "#" + strings.Repeat("=", 86) + "\n"
	return line + "# " + title + "\n" + line
}

// dnctlConf returns the file for dnctl(8). It includes disabled pipes and
// queues.
func (c *config) dnctlConf() string {
	var b strings.Builder
	b.WriteString(bar("define dummynet pipes"))
	for _, x := range c.of("pipe") {
		b.WriteString(pipeLine(x.fields))
	}
	b.WriteString("\n" + bar("define dummynet queues"))
	for _, x := range c.of("queue") {
		if pipe := c.byUUID(x.fields["pipe"]); pipe != nil && pipe.kind == "pipe" {
			b.WriteString(queueLine(x.fields, pipe.fields["number"]))
		}
	}
	return b.String()
}

func pipeLine(f map[string]string) string {
	scheduler := f["scheduler"]
	if scheduler == "" {
		scheduler = "wf2q+"
	}
	s := "pipe " + f["number"] + " config bw " + f["bandwidth"] + f["bandwidthMetric"] + "/s" + setIf("queue", f["queue"], "") + setIf("buckets", f["buckets"], "") +
		masked(f) + setIf("delay", f["delay"], " ") + " type  " + scheduler + " "
	fair, codels := f["scheduler"] == "fq_codel", f["codel_enable"] == "1"
	if codels && !fair {
		s += " codel "
	}
	switch {
	case codels || fair:
		s += codel(f) + " "
		if fair {
			s += " " + setIf("quantum", f["fqcodel_quantum"], " ") + " " + setIf("limit", f["fqcodel_limit"], " ") + " " + setIf("flows", f["fqcodel_flows"], " ")
		}
	case f["pie_enable"] == "1" && f["scheduler"] != "fq_pie":
		s += " pie "
	}
	return s + "\n"
}

func queueLine(f map[string]string, pipe string) string {
	s := "queue " + f["number"] + " config pipe " + pipe + setIf("buckets", f["buckets"], "") + masked(f) + " weight " + f["weight"]
	switch {
	case f["codel_enable"] == "1":
		s += " codel " + codel(f)
	case f["pie_enable"] == "1":
		s += " pie\n"
	}
	return s + "\n"
}

// A shaped is one rule of ipfw that sends packets to a pipe or queue.
type shaped struct {
	number       int
	action       string // pipe or queue
	target, uuid string
}

// sorted returns the rules in the order of their numbers.
func (c *config) sorted() []*item {
	rules := c.of("rule")
	slices.SortStableFunc(rules, func(a, b *item) int {
		x, _ := numeric(a.fields["sequence"])
		y, _ := numeric(b.fields["sequence"])
		return x.compare(y)
	})
	return rules
}

// ipfw returns the file for ipfw(8), and those of its rules that shape.
func (c *config) ipfw() (text string, out []shaped) {
	var b strings.Builder
	b.WriteString("\n" + bar("flush ruleset") + "flush\n\n" + bar("general purpose rules 1...1000") +
		"add 100 allow pfsync from any to any\nadd 110 allow carp from any to any\n" +
		"# layer 2: pass ARP\nadd 120 pass layer2 mac-type arp,rarp\n# OPNsense requires for WPA\nadd 130 pass layer2 mac-type 0x888e,0x88c7\n" +
		"# PPP Over Ethernet Session Stage/Discovery Stage\nadd 140 pass layer2 mac-type 0x8863,0x8864\n" +
		"# layer 2: block anything else non-IP(v4/v6)\nadd 150 deny layer2 not mac-type ip,ipv6\n\n" +
		"# allow traffic send from localhost\nadd 200 skipto 60000 ipv6 from ::1 to any\nadd 201 skipto 60000 ipv4 from 127.0.0.0/8 to any\n" +
		"add 202 skipto 60000 ipv6 from any to ::1\nadd 203 skipto 60000 ipv4 from any to 127.0.0.0/8\n\n\n" +
		bar("30000 .... 49999 reserved for captive portal accounting rules") + "\n" +
		bar("traffic shaping section, authorized traffic") + "add 60000 return via any\n\n")
	for i, x := range c.sorted() {
		target := c.byUUID(x.fields["target"])
		if target == nil || target.kind == "rule" || x.fields["enabled"] != "1" || target.fields["enabled"] != "1" {
			continue
		}
		if target.kind == "queue" {
			if pipe := c.byUUID(target.fields["pipe"]); pipe == nil || pipe.fields["enabled"] != "1" {
				continue
			}
		}
		for _, line := range c.ruleLines(x, target) {
			n := 60001 + i
			fmt.Fprintf(&b, "add %d %s %s %s\n", n, target.kind, target.fields["number"], line)
			out = append(out, shaped{n, target.kind, target.fields["number"], x.uuid})
		}
	}
	b.WriteString("\n# pass authorized\nadd 65533 pass ip from any to any\n\n# block all unmatched\nadd 65534 deny all from any to any\n")
	return b.String(), out
}

// device returns an interface's device, or the name if it has none.
func (c *config) device(name string) string {
	for _, i := range c.interfaces {
		if i.Name == name {
			return i.Device
		}
	}
	return name
}

// address returns one end of a rule. A list of addresses is a table of its own.
func (x *item) address(name string) string {
	s := ""
	if x.fields[name+"_not"] == "1" {
		s = "not "
	}
	if v := x.fields[name]; strings.Contains(v, ",") {
		return s + "table(__rule__" + x.uuid + "__" + name + ")"
	}
	return s + x.fields[name]
}

// ruleLines returns a rule without number and action: one line, or one per
// direction if the rule names two interfaces.
func (c *config) ruleLines(x, target *item) (out []string) {
	f := x.fields
	parts := append(strings.Split(f["proto"], "_"), "", "")
	ack := ""
	if parts[1] == "ack" {
		ack = parts[2] + " tcpflags ack "
	}
	s := parts[0] + " from " + x.address("source") + " to " + x.address("destination") + " src-port  " + f["src_port"] + " dst-port " + f["dst_port"] + " "
	also := setIf("iplen", f["iplen"], "")
	if also != "" {
		also = " iplen 1-" + f["iplen"]
	}
	also += setIf("dscp", f["dscp"], "")
	comment := func(where string) string {
		text := []rune(x.uuid + " " + where + ": " + target.fields["description"])
		return " // " + string(text[:min(len(text), 78)])
	}
	first, second := f["interface"], f["interface2"]
	if second == "" {
		return []string{s + f["direction"] + " " + ack + " " + also + " via " + c.device(first) + comment(first)}
	}
	if ack != "" {
		ack = " " + ack
	}
	if f["direction"] != "out" {
		out = append(out, s+"recv "+c.device(first)+" "+ack+also+"    xmit "+c.device(second)+comment(first+" -> "+second))
	}
	if f["direction"] != "in" {
		out = append(out, s+"xmit "+c.device(first)+" "+ack+also+"    recv "+c.device(second)+comment(second+" -> "+first))
	}
	return out
}

// tables returns the file of the tables for lists of addresses.
func (c *config) tables() string {
	var b strings.Builder
	for i, x := range c.sorted() {
		for _, name := range []string{"source", "destination"} {
			if v := x.fields[name]; strings.Contains(v, ",") {
				fmt.Fprintf(&b, "[rule_%d_%s]\ntable_name=__rule__%s__%s\ntable_content=%s\n", i+1, name, x.uuid, name, v)
			}
		}
	}
	return b.String()
}
