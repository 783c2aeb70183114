package opnsensefake

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A fieldKind is a kind of field, named by its class in the model's XML.
type fieldKind int

const (
	integerField fieldKind = iota
	booleanField
	optionField
	interfaceField
	relationField // to pipes; if both is set, to queues too
	networkField
	portField
	originField
	descriptionField
)

// An option is one choice of an optionField.
type option struct{ value, says string }

// A field is one of the model's (TrafficShaper.xml, version 1.0.3).
type field struct {
	name     string
	kind     fieldKind
	required bool
	value    string // the default
	min, max int64  // of an integerField; max 0: none
	says     string // the message about a wrong value; "": the kind's own
	options  []option
	blank    string // the label of no option
	multiple bool   // options joined by commas
	both     bool
}

func options(pairs ...string) (out []option) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, option{pairs[i], pairs[i+1]})
	}
	return out
}

// plain returns options whose labels are their values.
func plain(names ...string) (out []option) {
	for _, n := range names {
		out = append(out, option{n, n})
	}
	return out
}

func integer(name string, least, most int64, says string) field {
	return field{name: name, kind: integerField, min: least, max: most, says: says}
}

func flag(name, value string) field {
	return field{name: name, kind: booleanField, required: true, value: value}
}

func mask() field {
	return field{name: "mask", kind: optionField, required: true, value: "none",
		options: options("none", "(none)", "src-ip", "source", "dst-ip", "destination", "src-ip6", "source (ip6)", "dst-ip6", "destination (ip6)")}
}

func origin() field {
	return field{name: "origin", kind: originField, says: "Origin should be regular text of max 30 characters."}
}

func must(f field) field { f.required = true; return f }

func buckets() field {
	return integer("buckets", 1, 65535, "Bucket size should be between 1 and 65535.")
}

// model returns the fields of a kind of item, in order.
func model(kind string) []field {
	switch kind {
	case "pipe":
		return []field{
			must(integer("number", 1, 65535, "Pipe number must be between 1 and 65535.")),
			flag("enabled", "1"),
			must(integer("bandwidth", 1, 0, "Bandwidth out of range.")),
			{name: "bandwidthMetric", kind: optionField, required: true, value: "Kbit", says: "Bandwidth metric should be either bit/s, kbit/s, Mbit/s or Gbit/s.",
				options: options("bit", "bit/s", "Kbit", "kbit/s", "Mbit", "Mbit/s", "Gbit", "Gbit/s")},
			integer("queue", 2, 100, "Queue size should be between 2 and 100."),
			mask(), buckets(),
			{name: "scheduler", kind: optionField, blank: "Weighted Fair Queueing",
				options: options("fifo", "FIFO", "rr", "Deficit Round Robin", "qfq", "QFQ", "fq_codel", "FlowQueue-CoDel", "fq_pie", "FlowQueue-PIE")},
			flag("codel_enable", "0"), integer("codel_target", 1, 10000, ""), integer("codel_interval", 1, 10000, ""), flag("codel_ecn_enable", "0"), flag("pie_enable", "0"),
			integer("fqcodel_quantum", 1, 65535, ""), integer("fqcodel_limit", 1, 65535, ""), integer("fqcodel_flows", 1, 65535, ""),
			origin(),
			integer("delay", 1, 3000, "Please choose a value between 1 and 3000."),
			{name: "description", kind: descriptionField, required: true},
		}
	case "queue":
		weight := must(integer("weight", 1, 100, "Weight must be between 1 and 100."))
		weight.value = "100"
		return []field{
			must(integer("number", 1, 65535, "Queue number must be between 1 and 65535.")),
			flag("enabled", "1"),
			{name: "pipe", kind: relationField, required: true, says: "Related pipe not found."},
			weight, mask(), buckets(),
			flag("codel_enable", "0"), integer("codel_target", 1, 10000, ""), integer("codel_interval", 1, 10000, ""), flag("codel_ecn_enable", "0"), flag("pie_enable", "0"),
			{name: "description", kind: descriptionField, required: true},
			origin(),
		}
	case "rule":
		sequence := must(integer("sequence", 1, 1000000, "Provide a valid sequence for sorting."))
		sequence.value = "1"
		return []field{
			flag("enabled", "1"), sequence,
			{name: "interface", kind: interfaceField, required: true, value: "wan"},
			{name: "interface2", kind: interfaceField},
			{name: "proto", kind: optionField, required: true, value: "ip", options: slices.Concat(plain("ip", "ip4", "ip6", "udp", "tcp"),
				options("tcp_ack", "tcp (ACK packets only)", "tcp_ack_not", "tcp (non-ACK packets)"), plain("icmp", "ipv6-icmp", "igmp", "esp", "ah", "gre"))},
			integer("iplen", 2, 65535, "The absolute limitation for packet size is 64K (65535 bytes)."),
			{name: "source", kind: networkField, required: true, value: "any"}, flag("source_not", "0"),
			{name: "src_port", kind: portField, required: true, value: "any"},
			{name: "destination", kind: networkField, required: true, value: "any"}, flag("destination_not", "0"),
			{name: "dst_port", kind: portField, required: true, value: "any"},
			{name: "dscp", kind: optionField, multiple: true, options: options("be", "Best Effort", "ef", "Expedited Forwarding",
				"af11", "AF11", "af12", "AF12", "af13", "AF13", "af21", "AF21", "af22", "AF22", "af23", "AF23",
				"af31", "AF31", "af32", "AF32", "af33", "AF33", "af41", "AF41", "af42", "AF42", "af43", "AF43",
				"cs1", "CS1", "cs2", "CS2", "cs3", "CS3", "cs4", "CS4", "cs5", "CS5", "cs6", "CS6", "cs7", "CS7")},
			{name: "direction", kind: optionField, blank: "Both", options: options("in", "In", "out", "Out")},
			{name: "target", kind: relationField, both: true, required: true, says: "Related pipe or queue not found."},
			{name: "description", kind: descriptionField}, origin(),
		}
	}
	panic("there is no item called " + kind) // kinds are constants of ours
}

// kinds are the kinds of items, in the order of the model.
func kinds() []string { return []string{"pipe", "queue", "rule"} }

// An item is one pipe, queue or rule.
type item struct {
	kind, uuid string
	fields     map[string]string
}

// newItem returns an item with the default values.
func newItem(kind, uuid string) *item {
	x := &item{kind, uuid, map[string]string{}}
	for _, f := range model(kind) {
		x.fields[f.name] = f.value
	}
	return x
}

// A config is the shaper's part of config.xml, with the interfaces.
type config struct {
	items      []*item // those of one kind are in order
	interfaces []Interface
}

func (c *config) clone() *config {
	out := &config{interfaces: c.interfaces}
	for _, x := range c.items {
		out.items = append(out.items, &item{x.kind, x.uuid, maps.Clone(x.fields)})
	}
	return out
}

func (c *config) of(kind string) (out []*item) {
	for _, x := range c.items {
		if x.kind == kind {
			out = append(out, x)
		}
	}
	return out
}

func (c *config) find(kind, uuid string) *item {
	for _, x := range c.items {
		if x.kind == kind && x.uuid == uuid {
			return x
		}
	}
	return nil
}

// equal reports whether the same items have the same contents in the same order.
func (c *config) equal(o *config) bool {
	return slices.EqualFunc(c.items, o.items, func(a, b *item) bool {
		return a.kind == b.kind && a.uuid == b.uuid && maps.Equal(a.fields, b.fields)
	})
}

// An arrayError is the error of a list where one value is expected.
type arrayError struct{ name string }

func (e *arrayError) Error() string {
	return "Invalid input type for " + e.name + ": expected a single value"
}

// assign sets the fields that were sent, and ignores unknown ones.
func (x *item) assign(sent any) error {
	given, ok := sent.(object)
	if !ok {
		return nil
	}
	for _, f := range model(x.kind) {
		v, ok := given.get(f.name)
		if !ok || v == nil {
			continue
		}
		switch v.(type) {
		case object, list:
			return &arrayError{f.name}
		}
		x.fields[f.name] = f.normal(text(v))
	}
	return nil
}

// normal returns a value as the field stores it.
func (f field) normal(v string) string {
	switch f.kind {
	case networkField:
		return strings.Trim(lower(v), trimmed)
	case portField:
		if t := strings.Trim(lower(v), trimmed); serviceOption(t) {
			return t
		}
	}
	return v
}

// messages are the error messages of the fields. Those of one field are in the
// order of its validators.
type messages struct {
	fields []string
	of     map[string][]string
}

func (m *messages) add(name string, says ...string) {
	if len(says) == 0 {
		return
	}
	if m.of == nil {
		m.of = map[string][]string{}
	}
	if _, ok := m.of[name]; !ok {
		m.fields = append(m.fields, name)
	}
	m.of[name] = append(m.of[name], says...)
}

// answer returns the messages as the controller does: a single one as text,
// several as a list without duplicates.
func (m *messages) answer(kind string) object {
	out := object{}
	for _, name := range m.fields {
		says := m.of[name]
		var v any = says[0]
		if len(says) > 1 {
			l := list{}
			for _, s := range says {
				if !slices.Contains(l, any(s)) {
					l = append(l, s)
				}
			}
			v = l
		}
		out = append(out, pair{kind + "." + name, v})
	}
	return out
}

// validate runs every validator of an item's fields.
func (c *config) validate(x *item) messages {
	var m messages
	both := !isEmpty(x.fields["codel_enable"]) && !isEmpty(x.fields["pie_enable"])
	const exclusive = "CoDel and PIE can not be combined."
	for _, f := range model(x.kind) {
		v := x.fields[f.name]
		if both && (f.name == "codel_enable" || f.name == "pie_enable") {
			// Both fields have this constraint, but it is reported for the
			// first one.
			m.add("codel_enable", exclusive)
		}
		if f.required && v == "" {
			m.add(f.name, "A value is required.")
		}
		if v != "" {
			m.add(f.name, c.refusals(f, v)...)
		}
	}
	if x.kind == "pipe" {
		of := x.fields["bandwidthMetric"]
		n, most := toInt(x.fields["bandwidth"]), 4294967295.0
		switch of {
		case "Kbit":
			most /= 1e3
		case "Mbit":
			most /= 1e6
		case "Gbit":
			most /= 1e9
		}
		if float64(n) > most {
			says := fmt.Sprintf("%d %s/s exceeds the maximum bandwidth of %d %s/s.", n, of, int64(most), of)
			m.add("bandwidth", says)
			m.add("bandwidthMetric", says)
		}
	}
	return m
}

// refusals returns the messages about a value that is not empty.
func (c *config) refusals(f field, v string) (out []string) {
	switch f.kind {
	case integerField:
		says := f.says
		if says == "" {
			says = "Invalid integer value."
		}
		n, ok := numeric(v)
		if !ok || n.compare(number{whole: true, n: f.min}) < 0 || f.max != 0 && n.compare(number{whole: true, n: f.max}) > 0 ||
			f.max == 0 && !n.whole && n.f > 9223372036854775807 {
			out = append(out, says)
		}
		if _, ok := filterInt(v); !ok {
			out = append(out, says)
		}
	case booleanField:
		if !matches(`^[01]$`, v) {
			out = append(out, "Value should be a boolean (0,1).")
		}
	case originField:
		if !matches(`^([a-z,A-Z,1-9]){0,30}$`, v) {
			out = append(out, f.says)
		}
	case descriptionField:
		switch {
		case strings.ContainsAny(v, "\n\r"):
			out = append(out, "Text may not contain newlines.")
		case strings.ContainsAny(v, "\x00\v\f"):
			out = append(out, "Text may not contain special control characters.")
		}
		if body := strings.TrimSuffix(v, "\n"); body == "" || len(body) > 255 || strings.Contains(body, "\n") {
			out = append(out, "Description should be a string between 1 and 255 characters.")
		}
	case networkField:
		if v != "any" && slices.ContainsFunc(strings.Split(v, ","), func(s string) bool { return !network(s) }) {
			out = append(out, "Please specify a valid network segment or IP address.")
		}
	case portField:
		if !port(v) {
			out = append(out, portSays())
		}
	case optionField, interfaceField, relationField:
		known := c.optionsOf(f)
		has := func(v string) bool {
			return slices.ContainsFunc(known, func(o option) bool { return o.value == v })
		}
		if !f.multiple {
			if !has(v) {
				out = append(out, notInList(f, ""))
			}
			break
		}
		for _, v := range strings.Split(v, ",") {
			if !has(v) {
				out = append(out, notInList(f, v))
			}
		}
	}
	return out
}

func notInList(f field, v string) string {
	if f.says != "" {
		return f.says
	}
	return "Option [" + v + "] not in list."
}

// matches is preg_match() on a whole value. A newline at the end is allowed if
// PHP compares the value as the same number without it.
func matches(pattern, v string) bool {
	m := regexp.MustCompile(pattern).FindString(strings.TrimSuffix(v, "\n"))
	found := regexp.MustCompile(pattern).MatchString(strings.TrimSuffix(v, "\n"))
	return found && loose(m, v) == 0
}

// network is NetworkField's check of a single address or network.
func network(s string) bool {
	if addr, bits, is := strings.Cut(s, "/"); is {
		if bits == "" || strings.Trim(bits, "0123456789") != "" {
			return false
		}
		most := "32"
		if strings.Contains(addr, ":") {
			most = "128"
		}
		if loose(bits, most) > 0 {
			return false
		}
		s = addr
	}
	return filterIP(s)
}

// services are the names that PortField knows, in its order. Its list of
// options is 'any' + services with PHP's + on lists, which keeps 'any' in the
// place of the first name.
func services() []string {
	return strings.Fields("afs3-fileserver aol auth avt-profile-1 cvsup domain domain-s ftp hbci http https igmpv3lite imap imaps ipsec-msft ipsec-nat-t isakmp " +
		"l2f ldap ldaps microsoft-ds ms-streaming ms-wbt-server msnp nat-stun-port netbios-dgm netbios-ns netbios-ssn nntp ntp openvpn pop3 pop3s pptp radius " +
		"radius-acct rfb sip sip-tls smtp snmp snmptrap ssh submission submissions telnet teredo tftp urd wins")
}

func serviceOption(s string) bool { return s == "any" || slices.Contains(services()[1:], s) }

func portSays() string {
	return "Please specify a valid port number (1-65535). A service name is also possible (" + strings.Join(services(), ", ") + ")."
}

// port is PortField's check: a service, a port, or a range.
func port(s string) bool {
	if serviceOption(s) {
		return true
	}
	if n, err := strconv.Atoi(s); err == nil && n >= 1 && n <= 65535 && strconv.Itoa(n) == s {
		return true
	}
	from, to, is := strings.Cut(s, "-")
	if !is || strings.ContainsAny(s, ",") || strings.Contains(to, "-") || from != strings.Trim(from, trimmed) || to != strings.Trim(to, trimmed) {
		return false
	}
	a, okA := filterInt(from)
	b, okB := filterInt(to)
	return okA && okB && a >= 1 && b <= 65535 && a < b
}

// optionsOf returns the choices of a field, sorted as they are shown.
func (c *config) optionsOf(f field) (out []option) {
	switch f.kind {
	case interfaceField:
		for _, i := range c.interfaces {
			out = append(out, option{i.Name, i.Description})
		}
	case relationField:
		for _, x := range c.of("pipe") {
			out = append(out, option{x.uuid, x.fields["description"]})
		}
		if f.both {
			for _, x := range c.of("queue") {
				at := slices.IndexFunc(out, func(o option) bool { return o.value == x.uuid })
				if at >= 0 { // a pipe has the same uuid: its entry is overwritten
					out[at].says = x.fields["description"]
					continue
				}
				out = append(out, option{x.uuid, x.fields["description"]})
			}
		}
	default:
		return f.options
	}
	slices.SortStableFunc(out, func(a, b option) int { return natural(a.says, b.says) })
	return out
}
