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

// wan is how a file says that the description of a WAN begins.
func (s Syntax) wan() string {
	if s == UCI {
		return "config wan"
	}
	return "[[wan]]"
}

// sets is how a file gives a key of a WAN a value.
func (s Syntax) sets(to Setting) string {
	switch {
	case s == TOML:
		return to.Key + " = " + to.written()
	case len(to.List) > 0:
		var lines []string
		for _, x := range to.List {
			lines = append(lines, "list "+to.Key+" "+uciQuote(x))
		}
		return strings.Join(lines, "\n\t")
	case plainly(to.Key):
		return "option " + to.Key + " " + uciQuote(uciBool(to.Value == "true"))
	}
	return "option " + to.Key + " " + uciQuote(to.Value)
}

// uciBool writes yes or no as uci's own scripts do.
func uciBool(yes bool) string {
	if yes {
		return "1"
	}
	return "0"
}

// A statement is one `config`, `option` or `list`, with its arguments.
type statement struct {
	words    []string
	from, to int // its bytes in the text, without a comment after it
	line     int // from 1
}

// statements splits a text as libuci does: a statement ends with its line, or with
// a semicolon. Within single quotes all is literal; elsewhere a backslash takes the
// next character as it is, or continues the line.
func statements(name string, text []byte) ([]statement, error) {
	var out []statement
	bad := func(at int, format string, args ...any) error {
		return &Error{File: name, Line: 1 + bytes.Count(text[:at], []byte("\n")), Err: fmt.Errorf(format, args...)}
	}
	if !utf8.Valid(text) {
		return nil, &Error{File: name, Err: errors.New("it is not text in UTF-8")}
	}
	space := func(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }
	var now statement
	end := func() {
		if len(now.words) > 0 {
			out = append(out, now)
		}
		now = statement{}
	}
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '\n' || c == ';':
			end()
			i++
			continue
		case space(c):
			i++
			continue
		case c == '#':
			for i < len(text) && text[i] != '\n' {
				i++
			}
			continue
		}
		if len(now.words) == 0 {
			now.from, now.line = i, 1+bytes.Count(text[:i], []byte("\n"))
		}
		var word []byte
		var quote byte
		begun := i
		for ; i < len(text); i++ {
			c := text[i]
			if quote == 0 && (space(c) || c == ';' || c == '#') {
				break
			}
			switch {
			case c < ' ' && c != '\t' && c != '\n' && c != '\r' || c == 0x7f:
				return nil, bad(i, "a control character (%#02x)", c)
			case quote == 0 && (c == '\'' || c == '"'):
				quote = c
			case quote != 0 && c == quote:
				quote = 0
			case c == '\\' && quote != '\'':
				i++
				if bytes.HasPrefix(text[i:], []byte("\r\n")) {
					i++
				} else if i < len(text) && text[i] != '\n' {
					word = append(word, text[i])
				}
			default:
				word = append(word, c)
			}
		}
		if quote != 0 {
			return nil, bad(begun, "the quote %c has no end", quote)
		}
		i = min(i, len(text))
		now.words, now.to = append(now.words, string(word)), i
	}
	end()
	return out, nil
}

// uciQuote writes a value as `uci export` does.
func uciQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// decodeUCI reads a file of /etc/config. A section's type is a table's name; the
// keys of the top level are in the section `daemon`. A value that is empty is not
// set, as in uci.
func decodeUCI(name string, text []byte) (file, placed, error) {
	var f file
	at := placed{top: map[string]int{}}
	list, err := statements(name, text)
	if err != nil {
		return f, at, err
	}
	var into reflect.Value // the section's table; invalid: none yet
	var lines map[string]int
	var kind string
	seen := map[string]bool{} // sections by name, and types that may be there once
	given := map[string]bool{}
	for _, s := range list {
		bad := func(key, format string, args ...any) error {
			return &Error{File: name, Line: s.line, Key: key, Err: fmt.Errorf(format, args...)}
		}
		switch word := s.words[0]; word {
		case "package", "p":
			continue
		case "config", "c":
			if len(s.words) < 2 || len(s.words) > 3 || s.words[1] == "" {
				return f, at, bad("", "a section begins with config, its type and perhaps its name, as in: config wan 'home'")
			}
			kind = s.words[1]
			if len(s.words) == 3 {
				section := s.words[2]
				if strings.Trim(section, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
					return f, at, bad("", "%q is no name of a section: it has letters, digits and _ only", section)
				}
				if seen["name "+section] {
					return f, at, bad("", "there is another section %q already", section)
				}
				seen["name "+section] = section != ""
			}
			given = map[string]bool{}
			table := field(reflect.ValueOf(&f).Elem(), kind)
			switch {
			case kind == uciTop && !seen[kind]:
				into, lines = reflect.ValueOf(&f).Elem(), at.top
			case table.IsValid() && table.Kind() == reflect.Slice && table.Type().Elem().Kind() == reflect.Struct:
				table.Set(reflect.Append(table, reflect.New(table.Type().Elem()).Elem()))
				into, lines = table.Index(table.Len()-1), map[string]int{"": s.line}
				at.put(kind, lines)
			case table.IsValid() && table.Kind() == reflect.Pointer && !seen[kind]:
				table.Set(reflect.New(table.Type().Elem()))
				into, lines = table.Elem(), map[string]int{"": s.line}
				at.put(kind, lines)
			case seen[kind]:
				return f, at, bad("", "there is another section of type %q already", kind)
			default:
				return f, at, bad("", "there is no section of type %q; the types are %s", kind, strings.Join(uciTypes(), ", "))
			}
			seen[kind] = true
		case "option", "list", "o", "l":
			isList := word[0] == 'l'
			switch {
			case !into.IsValid():
				return f, at, bad("", "%s stands before the first section", word)
			case len(s.words) < 2 || len(s.words) > 3:
				return f, at, bad("", "%s takes a name and a value; a value with spaces stands in quotes, as in: option down '50 Mbit/s'", word)
			}
			key, value := s.words[1], strings.Join(s.words[2:], "")
			to := field(into, key)
			if !to.IsValid() || kind == uciTop && !slices.Contains(topOptions(), key) {
				return f, at, bad("", "there is no option %q here; the options of %s are %s", key, kind, strings.Join(options(into.Type(), kind), ", "))
			}
			if given[key] && !isList {
				return f, at, bad(key, "is there twice in this section")
			}
			if err := setUCI(to, value, isList); err != nil {
				return f, at, bad(key, "%w", err)
			}
			given[key] = true
			if _, there := lines[key]; !there && value != "" {
				lines[key] = s.line
			}
		default:
			return f, at, bad("", "%q is neither config, option nor list", word)
		}
	}
	// LuCI keeps a section whose options are all empty: then the page is off.
	if _, given := at.ui["listen"]; !given {
		f.UI, at.ui = nil, nil
	}
	return f, at, nil
}

// put notes the lines of the next table of a kind.
func (p *placed) put(kind string, lines map[string]int) {
	switch kind {
	case "wan":
		p.wans = append(p.wans, lines)
	case "schedule":
		p.schedule = append(p.schedule, lines)
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
func setUCI(to reflect.Value, value string, isList bool) error {
	switch {
	case to.Kind() == reflect.Slice && to.Type().Elem().Kind() == reflect.String:
		if !isList {
			return errors.New("takes a list: write a line that begins with list for each value")
		}
		if value != "" {
			to.Set(reflect.Append(to, reflect.ValueOf(value)))
		}
		return nil
	case isList:
		return errors.New("takes one value: write option instead of list")
	case value == "":
		return nil
	}
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
	f, at, err := decode(name, text)
	if err != nil {
		return nil, err
	}
	w := writer{to: to}
	v := reflect.ValueOf(f)
	if len(at.top) > 0 {
		if to == UCI {
			w.line("config %s 'main'", uciTop)
		}
		w.table(v, at.top)
	}
	for i := range v.NumField() {
		key, tables := v.Type().Field(i).Tag.Get("toml"), v.Field(i)
		switch {
		case !isTable(tables.Type()) || tables.IsNil():
		case tables.Kind() == reflect.Pointer:
			w.head(key, "[%s]")
			w.table(tables.Elem(), at.of(key, 0))
		default:
			for k := range tables.Len() {
				w.head(key, "[[%s]]")
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
func (w *writer) head(key, toml string) {
	if w.b.Len() > 0 {
		w.line("")
	}
	if w.to == UCI {
		toml = "config %s"
	}
	w.line(toml, key)
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
func (w *writer) one(word, key, uci, toml string) {
	switch {
	case w.to == TOML:
		w.line("%s = %s", key, toml)
	case strings.ContainsFunc(uci, func(c rune) bool { return c < ' ' && c != '\t' && c != '\n' && c != '\r' || c == 0x7f }):
		w.err = errors.Join(w.err, fmt.Errorf("%s has a control character, which a file in /etc/config can't have", key))
	case uci != "": // an empty one is the same as none
		w.line("\t%s %s %s", word, key, uciQuote(uci))
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
	list, err := statements(name, text)
	if err != nil {
		return nil, err
	}
	wan := -1
	var begins statement              // where new options go: after the interface
	there := map[string][]statement{} // of a list one for each value
	for _, s := range list {
		if s.words[0][0] == 'c' {
			if len(s.words) > 1 && s.words[1] == "wan" {
				wan++
			} else if wan == i {
				break
			}
		}
		if wan == i && len(s.words) > 1 && s.words[0][0] != 'c' {
			there[s.words[1]] = append(there[s.words[1]], s)
		}
		if wan == i && s.words[0][0] == 'c' || wan == i && len(s.words) > 1 && s.words[1] == "interface" {
			begins = s
		}
		if wan > i {
			break
		}
	}
	if begins.line == 0 {
		return nil, errors.New("it has no such section")
	}
	type edit struct {
		from, to int
		text     string
	}
	var edits []edit
	remove := func(old statement) {
		e := edit{old.from, old.to, ""}
		before, after := bytes.LastIndexByte(text[:old.from], '\n')+1, bytes.IndexByte(text[old.to:], '\n')
		if after >= 0 && len(bytes.TrimSpace(text[before:old.from])) == 0 && len(bytes.TrimSpace(text[old.to:old.to+after])) == 0 {
			e.from, e.to = before, old.to+after+1 // nothing else is on its line
		}
		edits = append(edits, e)
	}
	var added strings.Builder
	for _, s := range settings {
		old := there[s.Key]
		if len(old) == 0 {
			if !s.removes() {
				added.WriteString("\n\t" + UCI.sets(s))
			}
			continue
		}
		if !s.removes() {
			edits = append(edits, edit{old[0].from, old[0].to, UCI.sets(s)})
			old = old[1:]
		}
		for _, o := range old {
			remove(o)
		}
	}
	if added.Len() > 0 {
		end := begins.to
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
