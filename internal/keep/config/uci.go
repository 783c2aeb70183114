package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"unbloat/internal/cure/lang/uci"
)

// A Syntax is a way to write the configuration. All say the same.
type Syntax string

// Syntaxes of the configuration.
const (
	TOML Syntax = "toml"
	UCI  Syntax = "uci" // OpenWrt's /etc/config
)

// uciTop is the type of the section that has the keys of TOML's top level.
const uciTop = "daemon"

// SyntaxOf tells how a configuration is written, by the name of its file and by
// its text.
func SyntaxOf(name string, text []byte) Syntax {
	if path.Base(path.Dir(name)) == "config" && path.Ext(name) == "" {
		return UCI
	}
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		word, rest, more := bytes.Cut(bytes.ReplaceAll(line, []byte("\t"), []byte(" ")), []byte(" "))
		if more && (string(word) == "config" || string(word) == "package") && !bytes.HasPrefix(bytes.TrimSpace(rest), []byte("=")) {
			return UCI
		}
		break
	}
	return TOML
}

// Table is how a file says that a table begins: of a kind that may be there several
// times, such as wan, or once, such as ui.
func (s Syntax) Table(kind string) string {
	t := field(reflect.ValueOf(file{}), kind)
	switch {
	case s == UCI && usualName(kind) != "":
		return "config " + kind + " " + uci.Quote(usualName(kind))
	case s == UCI:
		return "config " + kind
	case t.Kind() == reflect.Slice:
		return "[[" + kind + "]]"
	}
	return "[" + kind + "]"
}

// usualName is the name of a section of which there is one, as OpenWrt's package and
// LuCI have it; "" for others.
func usualName(kind string) string {
	return map[string]string{uciTop: "main", "ui": "page"}[kind]
}

// Sets is how a file gives a key a value.
func (s Syntax) Sets(to Setting) string {
	switch {
	case s != UCI:
		return to.Key + " = " + to.written()
	case len(to.List) > 0:
		var lines []string
		for _, x := range to.List {
			lines = append(lines, "list "+to.Key+" "+uci.Quote(x))
		}
		return strings.Join(lines, "\n\t")
	case plainly(to.Key):
		return "option " + to.Key + " " + uci.Quote(uciBool(to.Value == "true"))
	}
	return "option " + to.Key + " " + uci.Quote(to.Value)
}

// uciBool writes yes or no as uci's own scripts do.
func uciBool(yes bool) string {
	if yes {
		return "1"
	}
	return "0"
}

// parseUCI reads a file of /etc/config as libuci does.
func parseUCI(name string, text []byte) (uci.File, error) {
	f, err := uci.Parse(text)
	var bad *uci.Error
	if errors.As(err, &bad) {
		err = &Error{File: name, Line: bad.Line, Err: errors.New(bad.Why)}
	}
	return f, err
}

// decodeUCI reads a file of /etc/config. A section's type is a table's name; the
// keys of the top level are in the section `daemon`. Of several sections of a type
// that is there once, such as `ui`, the last counts, which is the one that LuCI edits.
func decodeUCI(name string, text []byte) (_ file, _ placed, unknown []error, _ error) {
	var f file
	at := placed{top: map[string]int{}}
	read, err := parseUCI(name, text)
	if err != nil {
		return f, at, nil, err
	}
	last := map[string]int{}
	for i, s := range read.Sections {
		last[s.Type] = i
	}
	for i, s := range read.Sections {
		into, lines := reflect.ValueOf(&f).Elem(), at.top
		table := field(into, s.Type)
		switch {
		case s.Type == uciTop:
		case table.IsValid() && isTable(table.Type()):
			lines = map[string]int{"": s.Line}
			if table.Kind() == reflect.Slice {
				table.Set(reflect.Append(table, reflect.New(table.Type().Elem()).Elem()))
				into = table.Index(table.Len() - 1)
			} else {
				table.Set(reflect.New(table.Type().Elem()))
				into = table.Elem()
			}
			at.put(s.Type, lines)
		default:
			return f, at, nil, &Error{File: name, Line: s.Line, Err: fmt.Errorf("there is no section of type %q; the types are %s", s.Type, strings.Join(uciTypes(), ", "))}
		}
		if s.Type == uciTop && last[s.Type] != i {
			continue
		}
		for _, o := range s.Options {
			bad := func(key, format string, args ...any) error {
				return &Error{File: name, Line: o.Line, Key: key, Err: fmt.Errorf(format, args...)}
			}
			to := field(into, o.Name)
			if !to.IsValid() || s.Type == uciTop && !slices.Contains(topOptions(), o.Name) {
				unknown = append(unknown, bad("", "%w", &UnknownKeyError{Key: o.Name, Known: options(into.Type(), s.Type), section: s.Type}))
				continue
			}
			if err := setUCI(to, o); err != nil {
				return f, at, nil, bad(o.Name, "%w", err)
			}
			lines[o.Name] = o.Line
		}
	}
	// LuCI keeps a section whose options are all empty: then the page is off.
	if _, given := at.ui["listen"]; !given {
		f.UI, at.ui = nil, nil
	}
	return f, at, unknown, nil
}

// put notes the lines of the next table of a kind.
func (p *placed) put(kind string, lines map[string]int) {
	switch kind {
	case "wan":
		p.wans = append(p.wans, lines)
	case "schedule":
		p.schedule = append(p.schedule, lines)
	case "notify":
		p.notify = append(p.notify, lines)
	case "ui":
		p.ui = lines
	}
}

// of returns the lines of the i-th table of a kind.
func (p placed) of(kind string, i int) map[string]int {
	switch kind {
	case "wan":
		return p.wans[i]
	case "schedule":
		return p.schedule[i]
	case "notify":
		return p.notify[i]
	case "ui":
		return p.ui
	}
	return nil
}

// field returns the field of a table that has the key; invalid: there is none.
func field(table reflect.Value, key string) reflect.Value {
	for i := range table.NumField() {
		if table.Type().Field(i).Tag.Get("toml") == key {
			return table.Field(i)
		}
	}
	return reflect.Value{}
}

// setUCI gives a key its value.
func setUCI(to reflect.Value, o uci.Option) error {
	for _, v := range o.Values {
		if !utf8.ValidString(v) {
			return errors.New("it is not text in UTF-8")
		}
		if i := strings.IndexFunc(v, isControl); i >= 0 {
			return fmt.Errorf("a control character (%#02x)", v[i])
		}
	}
	switch {
	case to.Kind() == reflect.Slice && to.Type().Elem().Kind() == reflect.String:
		if !o.List {
			return errors.New("takes a list: write a line that begins with list for each value")
		}
		to.Set(reflect.ValueOf(slices.DeleteFunc(slices.Clone(o.Values), func(v string) bool { return v == "" })))
		return nil
	case o.List:
		return errors.New("takes one value: write option instead of list")
	}
	value := o.Values[0]
	switch to.Kind() {
	case reflect.Bool:
		switch value {
		case "1", "on", "true", "yes", "enabled":
			to.SetBool(true)
		case "0", "off", "false", "no", "disabled":
			to.SetBool(false)
		default:
			return fmt.Errorf("%q: must be 1 or 0", value)
		}
	case reflect.Int:
		n, err := strconv.Atoi(value)
		if err != nil {
			return fmt.Errorf("%q: must be a whole number", value)
		}
		to.SetInt(int64(n))
	default:
		to.SetString(value)
	}
	return nil
}

// isControl reports whether a character has no place in a text.
func isControl(c rune) bool { return c < ' ' && c != '\t' && c != '\n' && c != '\r' || c == 0x7f }

// topOptions are the options of the section `daemon`.
func topOptions() []string { return options(reflect.TypeFor[file](), uciTop) }

// options are the keys of a table that one section can hold.
func options(table reflect.Type, kind string) (out []string) {
	for i := range table.NumField() {
		f := table.Field(i)
		scalar := !isTable(f.Type) && f.Type.Kind() != reflect.Interface
		if kind != uciTop || scalar {
			out = append(out, f.Tag.Get("toml"))
		}
	}
	return out
}

// isTable reports whether a field is a table, or a list of them.
func isTable(t reflect.Type) bool {
	return (t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer) && t.Elem().Kind() == reflect.Struct
}

// uciTypes are the types of sections.
func uciTypes() []string {
	out := []string{uciTop}
	t := reflect.TypeFor[file]()
	for i := range t.NumField() {
		if f := t.Field(i); isTable(f.Type) {
			out = append(out, f.Tag.Get("toml"))
		}
	}
	return out
}

// Convert writes a configuration in another syntax. Comments are not carried over.
// It returns an error if the configuration is not right, or has a text that the
// other syntax can't say.
func Convert(name string, text []byte, to Syntax) ([]byte, error) {
	if _, err := Parse(name, text); err != nil {
		return nil, err
	}
	f, at, _, err := decode(name, text)
	if err != nil {
		return nil, err
	}
	w := writer{to: to}
	v := reflect.ValueOf(f)
	if len(at.top) > 0 {
		if to == UCI {
			w.line("%s", to.Table(uciTop))
		}
		w.table(v, at.top)
	}
	for i := range v.NumField() {
		key, tables := v.Type().Field(i).Tag.Get("toml"), v.Field(i)
		switch {
		case !isTable(tables.Type()) || tables.IsNil():
		case tables.Kind() == reflect.Pointer:
			w.head(key)
			w.table(tables.Elem(), at.of(key, 0))
		default:
			for k := range tables.Len() {
				w.head(key)
				w.table(tables.Index(k), at.of(key, k))
			}
		}
	}
	return w.b.Bytes(), w.err
}

// A writer writes tables in a syntax.
type writer struct {
	to  Syntax
	b   bytes.Buffer
	err error // the first
}

func (w *writer) line(format string, args ...any) { fmt.Fprintf(&w.b, format+"\n", args...) }

// head begins a table, after an empty line.
func (w *writer) head(kind string) {
	if w.b.Len() > 0 {
		w.line("")
	}
	w.line("%s", w.to.Table(kind))
}

// table writes the keys of a table that are given.
func (w *writer) table(v reflect.Value, given map[string]int) {
	for i := range v.NumField() {
		key, value := v.Type().Field(i).Tag.Get("toml"), v.Field(i)
		if _, is := given[key]; !is {
			continue
		}
		switch value.Kind() {
		case reflect.String:
			w.one("option", key, value.String(), w.quoted(key, value.String()))
		case reflect.Bool:
			w.one("option", key, uciBool(value.Bool()), strconv.FormatBool(value.Bool()))
		case reflect.Int:
			text := strconv.FormatInt(value.Int(), 10)
			w.one("option", key, text, text)
		case reflect.Slice:
			if value.Type().Elem().Kind() != reflect.String {
				continue // tables, which follow
			}
			var texts []string
			for k := range value.Len() {
				s := value.Index(k).String()
				texts = append(texts, w.quoted(key, s))
				if w.to == UCI {
					w.one("list", key, s, "")
				}
			}
			if w.to == TOML {
				w.line("%s = [%s]", key, strings.Join(texts, ", "))
			}
		}
	}
}

// one writes one value.
func (w *writer) one(word, key, plain, toml string) {
	switch {
	case w.to == TOML:
		w.line("%s = %s", key, toml)
	case strings.ContainsFunc(plain, isControl):
		w.err = errors.Join(w.err, fmt.Errorf("%s has a control character, which a file in /etc/config can't have", key))
	case plain != "": // an empty one is the same as none
		w.line("\t%s %s %s", word, key, uci.Quote(plain))
	}
}

// quoted writes a text as TOML's basic string, whose escapes JSON has too.
func (w *writer) quoted(key, s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		w.err = errors.Join(w.err, fmt.Errorf("%s: %w", key, err))
	}
	return strings.ReplaceAll(string(b), "\x7f", `\u007f`)
}

// editUCI writes settings into the statements of the i-th `config wan`.
func editUCI(name string, text []byte, i int, settings []Setting) ([]byte, error) {
	f, err := parseUCI(name, text)
	if err != nil {
		return nil, err
	}
	section := -1
	for k, s := range f.Sections {
		if s.Type == "wan" {
			if i == 0 {
				section = k
			}
			i--
		}
	}
	begins := -1                // the statement after which new options go: that of the interface
	there := map[string][]int{} // statements of each key; of a list one for each value
	for k, s := range f.Statements {
		switch {
		case s.Section != section || section < 0:
		case s.Word == "config":
			if begins < 0 {
				begins = k
			}
		default:
			there[s.Args[0]] = append(there[s.Args[0]], k)
			if s.Args[0] == "interface" {
				begins = k
			}
		}
	}
	if begins < 0 {
		return nil, errors.New("it has no such section")
	}
	type edit struct {
		from, to int
		text     string
	}
	var edits []edit
	var added strings.Builder
	for _, s := range settings {
		old := there[s.Key]
		switch {
		case s.removes():
		case len(old) == 0:
			added.WriteString("\n\t" + UCI.Sets(s))
		default:
			at := f.Statements[old[0]]
			edits = append(edits, edit{at.From, at.To, UCI.Sets(s)})
			old = old[1:]
		}
		for _, k := range old {
			from, to := f.Span(text, k, k)
			edits = append(edits, edit{from, to, ""})
		}
	}
	if added.Len() > 0 {
		end := f.Statements[begins].To
		if n := bytes.IndexByte(text[end:], '\n'); n >= 0 {
			end += n
		} else {
			end = len(text)
		}
		edits = append(edits, edit{end, end, added.String()})
	}
	slices.SortStableFunc(edits, func(a, b edit) int { return b.from - a.from })
	out := bytes.Clone(text)
	for _, e := range edits {
		out = slices.Concat(out[:e.from], []byte(e.text), out[e.to:])
	}
	return out, nil
}
