package tc

import (
	"slices"
	"strings"

	"unbloat/internal/cure/plan"
	"unbloat/unit"
)

// ReadTree reads everything that tc(8) shows for dev. run gets lines for `tc -j -d`,
// several for its batch mode, and returns what they print. What a tree like that would have
// is asked for at once. What can't be read of filters and classes is in the tree as
// something that can't be rebuilt.
func ReadTree(dev string, like Tree, run func(lines ...string) ([]byte, error)) (Tree, error) {
	var t Tree
	said := map[string][]byte{}
	ask := func(lines ...string) ([]byte, error) { // for the first; the others' answers are kept
		if said[lines[0]] == nil && len(lines) > 1 {
			if out, err := run(lines...); err == nil {
				for i, part := range parts(out, len(lines)) {
					said[lines[i]] = part
				}
			}
		}
		if out := said[lines[0]]; out != nil {
			return out, nil
		}
		return run(lines[0])
	}
	out, err := ask(append([]string{"qdisc show dev " + dev}, like.shown(dev)...)...)
	if err != nil {
		return t, err
	}
	if t.Qdiscs, err = ParseQdiscs(out); err != nil || len(t.Qdiscs) == 0 {
		return t, err
	}
	if hasClassful(t.Qdiscs) {
		if out, err = ask("class show dev " + dev); err != nil {
			return t, err
		}
		if t.Classes, err = ParseClasses(out); err != nil {
			t.unreadable(err)
		}
	}
	parents := filterParents(t)
	lines := t.shown(dev)[:len(parents)]
	for i, at := range parents {
		of := lines[i : i+1]
		if i == 0 {
			of = lines // hundreds of classes are no rarity
		}
		if out, err = ask(of...); err != nil {
			return t, err
		}
		fs, err := ParseFilters(out, at)
		if err != nil {
			fs = []Filter{{Kind: "unread", Parent: at, Opaque: err.Error()}}
		}
		t.Filters = append(t.Filters, fs...)
	}
	return t, nil
}

// shown are the lines that ask for the filters of a tree's parents, and for its classes if it
// can have some.
func (t Tree) shown(dev string) (lines []string) {
	for _, at := range filterParents(t) {
		if at != ingressAt && at != egressAt {
			at = "parent " + at
		}
		lines = append(lines, "filter show dev "+dev+" "+at)
	}
	if hasClassful(t.Qdiscs) {
		lines = append(lines, "class show dev "+dev)
	}
	return lines
}

// unreadable marks the tree as not rebuildable because its classes can't be
// read: some versions of tc(8) print hfsc's classes as broken JSON.
func (t *Tree) unreadable(err error) {
	for i, q := range t.Qdiscs {
		if _, ok := classSchema(q.Kind); ok {
			t.Qdiscs[i].Options = q.Options.with("?classes", err.Error())
		}
	}
}

// hasClassful reports whether any of the qdiscs can have classes that tc shows.
func hasClassful(qs []Qdisc) bool {
	for _, q := range qs {
		if _, ok := classSchema(q.Kind); ok {
			return true
		}
	}
	return false
}

// filterParents returns the possible parents of filters: classful qdiscs, their
// inner classes, ingress and egress.
func filterParents(t Tree) []string {
	var out []string
	for _, q := range t.Qdiscs {
		switch q.Kind {
		case "ingress":
			out = append(out, ingressAt)
		case "clsact":
			out = append(out, ingressAt, egressAt)
		case "pfifo", "bfifo", "pfifo_head_drop", "tbf", "codel", "fq", "pie", "mq", "noqueue":
		default:
			out = append(out, q.Handle)
		}
	}
	for _, c := range t.Classes {
		if c.Inner && !strings.HasPrefix(c.ID, OurRoot) {
			out = append(out, c.ID)
		}
	}
	return out
}

// Foreign returns the parts of a device's tree that unbloat did not make and
// that the wanted state removes.
func Foreign(a, w Device) Tree {
	root, in := a.Tree.Split()
	wroot, win := w.Tree.Split()
	if a.Tree.OwnRoot() || len(root.patchTo(a.Name, wroot).diffs) == 0 {
		root = Tree{}
	}
	if a.Tree.OwnIngress() || len(in.patchTo(a.Name, win).diffs) == 0 {
		in = Tree{}
	}
	return Join(root, in)
}

// OnLoopback returns the tree with every redirect pointing to lo, for a trial
// where the real targets don't exist. lo has one queue: for mq, which has no options,
// HTB bears what is below it.
func (t Tree) OnLoopback() Tree {
	out := t
	out.Filters = nil
	if root, ok := t.Root(); ok && root.Kind == "mq" {
		out.Qdiscs, out.Classes = nil, nil
		for _, q := range t.Qdiscs {
			if q.Handle == root.Handle {
				continue
			}
			out.Qdiscs = append(out.Qdiscs, q)
			if strings.HasPrefix(q.Parent, root.Handle) {
				out.Classes = append(out.Classes, Class{Kind: "htb", ID: q.Parent, Parent: root.Handle, Options: classOptions(plan.Shaper{Rate: unit.GbitPerSecond})})
			}
		}
		if out.Classes != nil {
			out.Qdiscs = append(out.Qdiscs, Qdisc{Kind: "htb", Handle: root.Handle, Parent: rootAt, Options: Options{"direct_qlen": num(1000)}})
		}
	}
	for _, f := range t.Filters {
		if f.Kind == "bpf" {
			continue // its program may not be loaded yet
		}
		f.Args = append([]string(nil), f.Args...)
		for i := 1; i < len(f.Args); i++ {
			if f.Args[i-1] == "dev" {
				f.Args[i] = "lo"
			}
		}
		out.Filters = append(out.Filters, f)
	}
	return out
}

// idle reports whether what is at the root is mq with queues that hold back nothing: a
// network card with several has it by itself.
func (t Tree) idle() bool {
	root, _ := t.Root()
	return root.Kind == "mq" && len(t.Classes) == 0 && !slices.ContainsFunc(t.Qdiscs, func(q Qdisc) bool {
		return q.Parent != rootAt && q.Parent != ingressAt && !slices.Contains([]string{"fq_codel", "fq", "codel", "pie", "sfq", "pfifo", "bfifo", "pfifo_head_drop"}, q.Kind)
	})
}

// Differences lists where got differs from t, for people; nil if they are
// equal.
func (t Tree) Differences(got Tree) []string { return got.patchTo("rebuilt", t).diffs }

// Ours returns the parts of the tree that unbloat makes.
func (t Tree) Ours() Tree {
	root, in := t.Split()
	if !t.OwnRoot() {
		root = Tree{}
	}
	if !t.OwnIngress() {
		in = Tree{}
	}
	return Join(root, in)
}

// bucketFields returns the options of a kind that hold a bucket's size.
func bucketFields(s schema) []string {
	var out []string
	for _, f := range s.fields {
		if f.unit == bucket {
			out = append(out, f.json)
		}
	}
	return out
}

// ForeignBuckets reports whether a tree that unbloat did not make has token
// buckets. Their arguments can be derived from tc(8)'s output only if its
// rounding is known.
func (t Tree) ForeignBuckets() bool {
	if t.OwnRoot() {
		return false
	}
	for _, q := range t.Qdiscs {
		if q.Kind == "tbf" {
			return true
		}
	}
	for _, c := range t.Classes {
		if c.Kind == "htb" {
			return true
		}
	}
	return false
}

// BucketProbe is a tbf whose readback shows how tc(8) rounds; see RoundsUp.
const BucketProbe = "qdisc add dev lo root handle 1: tbf rate 1gbit burst 1500 limit 3000"

// RoundsUp reports whether tc(8) rounds buckets up to the next tick, as newer
// versions do. t is the readback of BucketProbe: 1504 bytes if it rounds up,
// 1375 if not.
func (t Tree) RoundsUp() bool {
	q, _ := t.Root()
	return atoi(q.Options["burst"].Kernel) >= 1500
}

// SayBuckets makes each shown bucket size its own argument. That is correct
// where tc(8) rounds up: rounding a rounded size changes nothing.
func (t Tree) SayBuckets() {
	say := func(o Options, s schema) {
		for _, name := range bucketFields(s) {
			if v, ok := o[name]; ok {
				v.Arg = v.Kernel
				o[name] = v
			}
		}
	}
	for _, q := range t.Qdiscs {
		s, _ := qdiscSchema(q.Kind)
		say(q.Options, s)
	}
	for _, c := range t.Classes {
		s, _ := classSchema(c.Kind)
		say(c.Options, s)
	}
}
