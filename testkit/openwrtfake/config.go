package openwrtfake

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// A Config is a file of /etc/config as uci(1) has it.
type Config []ConfigSection

// A ConfigSection is a section of a Config.
type ConfigSection struct {
	Type, Name string
	Options    []ConfigOption
}

// A ConfigOption is an option, or a list.
type ConfigOption struct {
	Name   string
	Values []string
	List   bool
}

// ParseConfig reads a file of /etc/config. It is held to recorded answers of uci(1).
func ParseConfig(text string) (Config, error) {
	u := uciText{lines: strings.SplitAfter(text, "\n")}
	for len(u.lines) > 0 && u.lines[0] != "" {
		u.buf, u.pos = nil, 0
		u.take()
		if err := u.line(); err != nil {
			return nil, err
		}
	}
	return u.out, nil
}

// Export prints a Config as `uci export` does.
func (c Config) Export(name string) string {
	escaped := func(s string) string { return strings.ReplaceAll(s, "'", `'\''`) }
	var b strings.Builder
	fmt.Fprintf(&b, "package %s\n", name)
	for _, s := range c {
		fmt.Fprintf(&b, "\nconfig %s", escaped(s.Type))
		if s.Name != "" {
			fmt.Fprintf(&b, " '%s'", s.Name)
		}
		b.WriteString("\n")
		for _, o := range s.Options {
			word := "option"
			if o.List {
				word = "list"
			}
			for _, v := range o.Values {
				fmt.Fprintf(&b, "\t%s %s '%s'\n", word, o.Name, escaped(v))
			}
		}
	}
	return b.String() + "\n"
}

// queues returns the options of each queue, in order.
func (c Config) queues() (out []map[string]string) {
	for _, s := range c {
		if s.Type != "queue" {
			continue
		}
		options := map[string]string{}
		for _, o := range s.Options {
			options[o.Name] = strings.Join(o.Values, " ")
		}
		out = append(out, options)
	}
	return out
}

// A uciText is a file that is read line by line into a buffer; a line that goes on is
// appended to it.
type uciText struct {
	lines []string
	buf   []byte
	pos   int
	out   Config
	now   int // the section of options, from 1
}

const uciSpace = " \t\n\v\f\r"

// take puts the next line at the position, in place of what is there.
func (u *uciText) take() bool {
	if len(u.lines) == 0 || u.lines[0] == "" {
		u.buf = u.buf[:u.pos]
		return false
	}
	u.buf = append(u.buf[:u.pos], u.lines[0]...)
	u.lines = u.lines[1:]
	return true
}

func (u *uciText) rest() []byte { return u.buf[u.pos:] }

func (u *uciText) at(set string) bool {
	return u.pos < len(u.buf) && strings.IndexByte(set, u.buf[u.pos]) >= 0
}

// line does the statements of a line.
func (u *uciText) line() error {
	u.pos += len(u.buf) - len(bytes.TrimLeft(u.buf, uciSpace))
	for {
		for u.at(" \t") {
			u.pos++
		}
		if u.pos == len(u.buf) || u.at("#") {
			return nil
		}
		word, _, more := bytes.Cut(u.rest(), []byte(" "))
		if i := bytes.IndexByte(word, '\t'); i >= 0 {
			word, more = word[:i], true
		}
		if !more {
			return errors.New("uci: Parse error (a statement without arguments)")
		}
		u.pos += len(word) + 1
		if err := u.statement(string(word)); err != nil {
			return err
		}
	}
}

func (u *uciText) statement(word string) error {
	n := 2
	for short, long := range map[string]string{"p": "package", "c": "config", "o": "option", "l": "list"} {
		if word == short {
			word = long
		}
	}
	switch word {
	case "package":
		n = 1
	case "config", "option", "list":
	default:
		return errors.New("uci: Parse error (invalid command)")
	}
	var args []string
	for range n + 1 {
		a, err := u.arg()
		if err != nil {
			return err
		}
		args = append(args, a)
	}
	switch {
	case args[0] == "":
		return errors.New("uci: Parse error (insufficient arguments)")
	case args[n] != "":
		return errors.New("uci: Parse error (too many arguments)")
	case word == "package":
		return valid(args[0], "-")
	case word == "config":
		return u.config(args[0], args[1])
	case u.now == 0:
		return errors.New("uci: Parse error (option/list command found before the first section)")
	}
	if err := valid(args[0], ""); err != nil {
		return err
	}
	u.option(word == "list", args[0], args[1])
	return nil
}

// valid refuses a name with a character that is no letter, digit or _, nor among more.
func valid(name, more string) error {
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"+more) != "" {
		return errors.New("uci: Parse error (invalid character in name field)")
	}
	return nil
}

func (u *uciText) config(kind, name string) error {
	if strings.ContainsFunc(kind, func(c rune) bool { return c < 33 || c > 126 }) {
		return errors.New("uci: Parse error (invalid character in type field)")
	}
	if err := valid(name, ""); err != nil {
		return err
	}
	for i, s := range u.out {
		if s.Name == name && name != "" {
			u.now = i + 1
			if s.Type != kind {
				return errors.New("uci: Parse error (section of different type overwrites prior section with same name)")
			}
			return nil
		}
	}
	u.out = append(u.out, ConfigSection{Type: kind, Name: name})
	u.now = len(u.out)
	return nil
}

func (u *uciText) option(list bool, name, value string) {
	s := &u.out[u.now-1]
	if !list && value == "" {
		return
	}
	for i := range s.Options {
		o := &s.Options[i]
		if o.Name == name {
			if !list {
				o.Values = nil
			}
			o.Values, o.List = append(o.Values, value), list
			return
		}
	}
	s.Options = append(s.Options, ConfigOption{Name: name, Values: []string{value}, List: list})
}

// arg reads the next argument of a statement.
func (u *uciText) arg() (string, error) {
	for u.at(uciSpace) {
		u.pos++
	}
	if u.at(";") {
		u.pos++
		return "", nil
	}
	var word []byte
	from := u.pos
	for first := true; u.pos < len(u.buf) && (first || !u.at(uciSpace)); first = false {
		switch c := u.buf[u.pos]; c {
		case '#':
			u.buf = u.buf[:u.pos]
		case ';':
			// The end of a word that is as it was written overwrites the semicolon.
			if string(word) == string(u.buf[from:u.pos]) {
				u.buf = u.buf[:u.pos]
			}
			return string(word), nil
		case '\'', '"':
			u.pos++
			for !u.at(string(c)) {
				if u.pos == len(u.buf) && !u.take() {
					return "", fmt.Errorf("uci: Parse error (EOF with unterminated %c)", c)
				}
				if c == '"' && u.at(`\`) {
					if u.escaped() {
						continue
					}
				}
				if !u.at(string(c)) || u.pos > 0 && c == '"' && u.buf[u.pos-1] == '\\' {
					word = append(word, u.buf[u.pos])
					u.pos++
				}
			}
			u.pos++
		case '\\':
			if !u.escaped() {
				word = append(word, u.buf[u.pos])
				u.pos++
			}
		default:
			word = append(word, c)
			u.pos++
		}
	}
	if u.pos < len(u.buf) {
		u.pos++
	}
	return string(word), nil
}

// escaped skips a backslash, and takes in the next line if it is the last of its line.
func (u *uciText) escaped() (goesOn bool) {
	u.pos++
	switch string(u.rest()) {
	case "", "\n", "\r\n":
		u.take()
		return true
	}
	return false
}
