// Package uci reads and edits the files of OpenWrt's /etc/config. It takes what
// libuci takes, means by it what libuci means, and refuses the rest. Source:
// file.c and list.c of libuci; testdata has answers of its uci(1).
package uci

import (
	"fmt"
	"slices"
	"strings"
)

// A File is what a file of /etc/config says.
type File struct {
	Sections   []Section
	Statements []Statement // as they are written, for edits
}

// A Section is one of a package. Statements `config` of the same name are one
// section.
type Section struct {
	Type    string
	Name    string // "": anonymous
	Options []Option
	Line    int // from 1
}

// An Option is one of a section, or a list.
type Option struct {
	Name   string
	Values []string // of an option exactly one, which is not empty
	List   bool
	Line   int // of the last statement that gave it a value; from 1
}

// Get returns the value of an option, or those of a list with blanks between, as
// uci(1) does; "" if there is none.
func (s Section) Get(name string) string {
	i := slices.IndexFunc(s.Options, func(o Option) bool { return o.Name == name })
	if i < 0 {
		return ""
	}
	return strings.Join(s.Options[i].Values, " ")
}

// Ref returns how uci(1) calls a section: by its name or, if it has none, by the
// number of its type.
func (f File) Ref(i int) string {
	if f.Sections[i].Name != "" {
		return f.Sections[i].Name
	}
	n := 0
	for _, s := range f.Sections[:i] {
		if s.Type == f.Sections[i].Type {
			n++
		}
	}
	return fmt.Sprintf("@%s[%d]", f.Sections[i].Type, n)
}

// A Statement is one as it is written.
type Statement struct {
	Word     string   // config, option, list or package
	Args     []string // without quotes
	Section  int      // the index of its section; −1 of a package
	From, To int      // its bytes in the text, without a comment after it
	Line     int      // from 1
}

// An Error says why libuci refuses a file.
type Error struct {
	Line int // from 1
	Why  string
}

func (e *Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Why) }

// Quote writes a value as `uci export` does.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// Parse reads a file. An error is an *Error.
func Parse(text []byte) (File, error) {
	p := parser{text: text}
	err := p.file()
	return p.out, err
}

// Span returns the bytes of the text that go with the statements from first to last:
// their lines, if nothing else stands on them.
func (f File) Span(text []byte, first, last int) (from, to int) {
	from, to = f.Statements[first].From, f.Statements[last].To
	line, end := lineStart(text, from), lineEnd(text, to)
	switch {
	case first > 0 && f.Statements[first-1].To > line:
		return f.Statements[first-1].To, to
	case last+1 < len(f.Statements) && f.Statements[last+1].From < end:
		return from, f.Statements[last+1].From
	case strings.TrimSpace(string(text[to:end])) == "":
		return line, end
	}
	return from, to
}

// Cut returns the text without the section of a name, and the lines of that section.
func Cut(text []byte, name string) (rest, section []byte, err error) {
	f, err := Parse(text)
	if err != nil {
		return nil, nil, err
	}
	of := func(i int) bool {
		return i >= 0 && i < len(f.Statements) && f.Statements[i].Section >= 0 && f.Sections[f.Statements[i].Section].Name == name
	}
	at := 0
	for i := range f.Statements {
		if !of(i) || of(i-1) {
			continue
		}
		last := i
		for of(last + 1) {
			last++
		}
		from, to := f.Span(text, i, last)
		rest, section, at = append(rest, text[at:from]...), append(section, text[from:to]...), to
	}
	return append(rest, text[at:]...), section, nil
}

// lineStart and lineEnd return where the line of a byte begins, and the next one.
func lineStart(text []byte, at int) int {
	for at > 0 && text[at-1] != '\n' {
		at--
	}
	return at
}

func lineEnd(text []byte, at int) int {
	for at < len(text) && text[at] != '\n' {
		at++
	}
	return min(at+1, len(text))
}

// A parser goes through a text as libuci does: line by line, where a quote or a
// backslash at the end of a line takes the next one in.
type parser struct {
	text []byte
	at   int // the next byte
	end  int // of what was taken in, so that a comment hides the rest of its line
	next int // where the next line begins
	out  File
	in   int // the section of options; −1: none yet
}

// line takes in the next line; false: there is none.
func (p *parser) line() bool {
	p.at = p.next
	p.next = lineEnd(p.text, p.next)
	p.end = p.next
	return p.at < p.end
}

// now returns the next byte; 0 at the end of what was taken in.
func (p *parser) now() byte {
	if p.at >= p.end {
		return 0
	}
	return p.text[p.at]
}

func blank(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

func (p *parser) skip() {
	for blank(p.now()) {
		p.at++
	}
}

func (p *parser) fail(at int, format string, args ...any) error {
	line := 1
	for _, c := range p.text[:min(at, len(p.text))] {
		if c == '\n' {
			line++
		}
	}
	return &Error{Line: line, Why: fmt.Sprintf(format, args...)}
}

func (p *parser) file() error {
	p.in = -1
	if at := slices.Index(p.text, 0); at >= 0 {
		return p.fail(at, "a zero byte")
	}
	line, to := 1, 0 // of the last statement
	for p.line() {
		for p.skip(); ; {
			word, from, err := p.command()
			if err != nil {
				return err
			}
			if word == "" {
				break
			}
			s := Statement{Word: word, From: from}
			if err := p.statement(&s); err != nil {
				return err
			}
			for _, c := range p.text[to:from] {
				if c == '\n' {
					line++
				}
			}
			s.Line, to = line, from
			if err := p.means(&s); err != nil {
				return err
			}
			p.out.Statements = append(p.out.Statements, s)
		}
	}
	return nil
}

// command reads the word that begins a statement; "": the line has no more.
func (p *parser) command() (word string, from int, err error) {
	for p.now() == ' ' || p.now() == '\t' {
		p.at++
	}
	from = p.at
	for c := p.now(); c != 0 && c != ' ' && c != '\t'; c = p.now() {
		p.at++
	}
	switch word = string(p.text[from:p.at]); {
	case word == "" || word[0] == '#':
		return "", from, nil
	case strings.TrimSpace(word) == "":
		return "", from, p.fail(from-1, "nothing stands behind a semicolon")
	case p.at >= p.end:
		return "", from, p.fail(from, "%q stands alone, or is neither config, option nor list", strings.TrimSpace(word))
	}
	p.at++
	for _, w := range []string{"package", "config", "option", "list"} {
		if word == w || word == w[:1] {
			return w, from, nil
		}
	}
	return "", from, p.fail(from, "%q is neither config, option nor list", word)
}

// statement reads the arguments of a statement.
func (p *parser) statement(s *Statement) error {
	most := map[string]int{"package": 1, "config": 2, "option": 2, "list": 2}[s.Word]
	s.To = p.at
	for range most + 1 {
		arg, err := p.arg(s)
		if err != nil {
			return err
		}
		s.Args = append(s.Args, arg)
	}
	switch {
	case s.Args[most] != "" && s.Word == "config":
		return p.fail(s.From, "a section begins with config, its type and perhaps its name, as in: config wan 'home'")
	case s.Args[most] != "":
		return p.fail(s.From, "%s takes a name and a value; a value with spaces stands in quotes, as in: option down '50 Mbit/s'", s.Word)
	case s.Args[0] == "":
		return p.fail(s.From, "%s lacks what comes after it", s.Word)
	}
	s.Args = s.Args[:most]
	return nil
}

// arg reads an argument; "": there is none, or it is empty.
func (p *parser) arg(s *Statement) (string, error) {
	p.skip()
	if p.now() == ';' {
		p.at++
		return "", nil
	}
	var word []byte
	begun, bare := p.at, true // bare: without quotes and backslashes
	for {
		switch c := p.now(); {
		case c == '\'' || c == '"':
			bare = false
			if err := p.quoted(c, &word); err != nil {
				return "", err
			}
		case c == '#':
			p.end = p.at
		case c == '\\':
			bare = false
			if p.at++; !p.goesOn() {
				word = append(word, p.now())
				p.at++
			}
		case c != 0 && c != ';':
			word = append(word, c)
			p.at++
		}
		c := p.now()
		if c != 0 && c != ';' && !blank(c) {
			continue
		}
		if p.at > begun {
			s.To = p.at
		}
		switch {
		case c == ';' && bare: // libuci forgets the rest of the line
			p.end = p.at
		case c != 0 && c != ';':
			p.at++
		}
		return string(word), nil
	}
}

// goesOn takes in the next line, if a backslash was the last in its line.
func (p *parser) goesOn() bool {
	rest := string(p.text[p.at:p.end])
	if rest != "" && rest != "\n" && rest != "\r\n" {
		return false
	}
	p.line()
	return true
}

// quoted reads to the end of a quote. Within single quotes all is literal.
func (p *parser) quoted(quote byte, word *[]byte) error {
	begun := p.at
	p.at++
	for {
		switch c := p.now(); {
		case c == 0:
			if !p.line() {
				return p.fail(begun, "the quote %c has no end", quote)
			}
		case c == quote:
			p.at++
			return nil
		case c == '\\' && quote == '"':
			if p.at++; !p.goesOn() {
				*word = append(*word, p.now())
				p.at++
			}
		default:
			*word = append(*word, c)
			p.at++
		}
	}
}

// means does what a statement says.
func (p *parser) means(s *Statement) error {
	s.Section = -1
	switch s.Word {
	case "package":
		if !isName(s.Args[0], "-") {
			return p.fail(s.From, "%q is no name of a package", s.Args[0])
		}
		return nil // a file is one package, whatever it calls itself
	case "config":
		if err := p.config(s.Args[0], s.Args[1], s); err != nil {
			return err
		}
	default:
		switch {
		case p.in < 0:
			return p.fail(s.From, "%s stands before the first section", s.Word)
		case !isName(s.Args[0], ""):
			return p.fail(s.From, "%q is no name of an option: it has letters, digits and _ only", s.Args[0])
		}
		p.out.Sections[p.in].take(*s)
	}
	s.Section = p.in
	return nil
}

// config begins a section, or goes on with one of that name.
func (p *parser) config(kind, name string, s *Statement) error {
	for _, c := range []byte(kind) {
		if c < 33 || c > 126 {
			return p.fail(s.From, "%q is no type of a section", kind)
		}
	}
	if name != "" {
		if !isName(name, "") {
			return p.fail(s.From, "%q is no name of a section: it has letters, digits and _ only", name)
		}
		if i := slices.IndexFunc(p.out.Sections, func(x Section) bool { return x.Name == name }); i >= 0 {
			if other := p.out.Sections[i].Type; other != kind {
				return p.fail(s.From, "there is a section %q of type %q already", name, other)
			}
			p.in = i
			return nil
		}
	}
	p.in = len(p.out.Sections)
	p.out.Sections = append(p.out.Sections, Section{Type: kind, Name: name, Line: s.Line})
	return nil
}

// take gives an option its value. The last value holds; a list takes one more; an
// option without a value is none.
func (x *Section) take(s Statement) {
	name, value := s.Args[0], s.Args[1]
	if s.Word == "option" && value == "" {
		return
	}
	i := slices.IndexFunc(x.Options, func(o Option) bool { return o.Name == name })
	if i < 0 {
		i = len(x.Options)
		x.Options = append(x.Options, Option{Name: name})
	}
	o := &x.Options[i]
	if s.Word == "option" {
		o.Values = nil
	}
	o.List, o.Values, o.Line = s.Word == "list", append(o.Values, value), s.Line
}

// isName reports whether a word is a name to libuci, which may have more besides
// letters, digits and _.
func isName(s, more string) bool {
	for _, c := range []byte(s) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || strings.IndexByte(more, c) >= 0) {
			return false
		}
	}
	return s != ""
}
