package config

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/pelletier/go-toml/v2/unstable"
)

// MostEntries is how many entries SetSchedule takes.
const MostEntries = 64

// Table returns the entry as the file has it, with its WAN named.
func (e Entry) Table() EntryTable {
	t := EntryTable{Do: e.Do, WAN: e.WAN, Router: e.Router, Machine: e.Machine}
	if from := clockOf(e.From); e.Lasts() {
		t.From, t.To = from, clockOf(e.To)
	} else {
		t.At = from
	}
	if e.Days != everyDay() {
		for _, n := range weekFromMonday() {
			if e.Days[slices.Index(dayNames(), n)] {
				t.Days = append(t.Days, n)
			}
		}
	}
	if e.Down != 0 {
		t.Down = e.Down.String()
	}
	if e.Up != 0 {
		t.Up = e.Up.String()
	}
	return t
}

func clockOf(d time.Duration) string {
	return fmt.Sprintf("%02d:%02d", int(d.Hours()), int(d.Minutes())%60)
}

func everyDay() [7]bool { return [7]bool{true, true, true, true, true, true, true} }

func weekFromMonday() []string { return []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"} }

// SameEntries reports whether two lists have the same entries in the same order,
// wherever they stand in their files.
func SameEntries(a, b []Entry) bool {
	return slices.EqualFunc(a, b, func(x, y Entry) bool { return x.bare() == y.bare() })
}

// bare is the entry without its place in the file.
func (e Entry) bare() Entry {
	e.line = 0
	return e
}

// given returns which keys the table has, each without a line.
func (t EntryTable) given() map[string]int {
	at := map[string]int{"": 0}
	v := reflect.ValueOf(t)
	for i := range v.NumField() {
		if !v.Field(i).IsZero() {
			at[v.Type().Field(i).Tag.Get("toml")] = 0
		}
	}
	return at
}

// SetSchedule returns the file's text with another schedule. Entries that stay are
// left as they are written; those that change are written where the old ones were;
// new ones come last. All else stays as it is, comments too, but for those between the
// keys of an entry that goes. An error of an entry is an *Error without a file.
func SetSchedule(name string, text []byte, tables []EntryTable) ([]byte, error) {
	before, err := Parse(name, text)
	if err != nil {
		return nil, err
	}
	if len(tables) > MostEntries {
		return nil, fmt.Errorf("a schedule has at most %d entries", MostEntries)
	}
	var wanted []Entry
	for _, t := range tables {
		e, err := t.entry("", t.given(), before.WANs)
		if err != nil {
			return nil, err
		}
		wanted = append(wanted, e)
	}
	syntax := SyntaxOf(name, text)
	failed := func(why error) error {
		return fmt.Errorf("write the schedule to %s: %w; change it by hand, and reload the daemon", name, why)
	}
	places := tablesTOML
	if syntax == UCI {
		places = tablesUCI
	}
	at, err := places(name, text)
	if err == nil && len(at) != len(before.Schedule) {
		err = errors.New("its layout is unusual")
	}
	if err != nil {
		return nil, failed(err)
	}
	// Which of the old ones stay, and which of the wanted ones are new.
	fresh := slices.Clone(wanted)
	var gone []place
	for i, e := range before.Schedule {
		if k := slices.IndexFunc(fresh, func(x Entry) bool { return x.bare() == e.bare() }); k >= 0 {
			fresh = slices.Delete(fresh, k, k+1)
		} else {
			gone = append(gone, at[i])
		}
	}
	if len(gone) == 0 && len(fresh) == 0 {
		return text, nil
	}
	out, added, err := replaceTables(text, gone, fresh, syntax)
	if err != nil {
		return nil, failed(err)
	}
	if len(out) > 0 && out[len(out)-1] != '\n' {
		out = append(out, '\n')
	}
	if len(added) > 0 {
		out = append(append(out, '\n'), added...)
	}
	now, err := Parse(name, out)
	if err == nil {
		err = onlySchedule(before, now, wanted)
	}
	if err != nil {
		return nil, failed(err)
	}
	return out, nil
}

// A place is where a table stands: bytes of the text, from the table's name to the end
// of its last line.
type place struct{ from, to int }

// replaceTables puts new entries where others stood, and returns what has no place
// yet.
func replaceTables(text []byte, gone []place, fresh []Entry, syntax Syntax) (out, added []byte, err error) {
	write := func(e Entry) []byte {
		w := writer{to: syntax}
		w.head("schedule")
		t := e.Table()
		w.table(reflect.ValueOf(t), t.given())
		err = errors.Join(err, w.err)
		return w.b.Bytes()
	}
	at := 0
	for _, p := range gone {
		out = append(out, text[at:p.from]...)
		at = p.to
		if len(fresh) > 0 {
			out = append(out, write(fresh[0])...)
			fresh = fresh[1:]
			if p.to > 0 && text[p.to-1] != '\n' { // something else follows in the same line
				out = bytes.TrimSuffix(out, []byte("\n"))
			}
			continue
		}
		// The empty line before it goes too.
		if bytes.HasSuffix(out, []byte("\n\n")) {
			out = out[:len(out)-1]
		}
	}
	out = append(out, text[at:]...)
	for i, e := range fresh {
		if i > 0 {
			added = append(added, '\n')
		}
		added = append(added, write(e)...)
	}
	return out, added, err
}

// tablesTOML finds the [[schedule]] tables. Comments and empty lines behind a table's
// last value are not its own.
func tablesTOML(_ string, text []byte) ([]place, error) {
	schedule := map[int]bool{}
	var begins []int // lines on which a table begins
	var p unstable.Parser
	p.Reset(text)
	for p.NextExpression() {
		e := p.Expression()
		if e.Kind != unstable.ArrayTable && e.Kind != unstable.Table {
			continue
		}
		it := e.Key()
		for first := true; it.Next(); first = false {
			if !first {
				continue
			}
			line := p.Shape(it.Node().Raw).Start.Line
			begins = append(begins, line)
			schedule[line] = e.Kind == unstable.ArrayTable && string(it.Node().Data) == "schedule"
		}
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	start := make([]int, len(lines)+1) // byte at which a line begins
	for i, l := range lines {
		start[i+1] = start[i] + len(l)
	}
	var out []place
	for i, line := range begins {
		if !schedule[line] {
			continue
		}
		end := len(lines)
		if i+1 < len(begins) {
			end = begins[i+1] - 1
		}
		for end > line {
			l := bytes.TrimSpace(lines[end-1])
			if len(l) > 0 && l[0] != '#' {
				break
			}
			end--
		}
		out = append(out, place{start[line-1], start[end]})
	}
	return out, p.Error()
}

// tablesUCI finds the sections `config schedule`.
func tablesUCI(name string, text []byte) ([]place, error) {
	f, err := parseUCI(name, text)
	if err != nil {
		return nil, err
	}
	var out []place
	last := -1
	for _, s := range f.Statements {
		switch {
		case s.Section < 0 || f.Sections[s.Section].Type != "schedule":
		case s.Section == last:
			out[len(out)-1].to = s.To
		case s.Word == "config":
			out = append(out, place{s.From, s.To})
		}
		last = s.Section
	}
	for i, p := range out { // the whole line, if nothing else is on it
		before, after := bytes.LastIndexByte(text[:p.from], '\n')+1, bytes.IndexByte(text[p.to:], '\n')
		if len(bytes.TrimSpace(text[before:p.from])) == 0 {
			out[i].from = before
		}
		if after >= 0 && len(bytes.TrimSpace(text[p.to:p.to+after])) == 0 {
			out[i].to = p.to + after + 1
		}
	}
	return out, nil
}

// onlySchedule returns an error if two configurations differ in more than the
// schedule, or the second has another schedule than is wanted.
func onlySchedule(before, now Config, wanted []Entry) error {
	left := slices.Clone(wanted)
	for _, e := range now.Schedule {
		k := slices.IndexFunc(left, func(x Entry) bool { return x.bare() == e.bare() })
		if k < 0 {
			return errors.New("its layout is unusual, and the result would be another schedule")
		}
		left = slices.Delete(left, k, k+1)
	}
	if len(left) > 0 {
		return errors.New("its layout is unusual, and an entry would be missing")
	}
	before.Schedule, now.Schedule = nil, nil
	return onlyChanged(before, now, -1, nil)
}
