package tc

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// value returns option f of o, or the kernel's default; ok is false if there is
// neither.
func (f field) value(o Options) (v Value, ok bool) {
	if v, ok = o[f.json]; ok {
		return v, true
	}
	return Value{Kernel: f.deflt}, f.deflt != ""
}

// create renders all options of o for a new qdisc or class, defaults included:
// the kernel's defaults differ from those that tc(8) does not print.
func (s schema) create(o Options) []string {
	return s.args(o, func(f field) bool {
		_, set := o[f.json]
		return set || !f.quiet
	})
}

// modify renders the options of o for a change in place. differing names those
// that must change; options that can't be changed are left out.
func (s schema) modify(o Options, differing []string) []string {
	return s.args(o, func(f field) bool {
		return !f.fixed && (!f.quiet || slices.Contains(differing, f.json))
	})
}

func (s schema) args(o Options, include func(field) bool) []string {
	raw := o["raw"].Kernel == "1" // CAKE: raw resets overhead and atm
	var out []string
	for _, f := range s.fields {
		v, ok := f.value(o)
		if f.skip || !ok || !include(f) || raw && (f.json == "overhead" || f.json == "atm") {
			continue
		}
		out = append(out, f.args(v, o)...)
	}
	return out
}

// attach returns the place of a qdisc: "root", or "parent 1:10".
func (q Qdisc) attach() []string {
	if q.Parent == rootAt {
		return []string{"root"}
	}
	return []string{"parent", q.Parent}
}

// create renders the command that adds q to dev.
func (q Qdisc) create(dev string) Command {
	if q.Parent == ingressAt {
		if q.Kind == "clsact" {
			return Command{"tc", "qdisc", "add", "dev", dev, "clsact"}
		}
		return Command{"tc", "qdisc", "add", "dev", dev, "handle", "ffff:", "ingress"}
	}
	c := append(Command{"tc", "qdisc", "add", "dev", dev}, q.attach()...)
	c = append(c, "handle", q.Handle)
	if q.Stab != nil {
		c = append(append(c, "stab"), stabSchema().create(q.Stab)...)
	}
	s, _ := qdiscSchema(q.Kind)
	return append(append(c, q.Kind), s.create(q.Options)...)
}

// modify renders the command that changes q in place.
func (q Qdisc) modify(dev string, differing []string) Command {
	s, _ := qdiscSchema(q.Kind)
	c := append(Command{"tc", "qdisc", "change", "dev", dev}, q.attach()...)
	c = append(c, "handle", q.Handle, q.Kind)
	return append(c, s.modify(q.Options, differing)...)
}

func (c Class) command(dev, verb string, args []string) Command {
	return append(Command{"tc", "class", verb, "dev", dev, "parent", c.Parent, "classid", c.ID, c.Kind}, args...)
}

// create renders the command that adds c to dev.
func (c Class) create(dev string) Command {
	s, _ := classSchema(c.Kind)
	return c.command(dev, "add", s.create(c.Options))
}

// modify renders the command that changes c in place.
func (c Class) modify(dev string, differing []string) Command {
	s, _ := classSchema(c.Kind)
	return c.command(dev, "change", s.modify(c.Options, differing))
}

// attachProgram renders the command by which unbloat itself attaches a BPF program, or tc(8)
// loads it from its object's file: it finds the tables of the object's others by their names.
func (f Filter) attachProgram(dev string) Command {
	parent := f.Parent
	if parent == ingressAt {
		parent = "ffff:"
	}
	if f.OfFile() {
		key, what := path.Base(path.Dir(f.Pinned)), path.Base(f.Pinned)
		c := Command{"env", "TC_BPF_MNT=" + path.Join(Pins, key), "tc", "filter", "add", "dev", dev, "parent", parent, "protocol", f.Protocol, "pref", strconv.Itoa(f.Pref),
			"handle", f.Handle, "bpf", "object-file", ObjectOf(key), "section", "tc/" + what}
		if slices.Contains(f.Args, directAction) {
			c = append(c, directAction)
		}
		return c
	}
	c := Command{Self, "classifier", "attach", dev, parent, strconv.Itoa(f.Pref), f.Pinned}
	if slices.Contains(f.Args, directAction) {
		c = append(c, directAction)
	}
	return c
}

// create renders the command that adds f to dev.
func (f Filter) create(dev string) Command {
	if f.Kind == "bpf" {
		return f.attachProgram(dev)
	}
	c := Command{"tc", "filter", "add", "dev", dev}
	switch {
	case f.At != "":
		c = append(c, "parent", f.At)
	case f.Parent == ingressAt || f.Parent == egressAt:
		c = append(c, f.Parent)
	default:
		c = append(c, "parent", f.Parent)
	}
	c = append(c, "protocol", f.Protocol, "pref", strconv.Itoa(f.Pref))
	if f.Kind == "fw" && f.Handle != "" {
		c = append(c, "handle", f.Handle)
	}
	return append(append(c, f.Kind), f.Args...)
}

// build renders the commands that create t on a dev that has only the kernel's
// default qdisc: parents before children, filters last.
func (t Tree) build(dev string) []Command {
	var out []Command
	made := map[string]bool{rootAt: true, ingressAt: true}
	qdiscs, classes := slices.Clone(t.Qdiscs), slices.Clone(t.Classes)
	explicit := func(id string) bool {
		return slices.ContainsFunc(t.Classes, func(c Class) bool { return c.ID == id })
	}
	ready := func(parent string) bool {
		major, _, _ := strings.Cut(parent, ":")
		return made[parent] || made[major+":"] && !explicit(parent) // prio creates its bands itself
	}
	for progress := true; progress; {
		progress = false
		qdiscs = slices.DeleteFunc(qdiscs, func(q Qdisc) bool {
			if !ready(q.Parent) {
				return false
			}
			out, made[q.Handle], progress = append(out, q.create(dev)), true, true
			return true
		})
		classes = slices.DeleteFunc(classes, func(c Class) bool {
			if !ready(c.Parent) {
				return false
			}
			out, made[c.ID], progress = append(out, c.create(dev)), true, true
			return true
		})
	}
	for _, f := range t.Filters {
		out = append(out, f.create(dev))
	}
	return out
}

// Build renders the commands that create t on a dev that has only the kernel's
// default qdisc.
func (t Tree) Build(dev string) []Command {
	root, ingress := t.Split()
	return append(root.build(dev), ingress.build(dev)...)
}
