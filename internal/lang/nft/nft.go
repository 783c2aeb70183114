// Package nft renders the classes of a plan as one nftables table of our own,
// and reads back what nft(8) lists of it. It is pure; package host/linux runs
// the commands. No other table is touched.
//
// The table gives every packet that leaves by the WAN the priority by which the
// shaper's qdisc chooses its tin or class, and does the same for what arrives:
// shaped on the LAN's side by the same priority; on an ifb, which packets reach
// before netfilter sees them, by four bits of the connection's mark that tc's
// ctinfo action hands to the next packet of it.
package nft

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	"unbloat/internal/classify"
	"unbloat/internal/plan"
)

// Names and marks that say "this is ours".
const (
	Family   = "inet"
	TableIs  = "unbloat"
	planMark = "plan_" // an empty chain carries the hash of what was rendered
)

// The bits of a connection's mark that hold the tin of what arrives.
const (
	MarkMask  = classify.MarkMask
	MarkShift = classify.MarkShift
)

// A Table is our table as text for `nft -f`. A rendered one is what is wanted,
// a listed one what is there. The empty Table is none.
type Table struct {
	Text string `json:"text,omitempty"`
	// Listed is how the router's own nft(8) lists a wanted table, where that is in a
	// form which is not known here; else "". Tried says that it was asked.
	Listed string `json:"listed,omitempty"`
	Tried  bool   `json:"tried,omitempty"`
}

// Load returns what `nft -f -` takes, in one transaction, to make t the table
// in place of whatever is there under its name.
func (t Table) Load() string {
	drop := fmt.Sprintf("table %s %s\ndelete table %s %s\n", Family, TableIs, Family, TableIs)
	return drop + t.Text
}

// Digest says in a line what there is of the table, equal for equal ones; ""
// for none.
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
	return fmt.Sprintf("table %s %s of plan %s: %d chains, sets and limits, %d rules (%08x)", Family, TableIs, t.plan(), len(parts), rules, h.Sum32())
}

// Of reports whether the table divides the traffic of one of these devices; one
// that hooks on another's is another WAN's.
func (t Table) Of(devices ...string) bool {
	for _, d := range devices {
		if strings.Contains(t.Text, "ifname "+strconv.Quote(d)+" ") {
			return true
		}
	}
	return false
}

// Differences says in words where the listed table is not the wanted one: each
// chain whose rules are not the same in the same order, each set and limit that is not as
// it was written. Nil means that they are equal. What sets hold is no part of it.
func Differences(listed, wanted Table) []string {
	if listed.Text == wanted.Text {
		return nil
	}
	where := "table " + Family + " " + TableIs
	switch {
	case wanted.Text == "":
		return []string{where + " is there and should not be"}
	case listed.Text == "":
		return []string{where + " is missing"}
	case listed.plan() != wanted.plan():
		return []string{where + " is of another plan"}
	}
	out := differences(listed, wanted, canonical)
	if len(out) > 0 && wanted.Listed != "" { // both by the same nft, so to the letter
		return differences(listed, Table{Text: wanted.Listed}, asItIs)
	}
	return out
}

// asItIs is the form of what one nft(8) lists twice.
func asItIs(line string) string { return line }

// differences compares two tables part by part, their lines in a form.
func differences(listed, wanted Table, form func(string) string) []string {
	where := "table " + Family + " " + TableIs
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

// ListedAs returns a wanted table with how the router's nft(8) lists it, read after it
// was loaded somewhere else. What has not the same chains, sets and limits, or another
// number of rules in a chain, is no listing of it, and changes nothing.
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

// Unsure reports whether listed differs from wanted in its contents alone, and how the
// router's nft(8) would list what is wanted is not known: it may be the same in another form.
func Unsure(listed, wanted Table) bool {
	return !wanted.Tried && wanted.Text != "" && listed.Text != "" && listed.plan() == wanted.plan() && len(Differences(listed, wanted)) > 0
}

// unlike says where the lines of a part are not those that are wanted.
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

// ruleLines leaves out the line that says where a chain hooks on.
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

// set writes a set that packets fill.
func (w *writer) set(s *classify.Set) {
	w.open("set", s.Name)
	w.line("type %s", kind(s))
	w.line("size %d", s.Size)
	w.line("flags dynamic,timeout")
	w.line("timeout %s", span(s.Timeout))
	w.line("gc-interval %s", span(s.GC))
	w.end()
}

// limit writes a limit that several rules share; it matches what is above it.
func (w *writer) limit(l *classify.Limit) {
	w.open("limit", l.Name)
	w.line("rate %s", rate(l.Rate))
	w.end()
}

// Render returns the table of a plan; the empty one if it has no classes.
// root is the major of the shaper's root qdisc, as in "b10a:".
func Render(p plan.Plan, root string) Table {
	if p.Classes == nil {
		return Table{}
	}
	r := renderer{p: p, root: root}
	var body writer
	r.w = &body
	t := classify.Build(p.Policy())
	r.chains(t)
	r.hook()
	for _, s := range t.Sets {
		body.set(s)
	}
	h := fnv.New64a()
	h.Write([]byte(body.String()))
	var out writer
	fmt.Fprintf(&out, "table %s %s {\n", Family, TableIs)
	out.chain(fmt.Sprintf("%s%016x", planMark, h.Sum64()))
	out.WriteString(body.String())
	out.WriteString("}\n")
	return Table{Text: out.String()}
}

// Sample returns a table that has everything in it that any plan's has, to try
// whether a kernel and its nft(8) can hold it.
func Sample() string {
	shares := []plan.Share{{Class: plan.Voice, Tin: 8}, {Class: plan.Interactive, Tin: 6}, {Class: plan.Normal, Tin: 5}, {Class: plan.Bulk, Tin: 1}}
	p := plan.Plan{WAN: "wan", Up: &plan.Shaper{AQM: plan.CAKE}, Down: &plan.Shaper{AQM: plan.CAKE, IngressOf: "wan"},
		Classes: &plan.Classes{Up: shares, Down: shares, Behaviour: plan.Behaviour{CalmPackets: 1, CalmRate: 8000, CalmOfHost: 8000, CalmOfUp: 8000, SmallPacket: 64,
			FirstBytes: 1, FirstUp: 1, HeavyBytes: 2, LongBytes: 3, HeavyOfHost: 1, Peers: 1, Names: 1, Acks: 1, Flows: 16}}}
	return Render(p, "b10a:").Text
}
