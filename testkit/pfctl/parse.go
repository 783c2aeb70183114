package pfctl

import (
	"fmt"
	"strings"
)

// gaveUp is the panic that ends a statement, stopped the one that ends the
// program.
type (
	gaveUp  struct{}
	stopped struct{}
)

// A parser reads pf.conf(5) statement by statement, and continues after one
// with an error. Like yacc(1)'s parser in pfctl(8), it reports no syntax error
// until three tokens in a row were right.
type parser struct {
	lexer
	run    *run
	ahead  *token
	silent int
	errors int

	options
	anchor int // nesting depth of anchors
	rules  *[]rule
}

// options are the settings of pf.conf's `set` that affect what is read after
// them.
type options struct {
	blockReturn bool
	ifBound     bool
	anyOrder    bool
	section     int
	defaults    []stateOption
}

func (p *parser) peek() token {
	if p.ahead == nil {
		t := p.lexer.next()
		p.ahead = &t
	}
	return *p.ahead
}

// take returns the next token and moves on.
func (p *parser) take() token {
	t := p.peek()
	p.ahead = nil
	if p.silent > 0 {
		p.silent--
	}
	return t
}

// is reports whether the next token is one of these keywords.
func (p *parser) is(words ...string) bool {
	t := p.peek()
	for _, w := range words {
		if t.kind == word && t.text == w {
			return true
		}
	}
	return false
}

func (p *parser) accept(w string) bool {
	if p.is(w) {
		p.take()
		return true
	}
	return false
}

func (p *parser) expect(w string) {
	if !p.accept(w) {
		p.syntax()
	}
}

// name reads a word that is no keyword, or a quoted string.
func (p *parser) name() string {
	if p.peek().kind != str {
		p.syntax()
	}
	return p.take().text
}

func (p *parser) number() int64 {
	if p.peek().kind != number {
		p.syntax()
	}
	return p.take().number
}

// text reads one or more words: a tag, or the value of a macro.
func (p *parser) text() string {
	s := p.name()
	for p.peek().kind == str {
		s += " " + p.take().text
	}
	return s
}

// syntax reports a syntax error at the next token and ends the statement.
func (p *parser) syntax() {
	p.peek()
	if p.silent == 0 {
		p.errorf("syntax error")
	}
	panic(gaveUp{})
}

// lineEnd requires the end of the line. pfctl(8) reads that far before it
// checks the values of some statements.
func (p *parser) lineEnd() {
	if !p.is("\n") {
		p.syntax()
	}
}

// errorf reports an error.
func (p *parser) errorf(format string, args ...any) {
	p.errors++
	fmt.Fprintf(&p.run.stderr, "%s: %s\n", p.where(), fmt.Sprintf(format, args...))
}

// fail reports an error and ends the statement.
func (p *parser) fail(format string, args ...any) {
	p.errorf(format, args...)
	panic(gaveUp{})
}

// unknown refuses what pfctl(8) may accept but this stand-in does not know.
func (p *parser) unknown(what string) {
	p.fail("the stand-in does not know %s", what)
}

// parse reads all statements.
func (p *parser) parse() {
	for p.peek().kind != end {
		if !p.line() {
			p.errors++
			return
		}
	}
}

// line reads one statement with its line end. It returns false at the end of
// the text.
func (p *parser) line() (more bool) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case gaveUp:
			more = p.resume()
		default:
			panic(e)
		}
	}()
	p.statement()
	p.expect("\n")
	return true
}

// resume skips to the next line after an error.
func (p *parser) resume() bool {
	p.silent = 3
	for !p.is("\n") {
		if p.peek().kind == end {
			return false
		}
		p.ahead = nil
	}
	p.take()
	p.errors++
	return true
}

func (p *parser) statement() {
	t := p.peek()
	if t.kind == str {
		p.assign()
		return
	}
	if t.kind != word {
		p.syntax()
	}
	switch t.text {
	case "\n":
	case "include":
		p.included()
	case "set":
		p.option()
	case "table":
		p.table()
	case "anchor":
		p.anchorRule()
	case "load":
		p.load()
	case "antispoof":
		p.antispoof()
	case "queue":
		if p.old {
			p.altqQueue()
		} else {
			p.queue()
		}
	case "altq":
		p.altqInterface()
	case "pass", "block", "match":
		p.filterRule()
	case "scrub", "nat", "rdr", "binat", "no", "nat-anchor", "rdr-anchor", "binat-anchor":
		if !p.old || !p.is("scrub", "nat", "rdr", "binat", "no", "nat-anchor", "rdr-anchor", "binat-anchor") {
			p.syntax()
		}
		p.translation()
	default:
		p.syntax()
	}
}

func (p *parser) assign() {
	name := p.take().text
	p.expect("=")
	var words []string
	for k := p.peek().kind; k == str || k == number; k = p.peek().kind {
		words = append(words, p.take().text)
	}
	if len(words) == 0 {
		p.syntax()
	}
	value := strings.Join(words, " ")
	p.run.say("%s = \"%s\"\n", name, value)
	if !p.old && len(name) > 1 && strings.ContainsAny(name[1:], " \t\n\v\f\r") {
		p.fail("macro name cannot contain whitespace")
	}
	p.macros[name] = value
}

func (p *parser) included() {
	p.take()
	name := p.name()
	text, ok := p.run.File(name)
	if !ok {
		if p.old {
			p.run.warn("%s: No such file or directory", name)
		} else {
			p.run.warn("pushfile: %s: No such file or directory", name)
		}
		p.fail("failed to include file %s", name)
	}
	if len(p.files) > 16 {
		p.unknown("so many nested files")
	}
	p.lexer.include(name, text)
}

// newlines skips line ends inside { }.
func (p *parser) newlines() {
	for p.accept("\n") {
	}
}

// list reads one item, or several between { and }.
func (p *parser) list(item func()) {
	if !p.accept("{") {
		item()
		return
	}
	p.newlines()
	for {
		item()
		p.newlines()
		if p.accept("}") {
			return
		}
		p.accept(",")
	}
}

// bracketed reads items in parentheses, with or without commas.
func (p *parser) bracketed(item func()) {
	p.expect("(")
	for {
		item()
		if p.accept(")") {
			return
		}
		p.accept(",")
	}
}
