package scenario

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"unbloat/unit"
)

// A table is one table of the file with the path that leads to it.
type table struct {
	p    *parser
	m    map[string]any
	path string
}

func (t table) key(k string) string {
	if t.path == "" {
		return k
	}
	return t.path + "." + k
}

// take removes and returns a value, nil if it is not there.
func (t table) take(k string) any {
	v := t.m[k]
	delete(t.m, k)
	return v
}

// end refuses the keys that were not read: misspelt ones.
func (t table) end() {
	left := make([]string, 0, len(t.m))
	for k := range t.m {
		left = append(left, k)
	}
	slices.Sort(left)
	for _, k := range left {
		t.p.fail(t.key(k), "unknown key")
	}
}

func (t table) table(k string, required bool) table {
	sub := table{p: t.p, path: t.key(k)}
	switch v := t.take(k).(type) {
	case map[string]any:
		sub.m = v
	case nil:
		if required {
			t.p.fail(sub.path, "missing")
		}
	default:
		t.p.fail(sub.path, "must be a table, [%s]", sub.path)
	}
	return sub
}

func (t table) tables(k string, most int) []table {
	var list []any
	switch v := t.take(k).(type) {
	case nil:
	case []any:
		list = v
	default:
		t.p.fail(t.key(k), "must be a list of tables, [[%s]]", t.key(k))
	}
	if len(list) > most {
		t.p.fail(t.key(k), "%d entries; at most %d are allowed", len(list), most)
		return nil
	}
	out := make([]table, 0, len(list))
	for i, e := range list {
		path := fmt.Sprintf("%s[%d]", t.key(k), i)
		m, ok := e.(map[string]any)
		if !ok {
			t.p.fail(path, "must be a table")
			continue
		}
		out = append(out, table{p: t.p, m: m, path: path})
	}
	return out
}

func (t table) text(k string) string {
	switch v := t.take(k).(type) {
	case nil:
	case string:
		return v
	default:
		t.p.fail(t.key(k), "must be text in quotes")
	}
	return ""
}

func (t table) name(k string) string {
	s := t.text(k)
	if !nameShape.MatchString(s) {
		t.p.fail(t.key(k), "%q is no name: 1 to 64 letters, digits, - and _", s)
	}
	return s
}

// oneOf reads a word of a list. fallback stands for an absent key; "?" makes it required.
func (t table) oneOf(k, fallback string, allowed ...string) string {
	s := t.text(k)
	if s == "" && fallback != "?" {
		return fallback
	}
	if !slices.Contains(allowed, s) {
		t.p.fail(t.key(k), "%q is unknown; it is one of %s", s, strings.Join(allowed, ", "))
	}
	return s
}

func (t table) rate(k string, required bool) (r unit.Rate) {
	t.parsed(k, required, func(s string) (err error) { r, err = unit.ParseRate(s); return err })
	return r
}

func (t table) size(k string) (n unit.Size) {
	t.parsed(k, true, func(s string) (err error) {
		if n, err = unit.ParseSize(s); err == nil && (n < 1514 || n > unit.GB) {
			err = fmt.Errorf("must hold one full frame (1514 B) and at most 1 GB")
		}
		return err
	})
	return n
}

func (t table) duration(k string, required bool, most time.Duration) (d time.Duration) {
	t.parsed(k, required, func(s string) (err error) {
		if d, err = unit.ParseDuration(s); err == nil && d > most {
			err = fmt.Errorf("above %v", most)
		}
		return err
	})
	return d
}

// durations reads a list of durations.
func (t table) durations(k string, mostEntries int, most time.Duration) (out []time.Duration) {
	v := t.take(k)
	if v == nil {
		return nil
	}
	list, ok := v.([]any)
	if !ok || len(list) > mostEntries {
		t.p.fail(t.key(k), "must be a list of at most %d durations, such as [\"0 ms\", \"60 ms\"]", mostEntries)
		return nil
	}
	for i := range list {
		one := table{p: t.p, m: map[string]any{"": list[i]}, path: fmt.Sprintf("%s[%d]", t.key(k), i)}
		out = append(out, one.duration("", true, most))
	}
	return out
}

// texts reads a list of texts.
func (t table) texts(k string, most int) []string {
	v := t.take(k)
	if v == nil {
		return nil
	}
	list, ok := v.([]any)
	if !ok || len(list) > most {
		t.p.fail(t.key(k), "must be a list of at most %d texts in quotes", most)
		return nil
	}
	out := make([]string, 0, len(list))
	for i := range list {
		one := table{p: t.p, m: map[string]any{"": list[i]}, path: fmt.Sprintf("%s[%d]", t.key(k), i)}
		out = append(out, one.text(""))
	}
	return out
}

// parsed reads a text and hands it to parse.
func (t table) parsed(k string, required bool, parse func(string) error) {
	v, there := t.m[k]
	if !there {
		if required {
			t.p.fail(t.key(k), "missing")
		}
		return
	}
	delete(t.m, k)
	s, ok := v.(string)
	if !ok {
		t.p.fail(t.key(k), "must be text in quotes with its unit, such as \"20 ms\" or \"5 Mbit/s\"")
		return
	}
	if err := parse(s); err != nil {
		t.p.fail(t.key(k), "%v", err)
	}
}

func (t table) integer(k string, fallback, least, most int) int {
	switch v := t.take(k).(type) {
	case nil:
		return fallback
	case int64:
		if v >= int64(least) && v <= int64(most) {
			return int(v)
		}
		t.p.fail(t.key(k), "%d is outside %d to %d", v, least, most)
	default:
		t.p.fail(t.key(k), "must be a whole number")
	}
	return fallback
}

func (t table) boolean(k string) bool {
	v := t.take(k)
	on, ok := v.(bool)
	if v != nil && !ok {
		t.p.fail(t.key(k), "must be true or false")
	}
	return on
}

func (t table) fraction(k string) float64 {
	var f float64
	switch v := t.take(k).(type) {
	case nil:
		return 0
	case float64:
		f = v
	case int64:
		f = float64(v)
	case string:
		var rest string
		if n, _ := fmt.Sscanf(v, "%f%s", &f, &rest); n != 2 || rest != "%" {
			t.p.fail(t.key(k), "write it like 0.01 or \"1%%\"")
		}
		f /= 100
	default:
		t.p.fail(t.key(k), "must be a number from 0 to 1")
	}
	if !(f >= 0 && f < 1) || math.IsNaN(f) {
		t.p.fail(t.key(k), "must be from 0 to below 1")
	}
	return f
}
