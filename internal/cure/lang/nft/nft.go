// Package nft renders the rules of a plan that name traffic as one nftables table, and
// reads back what nft(8) lists. It is pure; package platform/linux runs the commands.
// No other table is touched.
//
// Where a BPF program judges how flows behave, the table tells it what the rules name, by
// the priority of what leaves. Elsewhere the priority is the class, of what leaves the WAN and
// of what leaves for the LAN. If an ifb is shaped, packets reach it before netfilter, so the
// table sets four bits of the connection's mark, and tc's ctinfo action copies them to the
// connection's next packets.
package nft

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/unit"
)

// Names and marks that identify our tables: each WAN's is named by plan.OwnName.
const (
	Family   = "inet"
	Earlier  = "unbloat" // the table that earlier versions had for all WANs
	planMark = "plan_"   // an empty chain carries the hash of what was rendered

	flowTable = "short" // of connections that take the short way
)

// A Table is our table of a WAN as text for `nft -f`: rendered (wanted) or listed
// (actual). Without text there is none.
type Table struct {
	WAN  string `json:"wan,omitempty"`
	Text string `json:"text,omitempty"`
	// Listed is the wanted table as the router's own nft(8) lists it, if that
	// form is not known here; else "". Tried says that this was determined.
	Listed string `json:"listed,omitempty"`
	Tried  bool   `json:"tried,omitempty"`
}

// Name returns the table's name; of none the one that it would have.
func (t Table) Name() string {
	if words := strings.Fields(t.Text); len(words) > 2 {
		return words[2]
	}
	return plan.OwnName(t.WAN)
}

// IsOurs reports whether a table of our family has a name of ours.
func IsOurs(name string) bool { return name == Earlier || strings.HasPrefix(name, plan.OwnName("")) }

// Load returns the input for `nft -f -` that replaces now, which may have another name, by t in
// one transaction.
func (t Table) Load(now Table) string {
	drops := ""
	for _, name := range slices.Compact([]string{cmp.Or(now, t).Name(), t.Name()}) {
		drops += fmt.Sprintf("table %s %s\ndelete table %s %s\n", Family, name, Family, name)
	}
	return drops + t.Text
}

// Digest returns a one-line summary of the table with a hash, for people; equal
// tables have equal digests. It is "" for none.
func (t Table) Digest() string {
	if t.Text == "" {
		return ""
	}
	if t.Listed != "" {
		t.Text = t.Listed
	}
	parts, rules, h := t.contents(canonical), 0, fnv.New32a()
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		if strings.HasPrefix(name, "chain ") {
			rules += len(ruleLines(parts[name]))
		}
		fmt.Fprintf(h, "%s %q\n", name, parts[name])
	}
	return fmt.Sprintf("table %s %s of plan %s: %d chains, sets and limits, %d rules (%08x)", Family, t.Name(), t.plan(), len(parts), rules, h.Sum32())
}

// Of reports whether the table classifies traffic of this WAN.
func (t Table) Of(wan string) bool {
	return strings.Contains(t.Text, "ifname "+strconv.Quote(wan)+" ")
}

// Differences lists where the listed table differs from the wanted one, for
// people: chains with different rules or order, sets and limits that are not as
// written. Nil means equal. Elements of sets are not compared.
func Differences(listed, wanted Table) []string {
	if listed.Text == wanted.Text {
		return nil
	}
	where := "table " + Family + " " + listed.Name()
	switch {
	case wanted.Text == "":
		return []string{where + " is there and should not be"}
	case listed.Text == "":
		return []string{"table " + Family + " " + wanted.Name() + " is missing"}
	case listed.Name() != wanted.Name() || listed.plan() != wanted.plan():
		return []string{where + " is of another plan"}
	}
	out := differences(listed, wanted, canonical)
	if len(out) > 0 && wanted.Listed != "" { // both listed by the same nft: compare the text
		return differences(listed, Table{Text: wanted.Listed}, asItIs)
	}
	return out
}

// asItIs keeps a line unchanged: one nft(8) lists equal rules equally.
func asItIs(line string) string { return line }

// differences compares two tables part by part, after form converted each line.
func differences(listed, wanted Table, form func(string) string) []string {
	where := "table " + Family + " " + wanted.Name()
	a, w := listed.contents(form), wanted.contents(form)
	var out []string
	for name, want := range w {
		got, ok := a[name]
		switch {
		case !ok:
			out = append(out, fmt.Sprintf("%s: %s is missing", where, name))
		case slices.Equal(got, want):
		default:
			out = append(out, fmt.Sprintf("%s: %s %s", where, name, unlike(got, want)))
		}
	}
	for name := range a {
		if _, ok := w[name]; !ok {
			out = append(out, fmt.Sprintf("%s: %s is there and should not be", where, name))
		}
	}
	slices.Sort(out)
	return out
}

// ListedAs returns the wanted table with text as its listing by the router's
// nft(8), read after loading it elsewhere. If chains, sets, limits or the
// number of rules in a chain differ, text is not a listing of this table and t
// is returned unchanged.
func (t Table) ListedAs(text string) Table {
	listed := Table{Text: text}
	if listed.plan() != t.plan() {
		return t
	}
	a, w := listed.contents(asItIs), t.contents(asItIs)
	if len(a) != len(w) {
		return t
	}
	for name, want := range w {
		if got, ok := a[name]; !ok || strings.HasPrefix(name, "chain ") && len(got) != len(want) {
			return t
		}
	}
	t.Tried = true
	if len(differences(listed, t, canonical)) > 0 {
		t.Listed = text
	}
	return t
}

// Unsure reports whether only the contents of lines differ and wanted has no
// listing by the router's nft(8) yet: the two may be the same in another form.
func Unsure(listed, wanted Table) bool {
	return !wanted.Tried && wanted.Text != "" && listed.Text != "" && listed.plan() == wanted.plan() && len(Differences(listed, wanted)) > 0
}

// unlike describes the first difference between the lines of a part.
func unlike(got, want []string) string {
	if g, w := ruleLines(got), ruleLines(want); len(g) != len(w) {
		return fmt.Sprintf("has %d rules, not %d", len(g), len(w))
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("has %q in place of %q", got[i], want[i])
		}
	}
	return fmt.Sprintf("has %q, not %q", got, want)
}

// ruleLines returns the lines without the chain's hook.
func ruleLines(lines []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), isHook)
}

// A writer writes a table's text, one rule a line.
type writer struct {
	strings.Builder
}

func (w *writer) line(format string, args ...any) { fmt.Fprintf(w, "\t\t"+format+"\n", args...) }

func (w *writer) open(what, name string) { fmt.Fprintf(w, "\t%s %s {\n", what, name) }

func (w *writer) end() { w.WriteString("\t}\n") }

// chain writes a chain with these rules.
func (w *writer) chain(name string, rules ...string) {
	w.open("chain", name)
	for _, r := range rules {
		w.line("%s", r)
	}
	w.end()
}

// set writes a set of addresses that packets or the resolver fill.
func (w *writer) set(name string, family int, timeout time.Duration, size int) {
	w.open("set", name)
	w.line("type ipv%d_addr", family)
	w.line("size %d", size)
	w.line("flags dynamic,timeout")
	w.line("timeout %s", span(timeout))
	w.line("gc-interval 5s")
	w.end()
}

// shortWay writes a flow table between devices, and the chain that fills it with
// connections of the WAN that are established. The devices are those that are shaped: with a bridge's
// ports or the interface below PPPoE beside them, the kernel would send packets from there,
// past the shaper.
func (w *writer) shortWay(wan string, devices []string) {
	w.open("flowtable", flowTable)
	w.line("hook ingress priority 0;")
	w.line("devices = { %s };", strings.Join(slices.Sorted(slices.Values(devices)), ", "))
	w.end()
	w.chain("short", "type filter hook forward priority 0; policy accept;", fmt.Sprintf("oifname %q meta l4proto { tcp, udp } flow add @%s", wan, flowTable))
}

// IsShortWay reports whether a table is a plan's flow table, and no classes.
func (t Table) IsShortWay() bool { return strings.Contains(t.Text, "flowtable "+flowTable+" {") }

// Render returns the table of a plan; the empty one if it has neither rules for nftables nor
// a flow table, nor limits of machines.
// root is the major of the shaper's root qdisc, as in "b10a:".
func Render(p plan.Plan, root string) Table {
	var body writer
	r := renderer{p: p, root: root, w: &body}
	switch c := p.Classes; {
	case c.ByBPF():
		if len(c.Rules) > 0 {
			r.names()
		}
		r.washed()
		r.sets()
	case c != nil:
		r.rules()
		r.washed()
		r.sets()
	case len(p.FlowTable) > 0:
		body.shortWay(p.WAN, p.FlowTable)
	}
	r.limited()
	if body.Len() == 0 {
		return Table{WAN: p.WAN}
	}
	h := fnv.New64a()
	h.Write([]byte(body.String()))
	var out writer
	fmt.Fprintf(&out, "table %s %s {\n", Family, plan.OwnName(p.WAN))
	out.chain(fmt.Sprintf("%s%016x", planMark, h.Sum64()))
	out.WriteString(body.String())
	out.WriteString("}\n")
	return Table{WAN: p.WAN, Text: out.String()}
}

// Sample returns a table with every construct that any plan uses, to test
// whether a kernel and its nft(8) support them.
func Sample() Table {
	shares := []plan.Share{{Class: plan.Voice, Tin: 8}, {Class: plan.Interactive, Tin: 6}, {Class: plan.Normal, Tin: 5}, {Class: plan.Bulk, Tin: 1}}
	p := plan.Plan{WAN: "wan", Limits: []plan.HardLimit{{Machine: "192.0.2.7", Down: unit.MbitPerSecond}}, Up: &plan.Shaper{AQM: plan.CAKE}, Down: &plan.Shaper{AQM: plan.CAKE, IngressOf: "wan"},
		Classes: &plan.Classes{Up: shares, Down: shares, DSCP: plan.DSCPPreference{TrustHome: true, WashUp: true},
			Rules: []plan.Rule{{Class: plan.Voice, Home: []string{"02:00:00:00:00:01"}, Port: []plan.PortRange{{From: 1, To: 2}}, From: 1}, {Class: plan.Bulk, Domain: []string{"example.org"}}}}}
	return Render(p, "b10a:")
}
