package dnctl

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// exitOS is what a tool exits with that the kernel refused a table (EX_OSERR).
const exitOS = 71

// A table is one of flows. Its entries are not part of what a transaction restores.
type table struct {
	kind    string
	fields  []string
	entries map[string]uint32
}

// Table returns the entries of a table; nil if there is none of that name.
func (m *Machine) Table(name string) map[string]uint32 {
	if t := m.tables[name]; t != nil {
		return t.entries
	}
	return nil
}

// table runs `ipfw table NAME command …`, as sbin/ipfw/tables.c reads it.
func (r *run) table(av []string) {
	if len(av) == 0 {
		r.fail(exitUsage, "table needs name")
	}
	name := av[0]
	if len(av) < 2 {
		r.fail(exitUsage, "table needs command")
	}
	verb, av := av[1], av[2:]
	if name == "all" {
		if verb != "info" && verb != "destroy" && verb != "flush" && verb != "list" && verb != "detail" {
			r.fail(exitUsage, "table name required")
		}
		if verb != "info" {
			r.unknown("`ipfw table all %s`", verb)
		}
		for _, n := range slices.Sorted(maps.Keys(r.tables)) {
			r.showTable(n)
		}
		return
	}
	if r.testOnly {
		r.unknown("tables with -n")
	}
	t := r.tables[name]
	switch verb {
	case "create":
		r.createTable(name, av)
	case "destroy":
		switch {
		case t == nil && !r.quiet:
			r.warn("failed to destroy table %s: No such process", name)
		case t == nil:
		case r.refers(name):
			r.fail(exitOS, "failed to destroy table %s: Device busy", name)
		default:
			delete(r.tables, name)
		}
	case "info":
		if t == nil {
			r.fail(exitOS, "failed to request table info: No such process")
		}
		r.showTable(name)
	case "list":
		if t == nil {
			r.fail(exitOS, "failed to request table info: No such process")
		}
		for _, key := range slices.Sorted(maps.Keys(t.entries)) {
			fmt.Fprintf(&r.out, "%s %d\n", key, t.entries[key])
		}
	case "add", "delete":
		if len(av) == 0 {
			r.fail(exitUsage, "address required")
		}
		if t == nil && verb == "delete" {
			r.fail(exitData, "Table %s does not exist", name)
		}
		if t == nil || !r.quiet {
			r.unknown("`ipfw table %s %s` without -q, or without the table", name, verb)
		}
		r.entries(t, verb, av)
	default:
		r.unknown("`ipfw table %s %s`", name, verb)
	}
}

// refers reports whether a rule looks a table up.
func (m *Machine) refers(name string) bool {
	return slices.ContainsFunc(m.rules, func(x rule) bool { return strings.Contains(x.text+" ", "table("+name+")") })
}

// createTable runs `create [type TYPE] [missing]`.
func (r *run) createTable(name string, av []string) {
	t := &table{kind: "addr", entries: map[string]uint32{}}
	missing := false
	for len(av) > 0 {
		switch w := av[0]; w {
		case "type":
			if len(av) < 2 {
				r.fail(exitUsage, "table type required")
			}
			kind, fields, _ := strings.Cut(av[1], ":")
			if !slices.Contains([]string{"addr", "mac", "iface", "number", "flow"}, kind) {
				r.fail(exitUsage, "Unknown tabletype: %s. Supported: addr, mac, iface, number, flow", kind)
			}
			if kind != "flow" {
				r.unknown("tables of type %s", kind)
			}
			known := []string{"src-ip", "proto", "src-port", "dst-ip", "dst-port"} // in the order of a key
			asked := strings.Split(fields, ",")
			for _, f := range asked {
				if !slices.Contains(known, f) {
					r.fail(exitUsage, "unable to parse flow option %s", f)
				}
			}
			t.kind = kind
			for _, f := range known {
				if slices.Contains(asked, f) {
					t.fields = append(t.fields, f)
				}
			}
			av = av[2:]
		case "missing":
			missing = true
			av = av[1:]
		case "valtype", "algo", "limit", "locked", "or-flush":
			r.unknown("the option %s of a table", w)
		default:
			r.fail(exitUsage, "invalid option %s", w)
		}
	}
	switch was := r.tables[name]; {
	case was != nil && !missing:
		r.fail(exitOS, "Table creation failed: File exists")
	case was != nil && (was.kind != t.kind || !slices.Equal(was.fields, t.fields)):
		r.fail(exitData, "The existing table is not compatible with one you are creating.")
	case was != nil:
		return
	}
	if r.tables == nil {
		r.tables = map[string]*table{}
	}
	r.tables[name] = t
}

// entries runs `add KEY VALUE …` or `delete KEY …`. With -q an entry that is there
// gets the new value, and one that is missing is no error.
func (r *run) entries(t *table, verb string, av []string) {
	for len(av) > 0 {
		key := r.key(t, av[0])
		av = av[1:]
		if verb == "delete" {
			delete(t.entries, key)
			continue
		}
		value := uint64(0)
		if len(av) > 0 {
			n, err := strconv.ParseUint(av[0], 0, 32)
			if err != nil {
				r.fail(exitOS, "Unable to parse value %s", av[0])
			}
			value, av = n, av[1:]
		}
		t.entries[key] = uint32(value)
	}
}

// key reads a flow's key, and returns it as the tool prints it.
func (r *run) key(t *table, text string) string {
	parts := strings.Split(text, ",")
	if len(parts) > len(t.fields) {
		r.unknown("what follows the key %s", text)
	}
	var out []string
	v6, first := false, true
	for i, f := range t.fields {
		names := map[string]string{"src-ip": "src ip", "proto": "proto", "src-port": "src port", "dst-ip": "dst ip", "dst-port": "dst port"}
		if i >= len(parts) {
			r.fail(exitData, "invalid key: %s missing", names[f])
		}
		w := parts[i]
		switch f {
		case "src-ip", "dst-ip":
			a, err := netip.ParseAddr(w)
			if err != nil || a.Zone() != "" {
				r.unknown("the address %s of a key", w)
			}
			if !first && v6 != a.Is6() {
				r.fail(exitData, "Inconsistent address family")
			}
			v6, first = a.Is6(), false
			out = append(out, a.String())
		default:
			n, err := strconv.ParseUint(w, 10, 16)
			if err != nil {
				r.unknown("the name %s in a key", w)
			}
			if f == "proto" && n > 255 {
				r.fail(exitData, "Bad protocol number: %d", n)
			}
			out = append(out, strconv.FormatUint(n, 10))
		}
	}
	return strings.Join(out, ",")
}

// showTable prints what `info` does.
func (r *run) showTable(name string) {
	t := r.tables[name]
	uses := 0
	for _, x := range r.rules {
		uses += strings.Count(x.text+" ", "table("+name+")")
	}
	kind := t.kind
	if len(t.fields) > 0 {
		kind += ":" + strings.Join(t.fields, ",")
	}
	fmt.Fprintf(&r.out, "--- table(%s), set(0) ---\n kindex: 0, type: %s\n references: %d, valtype: legacy\n algorithm: flow:hash\n items: %d, size: 280\n", name, kind, uses, len(t.entries))
}
