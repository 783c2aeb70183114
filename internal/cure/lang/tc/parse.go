package tc

import (
	"bytes"
	"fmt"
	"slices"
	"sort"
	"strings"
)

// ParseQdiscs reads `tc -j -d qdisc show dev X`. The kernel's default qdiscs
// (handle 0:) are left out.
func ParseQdiscs(b []byte) ([]Qdisc, error) {
	list, err := decodeList(b)
	if err != nil {
		return nil, err
	}
	var out []Qdisc
	for _, o := range list {
		q := Qdisc{Kind: o.text("kind"), Handle: o.text("handle"), Parent: o.text("parent")}
		if q.Kind == "" || q.Handle == "" {
			return nil, fmt.Errorf("read qdiscs: an entry without kind or handle")
		}
		if q.Handle == autoHandle {
			continue
		}
		if o.text("root") == "true" {
			q.Parent = rootAt
		}
		if q.Kind == "ingress" || q.Kind == "clsact" {
			q.Parent = ingressAt
		}
		if q.Parent == "" {
			return nil, fmt.Errorf("read qdisc %s %s: it has no parent", q.Kind, q.Handle)
		}
		s, _ := qdiscSchema(q.Kind)
		q.Options = s.parse(o.child("options"))
		if st := o.child("stab"); st != nil {
			q.Stab = stabSchema().parse(st)
		}
		for _, k := range []string{"ingress_block", "egress_block"} {
			if v := o.text(k); v != "" {
				q.Options = q.Options.with("?"+k, v)
			}
		}
		if slices.ContainsFunc(out, func(x Qdisc) bool { return x.Handle == q.Handle || x.Parent == q.Parent }) {
			return nil, fmt.Errorf("read qdisc %s %s: its handle or its place is listed twice", q.Kind, q.Handle)
		}
		out = append(out, q)
	}
	return out, nil
}

// ParseClasses reads `tc -d class show dev X`: JSON where iproute2 supports it
// for the kind, else text (6.1 prints text even with -j). Classes that the
// qdisc itself creates are left out.
func ParseClasses(b []byte) ([]Class, error) {
	b = bytes.TrimSpace(b)
	var list []object
	if len(b) > 0 && b[0] == '[' {
		var err error
		if list, err = decodeList(b); err != nil {
			return nil, err
		}
	} else {
		list = classesFromText(string(b))
	}
	var out []Class
	for _, o := range list {
		c := Class{Kind: o.text("class"), ID: o.text("handle"), Parent: o.text("parent")}
		s, ok := classSchema(c.Kind)
		if !ok || strings.HasSuffix(c.ID, ":") { // hfsc shows its root as class 1:
			continue
		}
		major, _, ok := strings.Cut(c.ID, ":")
		if !ok {
			return nil, fmt.Errorf("read class %s %q: not a class id", c.Kind, c.ID)
		}
		if c.Parent == "" || o.text("root") != "" {
			c.Parent = major + ":"
		}
		c.Options = s.parse(o.without("class", "handle", "parent", "root", "leaf"))
		if slices.ContainsFunc(out, func(x Class) bool { return x.ID == c.ID }) {
			return nil, fmt.Errorf("read class %s %s: it is listed twice", c.Kind, c.ID)
		}
		out = append(out, c)
	}
	return markInner(out), nil
}

// markInner marks classes that have children and drops the options that the
// kernel hides for them.
func markInner(cs []Class) []Class {
	for i := range cs {
		cs[i].Inner = slices.ContainsFunc(cs, func(c Class) bool { return c.Parent == cs[i].ID })
		if !cs[i].Inner {
			continue
		}
		s, _ := classSchema(cs[i].Kind)
		for _, f := range s.fields {
			if f.noInner {
				delete(cs[i].Options, f.json)
			}
		}
	}
	return cs
}

// classesFromText turns lines such as "class htb 1:10 parent 1:1 leaf 110: prio 0
// … rate 9Mbit …" into objects; other lines (statistics) are skipped.
func classesFromText(s string) []object {
	var out []object
	for line := range strings.Lines(s) {
		w := strings.Fields(line)
		if len(w) < 3 || w[0] != "class" {
			continue
		}
		o := object{{"class", w[1]}, {"handle", w[2]}}
		out = append(out, append(o, pairs(w[3:])...))
	}
	return out
}

// pairs reads words as name and value; `root` stands alone, and hfsc's curves
// take the six words "m1 RATE d TIME m2 RATE".
func pairs(w []string) object {
	var o object
	for i := 0; i < len(w); i++ {
		switch {
		case w[i] == "root":
			o = append(o, member{"root", "true"})
		case i+6 < len(w) && w[i+1] == "m1" && w[i+3] == "d" && w[i+5] == "m2":
			o = append(o, member{w[i], strings.Join(w[i+1:i+7], " ")})
			i += 6
		case i+1 < len(w):
			o = append(o, member{w[i], w[i+1]})
			i++
		default:
			o = append(o, member{w[i], "true"})
		}
	}
	return o
}

// parse turns the members of o into canonical options. Members without a field, and
// values that are none of their field, are kept under "?name", which marks the object
// as not rebuildable.
func (s schema) parse(o object) Options {
	var out Options
	for _, m := range o.spelledOut(pairs) {
		f, ok := s.field(m.key)
		if ok && f.skip {
			continue
		}
		text := flat(m.value)
		if !ok {
			out = out.with("?"+m.key, text)
			continue
		}
		v, ok := f.canonical(text)
		if !ok {
			out = out.with("?"+f.json, text)
			continue
		}
		if f.deflt != v || v == "" {
			out = out.with(f.json, v)
		}
	}
	return out
}

func (s schema) field(json string) (field, bool) {
	if json == "mpu_rate" { // an HTB class in JSON
		json = "mpu"
	}
	i := slices.IndexFunc(s.fields, func(f field) bool { return f.json == json })
	if i < 0 {
		return field{}, false
	}
	return s.fields[i], true
}

// with returns o with one more option. It allocates the map if o is nil.
func (o Options) with(name, is string) Options {
	if o == nil {
		o = Options{}
	}
	o[name] = Value{Kernel: is}
	return o
}

// names returns the options' names, sorted.
func (o Options) names() []string {
	out := make([]string, 0, len(o))
	for k := range o {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}

func (o object) without(keys ...string) object {
	var out object
	for _, m := range o {
		if !slices.Contains(keys, m.key) {
			out = append(out, m)
		}
	}
	return out
}

// flat formats a decoded value as one line, with spaces between list and object
// elements.
func flat(v any) string {
	switch t := v.(type) {
	case string:
		return t
	case []any:
		parts := make([]string, len(t))
		for i, x := range t {
			parts[i] = flat(x)
		}
		return strings.Join(parts, " ")
	case object:
		parts := make([]string, len(t))
		for i, m := range t {
			parts[i] = strings.TrimPrefix(m.key, textKey) + " " + flat(m.value)
		}
		return strings.Join(parts, " ")
	}
	return ""
}
