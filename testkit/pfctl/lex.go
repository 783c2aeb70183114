package pfctl

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A kind is a kind of token.
type kind int

const (
	end     kind = iota // no more text
	str                 // a word that is no keyword, or a quoted string
	number              // digits
	word                // a keyword or punctuation
	invalid             // the line could not be read
)

// A token is one word of pf.conf(5).
type token struct {
	kind   kind
	text   string
	number int64
}

// A source is a file that is being read: the rest of its text, and the bytes
// that were pushed back.
type source struct {
	name  string
	text  string
	back  []byte // the last byte is read first
	line  int
	ended bool // the line end after the last line was returned
}

// eof is returned after the last byte.
const eof = -1

// longest is the maximum length of a word in characters.
const longest = 8094

// expansion is pushed back after a macro's value, to mark its end.
const expansion = 2

// A lexer splits files into tokens. The old and the current pfctl differ in
// small ways.
type lexer struct {
	old      bool
	words    map[string]bool
	files    []*source
	macros   map[string]string
	macro    bool // in a macro's value, where macros are not expanded
	line     int  // of the last token
	complain func(format string, args ...any)
}

func (l *lexer) file() *source { return l.files[len(l.files)-1] }

// raw reads the next byte of the file.
func (l *lexer) raw() int {
	for {
		f := l.file()
		if n := len(f.back); n > 0 {
			c := f.back[n-1]
			f.back = f.back[:n-1]
			if c == expansion {
				l.macro = false
				continue
			}
			return int(c)
		}
		if f.text == "" {
			return eof
		}
		c := f.text[0]
		f.text = f.text[1:]
		return int(c)
	}
}

// get reads the next byte. It joins continued lines, and returns from an
// included file to the one that included it.
func (l *lexer) get() int {
	c := l.raw()
	for c == '\\' {
		next := l.raw()
		if next != '\n' {
			c = next
			break
		}
		l.line = l.file().line
		l.file().line++
		c = l.raw()
	}
	if c != eof {
		return c
	}
	if f := l.file(); !l.old && !f.ended {
		f.ended = true
		return '\n'
	}
	for c == eof {
		if !l.pop() {
			return eof
		}
		c = l.raw()
	}
	return c
}

// getQuoted reads the next byte inside quotes.
func (l *lexer) getQuoted(quote int) int {
	c := l.raw()
	if c == eof {
		l.complain("reached end of file while parsing quoted string")
		if !l.pop() {
			return eof
		}
		return quote
	}
	return c
}

func (l *lexer) pop() bool {
	if len(l.files) == 1 {
		return false
	}
	l.files = l.files[:len(l.files)-1]
	return true
}

func (l *lexer) unget(c int) {
	if c != eof {
		l.file().back = append(l.file().back, byte(c))
	}
}

// skipLine skips the rest of a line that cannot be read.
func (l *lexer) skipLine() token {
	for {
		switch c := l.get(); c {
		case '\n':
			l.file().line++
			return token{kind: invalid}
		case eof:
			return token{kind: invalid}
		}
	}
}

// next reads a token.
func (l *lexer) next() token {
	c := l.get()
	for c == ' ' || c == '\t' {
		c = l.get()
	}
	l.line = l.file().line
	if c == '#' {
		for c != '\n' && c != eof {
			c = l.get()
		}
	}
	if c == '$' && !l.macro {
		name := ""
		for {
			if c = l.get(); c == eof {
				return token{}
			}
			if !isAlnum(c) && c != '_' {
				l.unget(c)
				break
			}
			name += string(rune(c))
		}
		value, ok := l.macros[name]
		if !ok {
			l.complain("macro '%s' not defined", name)
			return l.skipLine()
		}
		f := l.file()
		f.back = append(f.back, expansion)
		for i := len(value) - 1; i >= 0; i-- {
			f.back = append(f.back, value[i])
		}
		l.macro = true
		return l.next()
	}
	switch {
	case c == '"' || c == '\'':
		return l.quoted(c)
	case c == '<' || c == '>' || c == '!' || c == '-':
		if t, ok := l.operator(c); ok {
			return t
		}
	}
	if c == '-' || isDigit(c) {
		if t, ok := l.number(c); ok {
			return t
		}
		if c == '-' {
			return token{kind: word, text: "-"}
		}
	}
	if isAlnum(c) || c == ':' || c == '_' {
		var b []byte
		for ; c != eof && (inString(c) || len(b) == 0); c = l.get() {
			if b = append(b, byte(c)); len(b) > longest {
				l.complain("string too long")
				return l.skipLine()
			}
		}
		l.unget(c)
		if l.words[string(b)] {
			return token{kind: word, text: string(b)}
		}
		return token{kind: str, text: string(b)}
	}
	switch c {
	case '\n':
		l.line = l.file().line
		l.file().line++
	case eof, 0:
		return token{}
	}
	return token{kind: word, text: string([]byte{byte(c)})}
}

// operator reads punctuation of two characters.
func (l *lexer) operator(c int) (token, bool) {
	next := l.get()
	two := string([]byte{byte(c), byte(next)})
	known := two == "<>" || two == "><" || l.old && two == "->" || !l.old && (two == "!=" || two == "<=" || two == ">=")
	if next != eof && known {
		return token{kind: word, text: two}, true
	}
	l.unget(next)
	return token{}, false
}

func (l *lexer) quoted(quote int) token {
	var b []byte
	for {
		c := l.getQuoted(quote)
		switch c {
		case eof:
			return token{}
		case quote:
			return token{kind: str, text: string(b)}
		case '\n':
			l.file().line++
			continue
		case 0:
			if !l.old {
				l.complain("syntax error")
				return l.skipLine()
			}
		case '\\':
			next := l.getQuoted(quote)
			switch {
			case next == eof:
				return token{}
			case next == quote || !l.old && (next == ' ' || next == '\t'):
				c = next
			case next == '\n':
				if !l.old {
					l.file().line++
				}
				continue
			default:
				l.unget(next)
			}
		}
		if b = append(b, byte(c)); len(b) > longest {
			l.complain("string too long")
			return l.skipLine()
		}
	}
}

// number reads a number. Digits that are followed by letters are a word
// instead.
func (l *lexer) number(c int) (token, bool) {
	b := []byte{byte(c)}
	next := l.get()
	for next != eof && isDigit(next) {
		b = append(b, byte(next))
		next = l.get()
	}
	l.unget(next)
	if string(b) != "-" && (next == eof || strings.IndexByte(" \t\n\v\f\r),/}=", byte(next)) >= 0) {
		n, err := strconv.ParseInt(string(b), 10, 64)
		if err != nil {
			why := "too large"
			if n == math.MinInt64 {
				why = "too small"
			}
			l.complain("%q invalid number: %s", string(b), why)
			return l.skipLine(), true
		}
		return token{kind: number, text: strconv.FormatInt(n, 10), number: n}, true
	}
	for i := len(b) - 1; i > 0; i-- {
		l.unget(int(b[i]))
	}
	return token{}, false
}

// include starts reading a file in the middle of the current one.
func (l *lexer) include(name, text string) {
	line := 0
	if l.old || len(l.files) == 0 {
		line = 1
	}
	l.files = append(l.files, &source{name: name, text: text, line: line})
	if len(l.files) > 1 {
		l.unget('\n')
	}
}

// where returns the position of the last token, for messages.
func (l *lexer) where() string { return fmt.Sprintf("%s:%d", l.file().name, l.line) }

func isDigit(c int) bool { return c >= '0' && c <= '9' }

func isAlnum(c int) bool {
	return isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// inString reports whether c may be part of a word.
func inString(c int) bool {
	return isAlnum(c) || c > ' ' && c < 0x7f && strings.IndexByte("(){}<>!=/#,", byte(c)) < 0
}
