package tc

import (
	"cmp"
	"fmt"
	"slices"
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
	var out []Filter
	for _, o := range list {
		f := Filter{Kind: o.text("kind"), Parent: parent, Protocol: o.text("protocol")}
		if parent == ingressAt || parent == egressAt {
			f.At = o.text("parent")
		}
		if f.Kind == "" {
			return nil, fmt.Errorf("read filters of %s: an entry without a kind", parent)
		}
		if f.Pref, err = strconv.Atoi(o.text("pref")); err != nil {
			return nil, fmt.Errorf("read filter %s of %s: preference %q is not a number", f.Kind, parent, o.text("pref"))
		}
		opts := o.child("options")
		if opts == nil || tableOnly(f.Kind, opts) {
			continue // the header of its preference, or u32's own hash table
		}
		if c := o.text("chain"); c != "" && c != "0" {
			f.Opaque = "it is in chain " + c
		}
		f.read(opts)
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
		slices.SortFunc(list[from:to], func(a, b Filter) int {
			return cmp.Or(cmp.Compare(len(a.Handle), len(b.Handle)), cmp.Compare(a.Handle, b.Handle))
		})
		from = to
	}
}

// tableOnly reports whether the entry is the one-bucket hash table that u32
// creates for each preference.
func tableOnly(kind string, o object) bool {
	return kind == "u32" && o.text("ht_divisor") == "1"
}

// read fills Handle, Args and Opaque from a filter's options.
func (f *Filter) read(o object) {
	if t := o.text(textKey); t != "" {
		o = pairs(strings.Fields(t))
	}
	for _, m := range o {
		switch m.key {
		case "not_in_hw", "order", "key_ht", "bkt", "terminal", "skip_hw":
		case "fh", "handle":
			f.Handle = flat(m.value)
		case "match":
			f.match(m.value)
		case "keys":
			f.keys(m.value)
		case "flowid", "classid":
			f.Args = append(f.Args, "classid", flat(m.value))
		case "actions":
			f.actions(m.value)
		default:
			f.opaque(fmt.Sprintf("its option %q is not known here", m.key))
		}
	}
	switch f.Kind {
	case "u32", "fw", "flower", "matchall":
	default:
		f.opaque("tc(8) doesn't print all of it")
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
