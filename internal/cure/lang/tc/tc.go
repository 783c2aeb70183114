// Package tc models Linux traffic control on a device. It renders commands for
// tc(8), ip(8) and ethtool(8) and parses their output. It is pure; package
// platform/linux runs the commands.
//
// A Tree is one device's qdiscs, classes and filters, made from a plan or
// parsed. Both have the same normal form, the values that the kernel reports,
// so trees are compared by equality, without a tolerance. One table of options
// per kind (schema.go) drives parser, renderer and comparison.
package tc

import "slices"

// Handles and marks that identify unbloat's qdiscs. The kernel stores no
// comment on a qdisc, so an unusual handle marks ours: the root and its leaf
// have these majors. The ingress qdisc is always ffff:, so its redirect has the
// same number as its preference (0xb10a).
const (
	OurRoot    = "b10a:"
	OurLeaf    = "b10b:"
	OurPref    = 0xb10a
	rootClass  = "b10a:1"
	leafClass  = "b10a:10"
	AtIngress  = "ingress" // Filter.Parent of what arrives at a device
	ingressAt  = AtIngress // the Parent of an ingress or clsact qdisc, and of its filters
	egressAt   = "egress"  // the Parent of a clsact egress filter
	rootAt     = "root"
	autoHandle = "0:" // the kernel's own default qdisc
)

// A Value is one option's value in canonical text: rates in bit/s, times in µs
// (or as the field's unit says), sizes in bytes, flags 0 or 1.
type Value struct {
	Kernel    string `json:"is"`            // as the kernel reports it
	AltKernel string `json:"or,omitempty"`  // as another version of tc(8) reports the same argument
	Arg       string `json:"say,omitempty"` // the argument that results in Kernel; "": derived from Kernel
}

// equal reports whether two values are the same kernel value.
func (v Value) equal(w Value) bool {
	return v.Kernel == w.Kernel || v.AltKernel != "" && v.AltKernel == w.Kernel || w.AltKernel != "" && w.AltKernel == v.Kernel
}

// Options are a qdisc's, class's or filter's options by the name that `tc -j`
// gives them. A missing option has the kernel's default. A name that starts
// with "?" is an option that tc prints but is unknown here; it cannot be
// rebuilt.
type Options map[string]Value

// A Qdisc is one queueing discipline. Parent is "root", "ingress" or a class.
type Qdisc struct {
	Kind    string  `json:"kind"`
	Handle  string  `json:"handle"`
	Parent  string  `json:"parent"`
	Options Options `json:"options,omitempty"`
	Stab    Options `json:"stab,omitempty"` // size table: what the line adds to a packet
}

// A Class is one class of a classful qdisc. Parent is a class or a qdisc's handle.
type Class struct {
	Kind    string  `json:"kind"`
	ID      string  `json:"id"`
	Parent  string  `json:"parent"`
	Inner   bool    `json:"inner,omitempty"` // has classes below it: the kernel then shows fewer options
	Options Options `json:"options,omitempty"`
}

// A Filter is one rule of a classifier. Args holds all its arguments in one
// canonical order, because every kind has its own grammar.
type Filter struct {
	Kind     string   `json:"kind"`
	Parent   string   `json:"parent"`
	At       string   `json:"at,omitempty"` // the parent's number, where `tc filter show ingress` prints one
	Protocol string   `json:"protocol"`
	Pref     int      `json:"pref"`
	Handle   string   `json:"handle,omitempty"` // the kernel's own numbering; an argument only for fw
	Args     []string `json:"args"`
	Pinned   string   `json:"pinned,omitempty"` // of bpf: where its program is pinned; by its name
	Opaque   string   `json:"opaque,omitempty"` // why it cannot be rebuilt; "" if it can
}

// A Tree is everything that tc(8) shows on one device except the kernel's
// default qdiscs (handle 0:): the empty Tree is the default.
type Tree struct {
	Qdiscs  []Qdisc  `json:"qdiscs,omitempty"`
	Classes []Class  `json:"classes,omitempty"`
	Filters []Filter `json:"filters,omitempty"`
}

// A Command is one argument vector, the tool's name first.
type Command []string

// Split returns the part of the tree below root and the part below ingress (or
// clsact). They are created and removed separately.
func (t Tree) Split() (root, ingress Tree) {
	for _, q := range t.Qdiscs {
		if q.Parent == ingressAt {
			ingress.Qdiscs = append(ingress.Qdiscs, q)
		} else {
			root.Qdiscs = append(root.Qdiscs, q)
		}
	}
	root.Classes = t.Classes
	for _, f := range t.Filters {
		if f.Parent == ingressAt || f.Parent == egressAt {
			ingress.Filters = append(ingress.Filters, f)
		} else {
			root.Filters = append(root.Filters, f)
		}
	}
	return root, ingress
}

// Join is the inverse of Split.
func Join(root, ingress Tree) Tree {
	return Tree{
		Qdiscs:  slices.Concat(root.Qdiscs, ingress.Qdiscs),
		Classes: slices.Concat(root.Classes, ingress.Classes),
		Filters: slices.Concat(root.Filters, ingress.Filters),
	}
}

// Empty reports whether the tree is the kernel's default.
func (t Tree) Empty() bool { return len(t.Qdiscs)+len(t.Classes)+len(t.Filters) == 0 }

// Root returns the qdisc at the root, if it is not the kernel's default.
func (t Tree) Root() (Qdisc, bool) {
	i := slices.IndexFunc(t.Qdiscs, func(q Qdisc) bool { return q.Parent == rootAt })
	if i < 0 {
		return Qdisc{}, false
	}
	return t.Qdiscs[i], true
}

// OwnRoot reports whether the root part of the tree was made by unbloat.
func (t Tree) OwnRoot() bool {
	q, ok := t.Root()
	return ok && q.Handle == OurRoot
}

// OwnIngress reports whether the ingress part of the tree was made by unbloat.
func (t Tree) OwnIngress() bool {
	_, in := t.Split()
	return len(in.Qdiscs) == 1 && len(in.Filters) > 0 && !slices.ContainsFunc(in.Filters, func(f Filter) bool { return f.Pref != OurPref })
}

// numbers reports whether the ingress part of the tree is unbloat's for the machines of a LAN.
func (t Tree) numbers() bool { return t.OwnIngress() && t.HasPrograms() }
