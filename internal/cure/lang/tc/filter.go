package tc

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// ParseFilters reads `tc -j -d filter show dev X parent P` (or `ingress`, or
// `egress`); parent is P as Filter.Parent has it. For a filter that cannot be
// rebuilt from the output, Opaque says why.
func ParseFilters(b []byte, parent string) ([]Filter, error) {
	list, err := decodeList(b)
	if err != nil {
		return nil, err
	}
	return filters(list, parent)
}

func filters(list []object, parent string) ([]Filter, error) {
	var out []Filter
	for _, o := range list {
		f := Filter{Kind: o.text("kind"), Parent: parent, Protocol: o.text("protocol")}
		if parent == ingressAt || parent == egressAt {
			f.At = o.text("parent")
		}
		if f.Kind == "" {
			return nil, fmt.Errorf("read filters of %s: an entry without a kind", parent)
		}
		var err error
		if f.Pref, err = strconv.Atoi(o.text("pref")); err != nil {
			return nil, fmt.Errorf("read filter %s of %s: preference %q is not a number", f.Kind, parent, o.text("pref"))
		}
		words := pairs
		if f.Kind == "u32" {
			words = u32Words
		}
		opts := o.child("options").spelledOut(words)
		if opts == nil || tableOnly(f.Kind, opts) {
			continue // the header of its preference, or u32's own hash table
		}
		if c := o.text("chain"); c != "" && c != "0" {
			f.Opaque = "it is in chain " + c
		}
		f.read(opts)
		if f.Kind == "bpf" {
			f.fromFile(opts)
		}
		out = append(out, f)
	}
	sortMarks(out)
	return out, nil
}

// sortMarks sorts the fw filters of one preference by mark. The kernel lists
// them in hash order, which has no meaning: a packet's mark matches at most
// one.
func sortMarks(list []Filter) {
	for from := 0; from < len(list); {
		to := from + 1
		for to < len(list) && list[from].Kind == "fw" && list[to].Kind == "fw" && list[to].Parent == list[from].Parent && list[to].Pref == list[from].Pref {
			to++
		}
		same := list[from:to]
		sort.SliceStable(same, func(i, j int) bool {
			a, b := same[i], same[j]
			return cmp.Or(cmp.Compare(len(a.Handle), len(b.Handle)), cmp.Compare(a.Handle, b.Handle)) < 0
		})
		from = to
	}
}

// u32Words reads a u32 filter as iproute2 prints it before 5.14: "fh 800::800 order
// 2048 key ht 800 bkt 0 flowid 1:1 not_in_hw match 00060000/00ff0000 at 8", with the
// names and values of its later JSON.
func u32Words(w []string) object {
	var out object
	add := func(key string, value any) { out = append(out, member{key, value}) }
	for ; len(w) > 0; w = w[1:] {
		word := func(i int) string { return w[min(i, len(w)-1)] }
		switch {
		case w[0] == "key" && word(1) == "ht" && len(w) > 4:
			add("key_ht", w[2])
			w = w[4:]
		case w[0] == "ht" && word(1) == "divisor" && len(w) > 2:
			add("ht_divisor", w[2])
			w = w[2:]
		case w[0] == "match" && word(2) == "at" && len(w) > 3:
			value, mask, _ := strings.Cut(w[1], "/")
			off := strings.TrimPrefix(w[3], "nexthdr+")
			add("match", object{{"value", hexDigits(value)}, {"mask", hexDigits(mask)}, {"offmask", strings.TrimSuffix(w[3], off)}, {"off", off}})
			w = w[3:]
		case w[0] == "terminal" && len(w) > 2: // terminal flowid ???
			add("terminal", "true")
			w = w[2:]
		case len(w) > 1 && slices.Contains([]string{"fh", "order", "flowid", "*flowid"}, w[0]):
			add(strings.TrimPrefix(w[0], "*"), w[1])
			w = w[1:]
		default:
			add(w[0], "true")
		}
	}
	return out
}

// hexDigits drops what is in front of the digits of a hexadecimal number, and zeros.
func hexDigits(s string) string {
	if short := strings.TrimLeft(s, "0x"); short != "" {
		return short
	}
	return "0"
}

// tableOnly reports whether the entry is the one-bucket hash table that u32
// creates for each preference.
func tableOnly(kind string, o object) bool {
	return kind == "u32" && o.text("ht_divisor") == "1"
}

// read fills Handle, Args and Opaque from a filter's options.
func (f *Filter) read(o object) {
	for _, m := range o {
		switch m.key {
		case "not_in_hw", "order", "key_ht", "bkt", "terminal", "skip_hw":
		case "fh", "handle":
			f.Handle = flat(m.value)
		case "fw": // its handle, since iproute2 6.15
			o, _ := m.value.(object)
			f.Handle = strings.TrimSuffix(o.text("mark")+"/"+o.text("mask"), "/")
		case "match":
			f.match(m.value)
		case "keys":
			f.keys(m.value)
		case "flowid", "classid":
			f.Args = append(f.Args, "classid", flat(m.value))
		case "actions":
			f.actions(m.value)
		default:
			if f.Kind != "bpf" { // see KnowPrograms
				f.opaque(fmt.Sprintf("its option %q is not known here", m.key))
			}
		}
	}
	switch f.Kind {
	case "u32", "fw", "flower", "matchall":
	default:
		f.opaque(unsaid)
	}
}

const unsaid = "tc(8) doesn't print all of it"

// Pins is the directory of our programs' pins. Each has a directory of its own
// there, which is the end of its programs' names.
const Pins = "/sys/fs/bpf/unbloat"

// Objects is the directory of BPF objects on a router where unbloat is not: its own tc(8)
// loads them. Each has a directory there, named as that of the maps in Pins.
const Objects = "/var/run/unbloat-bpf"

// ObjectOf returns where an object's file is.
func ObjectOf(key string) string { return path.Join(Objects, key, key+".o") }

// Self stands for this program as the first word of a Command: it attaches BPF
// programs itself, as many a tc(8) is built without them.
const Self = "unbloat"

var (
	ourProgram = regexp.MustCompile(`^([a-z]+)_([0-9a-f]{10})$`)
	ourObject  = regexp.MustCompile(`^([0-9a-f]{10})\.o:\[tc/([a-z]+)\]$`) // as tc(8) names what it loads
)

// Attached is a BPF filter as the kernel has it. tc(8) does not show all of it.
type Attached struct {
	Parent string `json:"parent"` // as Filter.Parent has it
	Pref   int    `json:"pref"`
	Handle string `json:"handle"`
	Name   string `json:"name"`
	Tag    string `json:"tag"` // of its program: a hash of the instructions
	Acts   bool   `json:"acts,omitempty"`
	// AsBuilt says that its program is the one that unbloat has, and pinned where
	// its name says.
	AsBuilt bool `json:"as_built,omitempty"`
}

// program fills in what the kernel says of a bpf filter. One of ours can be attached
// again, as its name says where it is pinned.
func (f *Filter) program(a Attached) {
	m := ourProgram.FindStringSubmatch(a.Name)
	if m == nil {
		return
	}
	tag := a.Tag
	if a.AsBuilt {
		tag = AsBuilt
	}
	f.Handle, f.Opaque, f.Pinned, f.Args = a.Handle, "", path.Join(Pins, m[2], m[1]), programArgs(a.Name, tag, a.Acts)
}

func programArgs(name, tag string, acts bool) []string {
	args := []string{"name", name, "tag", tag}
	if acts {
		args = append(args, directAction)
	}
	return args
}

// directAction is the argument of a bpf filter that says what becomes of a packet,
// not only its class.
const directAction = "direct-action"

// AsBuilt stands for a program's tag if it is that of the program that unbloat
// has: what hash it is depends on the kernel.
const AsBuilt = "as built"

// Program returns our filter for a pinned BPF program, which is named what_key and
// is the n-th of its kind on that place, from 0. parent is CAKE's handle, or
// "ingress". acts is for one that says what becomes of a packet.
func Program(parent, what, key string, n int, acts bool) Filter {
	f := Filter{Kind: "bpf", Parent: parent, Protocol: "all", Pref: OurPref + n, Handle: fmt.Sprintf("0x%x", HandleOf(parent, key)), Pinned: path.Join(Pins, key, what),
		Args: programArgs(what+"_"+key, AsBuilt, acts)}
	if parent == ingressAt {
		f.At = "ffff:"
	}
	return f
}

// HandleOf is the handle of a program's filter. Where packets enter from a LAN, which WANs may
// share, each WAN has its own: a key begins with its WAN. An earlier version had 1 there too.
func HandleOf(parent, key string) uint32 {
	wan, _ := strconv.ParseUint(key[:min(4, len(key))], 16, 16)
	if parent != ingressAt && parent != "ffff:" {
		return 1
	}
	return 1<<16 | uint32(wan)
}

// ByTC returns a filter of Program as the router's own tc(8) makes it, from an object's file.
func (f Filter) ByTC() Filter {
	key, what := path.Base(path.Dir(f.Pinned)), path.Base(f.Pinned)
	f.Pinned, f.Args = path.Join(Objects, key, what), slices.Clone(f.Args)
	f.Args[1] = key + ".o:[tc/" + what + "]"
	return f
}

// OfFile reports whether a filter's program is one that tc(8) loaded from an object's file.
func (f Filter) OfFile() bool { return strings.HasPrefix(f.Pinned, Objects+"/") }

// fromFile fills in what tc(8) says of a filter that it made of an object of ours.
func (f *Filter) fromFile(o object) {
	m := ourObject.FindStringSubmatch(o.text("bpf_name"))
	if m == nil || f.Opaque != "" && f.Opaque != unsaid {
		return
	}
	_, acts := o.get(directAction)
	f.Opaque, f.Pinned, f.Args = "", path.Join(Objects, m[1], m[2]), programArgs(m[0], o.child("prog").text("tag"), acts)
}

// KnowObjects has those filters that tc(8) made of an object say that their program is as
// built, if known says so of its tag.
func (t *Tree) KnowObjects(known func(what, tag string) bool) {
	for i, f := range t.Filters {
		if f.OfFile() && known(path.Base(f.Pinned), f.Args[3]) {
			t.Filters[i].Args = slices.Clone(f.Args)
			t.Filters[i].Args[3] = AsBuilt
		}
	}
}

// Attach adds a bpf filter to the root, or to the ingress of a device, which it
// makes if there is none. It returns false if a foreign ingress is in the way.
func (s *State) Attach(device string, f Filter) bool {
	d := s.Device(device)
	root, in := d.Tree.Split()
	if f.Parent != ingressAt {
		root.Filters = append(slices.Clone(root.Filters), f)
	} else if in.Empty() {
		in = Tree{Qdiscs: []Qdisc{{Kind: "ingress", Handle: "ffff:", Parent: ingressAt}}, Filters: []Filter{f}}
	} else {
		return false
	}
	d.Tree = Join(root, in)
	s.set(d)
	return true
}

// HasPrograms reports whether the tree has bpf filters.
func (t Tree) HasPrograms() bool {
	return slices.ContainsFunc(t.Filters, func(f Filter) bool { return f.Kind == "bpf" })
}

// KnowPrograms fills in what the kernel says of the tree's bpf filters.
func (t *Tree) KnowPrograms(list []Attached) {
	for i, f := range t.Filters {
		for _, a := range list {
			if f.Kind == "bpf" && f.Parent == a.Parent && f.Pref == a.Pref && (f.Handle == "" || hexDigits(f.Handle) == hexDigits(a.Handle)) {
				t.Filters[i].program(a)
			}
		}
	}
}

func (f *Filter) opaque(why string) {
	if f.Opaque == "" {
		f.Opaque = why
	}
}

// match reads one match of u32: value and mask in hexadecimal at an offset.
func (f *Filter) match(v any) {
	o, ok := v.(object)
	if !ok || o.text("offmask") != "" {
		f.opaque("a match depends on a header's length")
		return
	}
	f.Args = append(f.Args, "match", "u32", "0x"+o.text("value"), "0x"+o.text("mask"), "at", o.text("off"))
}

// keys reads the keys of a flower filter whose names are also its arguments.
func (f *Filter) keys(v any) {
	o, _ := v.(object)
	for _, m := range o {
		switch m.key {
		case "eth_type": // the filter's protocol
		case "ip_proto", "dst_port", "src_port", "dst_ip", "src_ip", "dst_mac", "src_mac", "vlan_id", "vlan_prio":
			f.Args = append(f.Args, m.key, flat(m.value))
		default:
			f.opaque(fmt.Sprintf("its key %q is not known here", m.key))
		}
	}
}

// actions reads a filter's actions: mirred, skbedit and ctinfo. Filters with
// others can't be rebuilt.
func (f *Filter) actions(v any) {
	list, _ := v.([]any)
	for _, x := range list {
		a, ok := x.(object)
		if ok && (a.text("kind") == "skbedit" && f.skbedit(a) || a.text("kind") == "ctinfo" && f.ctinfo(a)) {
			continue
		}
		if !ok || a.text("kind") != "mirred" || a.text("to_dev") == "" {
			f.opaque(fmt.Sprintf("its action %q is not known here", a.text("kind")))
			continue
		}
		f.Args = append(f.Args, "action", "mirred", a.text("direction"), a.text("mirred_action"), "dev", a.text("to_dev"))
		want := map[string]string{"redirect": "stolen", "mirror": "pipe"}[a.text("mirred_action")]
		if got := a.child("control_action").text("type"); got != "" && got != want {
			f.opaque("its action ends in " + got)
		}
	}
}

// RedirectsTo returns the devices that the filter redirects or mirrors to.
func (f Filter) RedirectsTo() []string {
	var out []string
	for i := 0; i+1 < len(f.Args); i++ {
		if f.Args[i] == "dev" {
			out = append(out, f.Args[i+1])
		}
	}
	return out
}

// skbedit reads an action that sets a packet's priority and nothing else.
func (f *Filter) skbedit(a object) bool {
	for _, m := range a {
		switch m.key {
		case "order", "kind", "priority", "control_action", "index", "ref", "bind", "installed", "last_used", "first_used", "stats", "not_in_hw", "in_hw_count", "used_hw_stats":
		default:
			return false
		}
	}
	if a.text("priority") == "" || a.child("control_action").text("type") != "pipe" {
		return false
	}
	f.Args = append(f.Args, "action", "skbedit", "priority", a.text("priority"))
	return true
}

// ctinfo reads an action that gives a packet the mark of its connection.
func (f *Filter) ctinfo(a object) bool {
	for _, m := range a {
		switch m.key {
		case "order", "kind", "zone", "cpmark", "control_action", "index", "ref", "bind", "installed", "last_used", "first_used", "stats", "not_in_hw", "in_hw_count", "used_hw_stats":
		default:
			return false
		}
	}
	if a.text("cpmark") == "" || a.text("zone") != "0" || a.child("control_action").text("type") != "pipe" {
		return false
	}
	f.Args = append(f.Args, "action", "ctinfo", "cpmark", a.text("cpmark"))
	return true
}
