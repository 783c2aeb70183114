package tc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A change is one field whose actual value differs from the wanted one.
type change struct {
	name      string
	is, want  string
	changable bool
}

// compare lists the options in which actual and wanted differ, by their kernel
// values. Options unknown here count only if both sides show them.
func (s schema) compare(actual, wanted Options, inner bool) []change {
	var out []change
	for _, f := range s.fields {
		if f.skip || inner && f.noInner {
			continue
		}
		a, aok := f.value(actual)
		w, wok := f.value(wanted)
		if odd, unread := actual["?"+f.json]; unread {
			if _, both := wanted["?"+f.json]; both {
				continue // below
			}
			a, aok = odd, false
		}
		if aok == wok && a.equal(w) {
			continue
		}
		out = append(out, change{name: f.json, is: a.Kernel, want: w.Kernel, changable: s.change && wok && !f.fixed})
	}
	for _, k := range wanted.names() {
		if a, ok := actual[k]; ok && strings.HasPrefix(k, "?") && !a.equal(wanted[k]) {
			out = append(out, change{name: k, is: a.Kernel, want: wanted[k].Kernel})
		}
	}
	return out
}

// unknownSchema returns a schema for a kind that can't be rebuilt: its options
// are compared as tc(8) printed them.
func unknownSchema(s schema, ok bool) schema {
	if !ok {
		return schema{}
	}
	return s
}

func (q Qdisc) compare(w Qdisc) []change {
	s, ok := qdiscSchema(q.Kind)
	out := unknownSchema(s, ok).compare(q.Options, w.Options, false)
	if (q.Stab == nil) != (w.Stab == nil) {
		return append(out, change{name: "stab", is: shown(q.Stab), want: shown(w.Stab)})
	}
	if q.Stab != nil {
		for _, c := range stabSchema().compare(q.Stab, w.Stab, false) {
			c.changable = false
			out = append(out, c)
		}
	}
	return out
}

func (c Class) compare(w Class) []change {
	s, _ := classSchema(c.Kind)
	return s.compare(c.Options, w.Options, c.Inner || w.Inner)
}

func shown(o Options) string {
	if o == nil {
		return "none"
	}
	return "set"
}

// A patch is the list of commands that change one tree into another in place.
type patch struct {
	commands []Command
	diffs    []string // for people
	rebuild  bool     // an in-place change is not possible
}

func (p *patch) differ(where string, cs []change) (names []string) {
	for _, c := range cs {
		p.diffs = append(p.diffs, fmt.Sprintf("%s has %s %s, not %s", where, c.name, cmp.Or(c.is, "unset"), cmp.Or(c.want, "unset")))
		p.rebuild = p.rebuild || !c.changable
		names = append(names, c.name)
	}
	return names
}

// patchTo compares the part `actual` of dev's tree with the wanted one.
func (actual Tree) patchTo(dev string, wanted Tree) patch {
	var p patch
	for _, w := range wanted.Qdiscs {
		i := slices.IndexFunc(actual.Qdiscs, func(q Qdisc) bool { return q.Handle == w.Handle && q.Parent == w.Parent && q.Kind == w.Kind })
		if i < 0 {
			p.missing(dev, "qdisc", w.Kind, w.Handle)
			continue
		}
		if cs := actual.Qdiscs[i].compare(w); len(cs) > 0 {
			names := p.differ(fmt.Sprintf("%s: qdisc %s %s", dev, w.Kind, w.Handle), cs)
			p.commands = append(p.commands, w.modify(dev, names))
		}
	}
	for _, w := range wanted.Classes {
		i := slices.IndexFunc(actual.Classes, func(c Class) bool { return c.ID == w.ID && c.Parent == w.Parent && c.Kind == w.Kind })
		if i < 0 {
			p.missing(dev, "class", w.Kind, w.ID)
			continue
		}
		if cs := actual.Classes[i].compare(w); len(cs) > 0 {
			names := p.differ(fmt.Sprintf("%s: class %s %s", dev, w.Kind, w.ID), cs)
			p.commands = append(p.commands, w.modify(dev, names))
		}
	}
	p.surplus(dev, actual, wanted)
	if !slices.EqualFunc(actual.Filters, wanted.Filters, Filter.equal) {
		p.rebuild = true
		p.diffs = append(p.diffs, fmt.Sprintf("%s: filters are %s, not %s", dev, describe(actual.Filters), describe(wanted.Filters)))
	}
	return p
}

func (p *patch) missing(dev, what, kind, id string) {
	p.rebuild = true
	p.diffs = append(p.diffs, fmt.Sprintf("%s: %s %s %s is missing", dev, what, kind, id))
}

// surplus records the qdiscs and classes that exist but are not wanted.
func (p *patch) surplus(dev string, actual, wanted Tree) {
	for _, q := range actual.Qdiscs {
		if !slices.ContainsFunc(wanted.Qdiscs, func(w Qdisc) bool { return q.Handle == w.Handle && q.Parent == w.Parent && q.Kind == w.Kind }) {
			p.rebuild = true
			p.diffs = append(p.diffs, fmt.Sprintf("%s: qdisc %s %s is there and should not be", dev, q.Kind, q.Handle))
		}
	}
	for _, c := range actual.Classes {
		if !slices.ContainsFunc(wanted.Classes, func(w Class) bool { return c.ID == w.ID && c.Parent == w.Parent && c.Kind == w.Kind }) {
			p.rebuild = true
			p.diffs = append(p.diffs, fmt.Sprintf("%s: class %s %s is there and should not be", dev, c.Kind, c.ID))
		}
	}
}

func (f Filter) equal(g Filter) bool {
	return f.Kind == g.Kind && f.Parent == g.Parent && f.At == g.At && f.Protocol == g.Protocol && f.Pref == g.Pref &&
		f.Handle == g.Handle && slices.Equal(f.Args, g.Args) && f.Opaque == g.Opaque
}

func describe(fs []Filter) string {
	if len(fs) == 0 {
		return "none"
	}
	var parts []string
	for _, f := range fs {
		parts = append(parts, fmt.Sprintf("[pref %d %s %s]", f.Pref, f.Kind, strings.Join(f.Args, " ")))
	}
	return strings.Join(parts, " ")
}

// Unrebuildable lists the parts of t that cannot be rebuilt from tc(8)'s
// output; nil if everything can.
func (t Tree) Unrebuildable() []string {
	var out []string
	unknown := func(what, id string, o Options) {
		for _, k := range o.names() {
			if name, ok := strings.CutPrefix(k, "?"); ok {
				out = append(out, fmt.Sprintf("%s %s: option %s", what, id, name))
			}
		}
	}
	for _, q := range t.Qdiscs {
		if _, ok := qdiscSchema(q.Kind); !ok {
			out = append(out, fmt.Sprintf("qdisc %s %s: tc(8) doesn't show all that it was made of", q.Kind, q.Handle))
			continue
		}
		unknown("qdisc "+q.Kind, q.Handle, q.Options)
		unknown("size table of", q.Handle, q.Stab)
	}
	for _, c := range t.Classes {
		unknown("class "+c.Kind, c.ID, c.Options)
	}
	for _, f := range t.Filters {
		if f.Opaque != "" {
			out = append(out, fmt.Sprintf("filter %s pref %d of %s: %s", f.Kind, f.Pref, f.Parent, f.Opaque))
		}
	}
	return out
}
