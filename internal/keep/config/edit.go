package config

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"

	"unbloat/internal/cure/plan"
)

// placed says on which lines the keys of a file are, from 1.
type placed struct {
	top  map[string]int
	ui   map[string]int   // of [ui], like those of [[wan]]
	wans []map[string]int // of each [[wan]]; the key "" is the line of the table's name
	// schedule is the same of each [[schedule]].
	schedule []map[string]int
	notify   []map[string]int // of each [[notify]]
}

// positions finds the keys of a file that has been decoded without an error.
func positions(text []byte) placed {
	out := placed{top: map[string]int{}}
	var p unstable.Parser
	p.Reset(text)
	in := out.top
	for p.NextExpression() {
		e := p.Expression()
		it := e.Key()
		var path []string
		line := 0
		for it.Next() {
			if line == 0 {
				line = p.Shape(it.Node().Raw).Start.Line
			}
			path = append(path, string(it.Node().Data))
		}
		if len(path) == 0 {
			continue
		}
		switch {
		case e.Kind == unstable.ArrayTable && len(path) == 1 && path[0] == "wan":
			in = map[string]int{"": line}
			out.wans = append(out.wans, in)
		case e.Kind == unstable.Table && len(path) == 1 && path[0] == "ui":
			in = map[string]int{"": line}
			out.ui = in
		case e.Kind == unstable.ArrayTable && len(path) == 1 && path[0] == "schedule":
			in = map[string]int{"": line}
			out.schedule = append(out.schedule, in)
		case e.Kind == unstable.ArrayTable && len(path) == 1 && path[0] == "notify":
			in = map[string]int{"": line}
			out.notify = append(out.notify, in)
		case e.Kind == unstable.ArrayTable, e.Kind == unstable.Table:
			in = map[string]int{}
			if _, seen := out.top[path[0]]; !seen {
				out.top[path[0]] = line
			}
		case e.Kind == unstable.KeyValue:
			in[path[0]] = line
		}
	}
	return out
}

// A Setting is a key of a [[wan]] and its new value, a text, "true" or "false", or a
// list of texts. Without any the key is removed.
type Setting struct {
	Key, Value string
	List       []string
}

// removes reports whether the key is not to be there.
func (s Setting) removes() bool { return s.Value == "" && len(s.List) == 0 }

// plainly reports whether a key takes a value without quotes.
func plainly(key string) bool { return key == "follow" || key == "watch" || key == "incidents" }

// written is the value as TOML has it.
func (s Setting) written() string {
	switch {
	case len(s.List) > 0:
		var texts []string
		for _, x := range s.List {
			texts = append(texts, fmt.Sprintf("%q", x))
		}
		return "[" + strings.Join(texts, ", ") + "]"
	case plainly(s.Key):
		return s.Value
	}
	return fmt.Sprintf("%q", s.Value)
}

// Set returns the file's text with new texts for keys of one [[wan]], the i-th.
// All else stays as it is, comments too. It returns an error if the text is laid
// out so unusually that the result would mean anything else.
func Set(name string, text []byte, i int, settings []Setting) ([]byte, error) {
	before, err := Parse(name, text)
	if err != nil {
		return nil, err
	}
	syntax := SyntaxOf(name, text)
	failed := func(why string) error {
		var want []string
		for _, s := range settings {
			want = append(want, syntax.Sets(s))
		}
		return fmt.Errorf("write the new settings to %s: %s; change it by hand: %s", name, why, strings.Join(want, ", "))
	}
	if i < 0 || i >= len(before.WANs) {
		return nil, failed("it has no such WAN")
	}
	edit := editTOML
	if syntax == UCI {
		edit = editUCI
	}
	out, err := edit(name, text, i, settings)
	if err != nil {
		return nil, failed(err.Error())
	}
	now, err := Parse(name, out)
	if err != nil {
		return nil, failed(err.Error())
	}
	if err := onlyChanged(before, now, i, settings); err != nil {
		return nil, failed(err.Error())
	}
	return out, nil
}

// editTOML writes settings into the lines of the i-th [[wan]].
func editTOML(_ string, text []byte, i int, settings []Setting) ([]byte, error) {
	at := positions(text)
	if i >= len(at.wans) {
		return nil, errors.New("its tables are not written as [[wan]]")
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	keys := at.wans[i]
	var added [][]byte
	for _, s := range settings {
		n, there := keys[s.Key]
		switch {
		case there && s.removes():
			if _, _, ok := value(s.Key, lines[n-1]); !ok {
				return nil, errors.New("the value of " + s.Key + " is not on one line")
			}
			lines[n-1] = nil
		case there:
			from, to, ok := value(s.Key, lines[n-1])
			if !ok {
				return nil, errors.New("the value of " + s.Key + " is not on one line")
			}
			l := lines[n-1]
			lines[n-1] = fmt.Appendf(nil, "%s%s%s", l[:from], s.written(), l[to:])
		case !s.removes():
			added = append(added, fmt.Appendf(nil, "%s = %s\n", s.Key, s.written()))
		}
	}
	after := keys["interface"]
	if len(added) > 0 {
		if after == 0 {
			return nil, errors.New("it has no line for interface")
		}
		if l := lines[after-1]; len(l) == 0 || l[len(l)-1] != '\n' {
			lines[after-1] = append(bytes.Clone(l), '\n')
		}
	}
	var out []byte
	for n, l := range lines {
		out = append(out, l...)
		if n == after-1 {
			for _, a := range added {
				out = append(out, a...)
			}
		}
	}
	return out, nil
}

// onlyChanged returns an error if two configurations differ in more than those
// settings of the i-th WAN.
func onlyChanged(before, now Config, i int, settings []Setting) error {
	keys := map[string]bool{}
	for _, s := range settings {
		keys[s.Key] = true
	}
	same := func(c Config) Config {
		c.top = nil
		c.Schedule = slices.Clone(c.Schedule)
		for k := range c.Schedule {
			c.Schedule[k].line = 0
		}
		ws := append([]WAN(nil), c.WANs...)
		for k := range ws {
			ws[k].lines = nil
		}
		if i >= 0 && i < len(ws) {
			w := &ws[i]
			for key, forget := range map[string]func(){
				"down": func() { w.Down = 0 }, "up": func() { w.Up = 0 },
				"shape_down": func() { w.ShapeDown = plan.RatePreference{} }, "shape_up": func() { w.ShapeUp = plan.RatePreference{} },
				"least_down": func() { w.LeastDown = 0 }, "most_down": func() { w.MostDown = 0 }, "least_up": func() { w.LeastUp = 0 }, "most_up": func() { w.MostUp = 0 },
				"framing": func() { w.Framing = "" }, "reflectors": func() { w.Reflectors = nil }, "learn": func() { w.Learn = "" }, "decisions": func() { w.Decisions = "" },
				"follow": func() { w.Follow = false }, "watch": func() { w.Unwatched = false }, "incidents": func() { w.Incidents, w.Untold = false, false }, "first": func() { w.First = nil }, "last": func() { w.Last = nil }, "rules": func() { w.OwnRules = nil }, "limits": func() { w.Limits = nil },
			} {
				if keys[key] {
					forget()
				}
			}
		}
		c.WANs = ws
		return c
	}
	if !reflect.DeepEqual(same(before), same(now)) {
		return errors.New("its layout is unusual, and more than that would change")
	}
	return nil
}

// value finds a key's value, if it is on that line alone.
func value(key string, line []byte) (from, to int, ok bool) {
	eq := bytes.IndexByte(line, '=')
	if eq < 0 {
		return 0, 0, false
	}
	from = eq + 1
	for from < len(line) && (line[from] == ' ' || line[from] == '\t') {
		from++
	}
	if from >= len(line) {
		return 0, 0, false
	}
	switch first := line[from]; {
	case first == '"', first == '\'':
		return quoted(line, from)
	case first == '[':
		return list(line, from)
	case !plainly(key):
		return 0, 0, false
	}
	for to = from; to < len(line) && !bytes.ContainsRune([]byte(" \t\r\n#"), rune(line[to])); to++ {
	}
	return from, to, to > from
}

// quoted finds the end of a text in quotes.
func quoted(line []byte, from int) (int, int, bool) {
	quote, to := line[from], from+1
	for ; to < len(line) && line[to] != quote; to++ {
		if line[to] == '\\' && quote == '"' {
			to++
		}
	}
	if to >= len(line) || to == from+1 && to+1 < len(line) && line[to+1] == quote {
		return 0, 0, false // it goes on in the next line
	}
	return from, to + 1, true
}

// list finds the end of a list of texts.
func list(line []byte, from int) (int, int, bool) {
	for to := from + 1; to < len(line); to++ {
		switch line[to] {
		case ']':
			return from, to + 1, true
		case '"', '\'':
			_, end, ok := quoted(line, to)
			if !ok {
				return 0, 0, false
			}
			to = end - 1
		case '#', '\n':
			return 0, 0, false
		}
	}
	return 0, 0, false
}
