package config

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// placed says on which lines the keys of a file are, from 1.
type placed struct {
	top  map[string]int
	wans []map[string]int // of each [[wan]]; the key "" is the line of the table's name
	// schedule is the same of each [[schedule]].
	schedule []map[string]int
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
		case e.Kind == unstable.ArrayTable && len(path) == 1 && path[0] == "schedule":
			in = map[string]int{"": line}
			out.schedule = append(out.schedule, in)
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

// A Setting is a key of a [[wan]] and its new value; "" removes the key.
type Setting struct{ Key, Value string }

// Set returns the file's text with new texts for keys of one [[wan]], the i-th.
// All else stays as it is, comments too. It returns an error if the text is laid
// out so unusually that the result would mean anything else.
func Set(name string, text []byte, i int, settings []Setting) ([]byte, error) {
	before, err := Parse(name, text)
	if err != nil {
		return nil, err
	}
	failed := func(why string) error {
		var want []string
		for _, s := range settings {
			want = append(want, fmt.Sprintf("%s = %q", s.Key, s.Value))
		}
		return fmt.Errorf("write the new rates to %s: %s; change it by hand: %s", name, why, strings.Join(want, ", "))
	}
	at := positions(text)
	if i < 0 || i >= len(at.wans) || i >= len(before.WANs) {
		return nil, failed("its tables are not written as [[wan]]")
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	keys := at.wans[i]
	var added [][]byte
	for _, s := range settings {
		n, there := keys[s.Key]
		switch {
		case there && s.Value == "":
			if _, _, ok := value(lines[n-1]); !ok {
				return nil, failed("the value of " + s.Key + " is not on one line")
			}
			lines[n-1] = nil
		case there:
			from, to, ok := value(lines[n-1])
			if !ok {
				return nil, failed("the value of " + s.Key + " is not a text on one line")
			}
			l := lines[n-1]
			lines[n-1] = fmt.Appendf(nil, "%s%q%s", l[:from], s.Value, l[to:])
		case s.Value != "":
			added = append(added, fmt.Appendf(nil, "%s = %q\n", s.Key, s.Value))
		}
	}
	after := keys["interface"]
	if len(added) > 0 {
		if after == 0 {
			return nil, failed("it has no line for interface")
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
	now, err := Parse(name, out)
	if err != nil {
		return nil, failed(err.Error())
	}
	if err := onlyChanged(before, now, i); err != nil {
		return nil, failed(err.Error())
	}
	return out, nil
}

// onlyChanged returns an error if two configurations differ in more than the rates
// of the i-th WAN.
func onlyChanged(before, now Config, i int) error {
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
		if i < len(ws) {
			w := &ws[i]
			w.Down, w.Up, w.ShapeDown, w.ShapeUp = 0, 0, before.WANs[i].ShapeDown, before.WANs[i].ShapeUp
		}
		c.WANs = ws
		return c
	}
	if !reflect.DeepEqual(same(before), same(now)) {
		return errors.New("its layout is unusual, and more than the rates would change")
	}
	return nil
}

// value finds the text in quotes that is a line's value.
func value(line []byte) (from, to int, ok bool) {
	eq := bytes.IndexByte(line, '=')
	if eq < 0 {
		return 0, 0, false
	}
	from = eq + 1
	for from < len(line) && (line[from] == ' ' || line[from] == '\t') {
		from++
	}
	if from >= len(line) || line[from] != '"' && line[from] != '\'' {
		return 0, 0, false
	}
	quote := line[from]
	for to = from + 1; to < len(line) && line[to] != quote; to++ {
		if line[to] == '\\' && quote == '"' {
			to++
		}
	}
	if to >= len(line) || to == from+1 && to+1 < len(line) && line[to+1] == quote {
		return 0, 0, false // it goes on in the next line
	}
	return from, to + 1, true
}
