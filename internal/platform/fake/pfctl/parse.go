package pfctl

import (
	"fmt"
	"strings"
)

// gaveUp ends the reading of a statement, stopped that of the program.
type (
	gaveUp  struct{}
	stopped struct{}
)

// A parser reads pf.conf(5) statement by statement, and goes on behind one that
// is wrong. As the parser of pfctl(8), which yacc(1) made, it is silent about
// syntax until three tokens were right again.
type parser struct {
	lexer
	run    *run
	ahead  *token
	silent int
	errors int

	options
	anchor int // how deep in anchors
	rules  *[]rule
}

// options are those of pf.conf's `set` that change what is read after them.
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

// take takes a token that fits.
func (p *parser) take() token {
	t := p.peek()
	p.ahead = nil
	if p.silent > 0 {
		p.silent--
	}
	return t
}

// is reports whether one of pf's own words comes next.
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

// name takes a word that is none of pf's, or one in quotes.
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

// text takes one or several words: a tag, a macro's value.
func (p *parser) text() string {
	s := p.name()
	for p.peek().kind == str {
		s += " " + p.take().text
	}
	return s
}

// syntax gives up a statement whose next token has no place in it.
func (p *parser) syntax() {
	p.peek()
	if p.silent == 0 {
		p.errorf("syntax error")
	}
	panic(gaveUp{})
}

// lineEnd wants that nothing follows. Where more could follow, pfctl(8) looks
// before it judges what it has read.
func (p *parser) lineEnd() {
	if !p.is("\n") {
		p.syntax()
	}
}

// errorf says what is wrong.
func (p *parser) errorf(format string, args ...any) {
	p.errors++
	fmt.Fprintf(&p.run.stderr, "%s: %s\n", p.where(), fmt.Sprintf(format, args...))
}

// fail says what is wrong and gives up the statement.
func (p *parser) fail(format string, args ...any) {
	p.errorf(format, args...)
	panic(gaveUp{})
}

// unknown refuses what pfctl(8) may take and this stand-in does not know.
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

// line reads a statement up to the end of its line; false: nothing is left to go
// on with.
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

// resume goes on behind the line.
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

// newlines passes over the ends of lines inside of { }.
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

// words reads what stands between brackets, with or without commas.
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
