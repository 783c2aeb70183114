package pf

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"unbloat/unit"
)

var errSyntax = errors.New("syntax error")

// Parse reads the ALTQ lines and filter rules of an old pf.conf(5). It knows
// macros and comments, and ignores all other statements. Like pfctl(8) it
// requires queueing before translation before filtering, unless `set
// require-order no` is given.
func ParseALTQ(text string) (ALTQRuleset, error) {
	var rs ALTQRuleset
	section := 0
	macros := strings.NewReplacer()
	var pairs []string
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		for strings.HasSuffix(line, `\`) && i+1 < len(lines) {
			i++
			line = line[:len(line)-1] + " " + lines[i]
		}
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(macros.Replace(line))
		if name, value, ok := strings.Cut(line, "="); ok && !strings.ContainsAny(strings.TrimSpace(name), " \t") {
			pairs = append([]string{"$" + strings.TrimSpace(name), strings.Trim(strings.TrimSpace(value), `"`)}, pairs...)
			macros = strings.NewReplacer(pairs...)
			continue
		}
		err := rs.parseLine(line)
		switch next := sectionOf(line); {
		case err != nil:
		case anyOrder(line):
			section = lawless
		case next != 0 && section > next:
			err = errOrder()
		case next != 0 && section != lawless:
			section = next
		}
		if err != nil {
			return ALTQRuleset{}, fmt.Errorf("pf.conf:%d: %w", i+1, err)
		}
	}
	return rs, rs.Check()
}

// parseLine reads one line without comment and macros.
func (rs *ALTQRuleset) parseLine(line string) error {
	words := tokens(line)
	if len(words) == 0 || words[0] == "[" {
		return nil
	}
	if strings.Contains(line, "$") {
		return fmt.Errorf("macro in %q not defined", line)
	}
	switch words[0] {
	case "altq":
		i, err := parseInterface(words[1:])
		rs.Interfaces = append(rs.Interfaces, i)
		return err
	case "queue":
		q, err := parseALTQQueue(words[1:])
		rs.Queues = append(rs.Queues, q)
		return err
	case "pass", "block", "match":
		rs.Rules = append(rs.Rules, ALTQRule{Text: line, Queues: assignedALTQ(words)})
	case "set", "table", "include", "anchor", "load", "antispoof", "scrub", "nat", "rdr", "binat", "no", "nat-anchor", "rdr-anchor", "binat-anchor", "}":
	default:
		return errSyntax
	}
	return nil
}

// Sections of a pf.conf, in pfctl's order. lawless is a file whose lines may be
// in any order.
const (
	lawless = iota - 1
	_
	queueing
	translation
	filtering
)

// sectionOf returns the section of a line; 0 if it is none of these.
func sectionOf(line string) int {
	words := strings.Fields(line)
	if len(words) == 0 {
		return 0
	}
	switch words[0] {
	case "altq", "queue":
		return queueing
	case "nat", "rdr", "binat", "nat-anchor", "rdr-anchor", "binat-anchor":
		return translation
	case "no":
		if len(words) > 1 && words[1] != "scrub" {
			return translation
		}
	case "pass", "block", "match", "anchor", "antispoof":
		return filtering
	}
	return 0
}

// anyOrder reports whether a line is `set require-order no`.
func anyOrder(line string) bool {
	return strings.Join(strings.Fields(line), " ") == "set require-order no"
}

func errOrder() error {
	return errors.New("Rules must be in order: options, normalization, queueing, translation, filtering") //nolint:staticcheck // pfctl's words
}

// assigned returns the queues of a filter rule.
func assignedALTQ(words []string) []string {
	for i, w := range words {
		if w == "queue" && i+1 < len(words) {
			if words[i+1] != "(" {
				return words[i+1 : i+2]
			}
			names, _, err := list(words[i+1:], "(", ")")
			if err != nil {
				return nil
			}
			return names
		}
	}
	return nil
}

// list reads `open a, b close` at the start of words, and returns the rest.
func list(words []string, open, closing string) (names, rest []string, err error) {
	if len(words) == 0 || words[0] != open {
		return nil, words, errSyntax
	}
	for i, w := range words[1:] {
		switch w {
		case closing:
			return names, words[i+2:], nil
		case ",":
		case "(", ")", "{", "}":
			return nil, words, errSyntax
		default:
			names = append(names, w)
		}
	}
	return nil, words, errSyntax
}

// parseInterface reads what follows the word `altq`.
func parseInterface(words []string) (i ALTQInterface, err error) {
	if len(words) < 2 || words[0] != "on" {
		return i, errSyntax
	}
	i.Device, words = words[1], words[2:]
	for len(words) > 0 && err == nil {
		word := words[0]
		words = words[1:]
		switch word {
		case "bandwidth":
			i.Bandwidth, words, err = bandwidth(words)
		case "qlimit":
			i.Qlimit, words, err = number(words, 0, MaxQlimit, "qlimit")
		case "hfsc", "cbq", "priq", "codel", "fairq":
			i.Scheduler = word
		case "queue":
			if len(words) > 0 && words[0] != "{" {
				i.Queues, words = words[:1:1], words[1:]
			} else {
				i.Queues, words, err = list(words, "{", "}")
			}
		default:
			return i, errSyntax
		}
	}
	if err == nil && (i.Scheduler == "" || len(i.Queues) == 0) {
		return i, errSyntax
	}
	return i, err
}

// parseQueue reads what follows the word `queue`.
func parseALTQQueue(words []string) (q ALTQQueue, err error) {
	q.Priority = -1
	if len(words) == 0 || strings.ContainsAny(words[0], "(){},") {
		return q, errSyntax
	}
	if q.Name, words = words[0], words[1:]; len(q.Name) > MaxName {
		return q, fmt.Errorf("queue name too long (max %d chars)", MaxName)
	}
	for len(words) > 0 && err == nil {
		word := words[0]
		words = words[1:]
		switch word {
		case "bandwidth":
			q.Bandwidth, words, err = bandwidth(words)
		case "priority":
			q.Priority, words, err = number(words, 0, 15, "priority")
		case "qlimit":
			q.Qlimit, words, err = number(words, 0, MaxQlimit, "qlimit")
		case "hfsc", "cbq", "priq", "codel", "fairq":
			if q.Scheduler != "" {
				return q, errSyntax
			}
			q.Scheduler = word
			switch {
			case len(words) == 0 || words[0] != "(":
			case word == "hfsc":
				words, err = q.hfsc(words[1:])
			default:
				q.Options, words, err = list(words, "(", ")")
			}
		case "{":
			q.Queues, words, err = list(append([]string{"{"}, words...), "{", "}")
		default:
			return q, errSyntax
		}
	}
	return q, err
}

// hfsc reads HFSC's options and curves, and returns the words after the closing
// parenthesis.
func (q *ALTQQueue) hfsc(words []string) (rest []string, err error) {
	for len(words) > 0 && err == nil {
		word := words[0]
		words = words[1:]
		switch word {
		case ")":
			if len(q.Options)+len(q.Curves) == 0 {
				return nil, errSyntax
			}
			return words, nil
		case ",":
		case "default", "red", "ecn", "rio":
			q.Options = append(q.Options, word)
		case "realtime", "linkshare", "upperlimit":
			c := ALTQCurve{Name: word}
			if slices.ContainsFunc(q.Curves, func(o ALTQCurve) bool { return o.Name == word }) {
				return nil, fmt.Errorf("%s already specified", word)
			}
			words, err = c.parse(words)
			q.Curves = append(q.Curves, c)
		case "(", "{", "}":
			return nil, errSyntax
		default:
			return nil, fmt.Errorf("unknown hfsc flag %q", word)
		}
	}
	if err == nil {
		err = errSyntax
	}
	return nil, err
}

// parse reads a rate, or (m1 d m2) with or without commas.
func (c *ALTQCurve) parse(words []string) (rest []string, err error) {
	if len(words) == 0 || words[0] != "(" {
		c.Then, rest, err = bandwidth(words)
		return rest, err
	}
	skip := func() {
		if len(rest) > 0 && rest[0] == "," {
			rest = rest[1:]
		}
	}
	if c.First, rest, err = bandwidth(words[1:]); err != nil {
		return rest, err
	}
	skip()
	if c.Ms, rest, err = number(rest, 0, math.MaxInt32, "timing in curve"); err != nil {
		return rest, err
	}
	skip()
	if c.Then, rest, err = bandwidth(rest); err != nil {
		return rest, err
	}
	if len(rest) == 0 || rest[0] != ")" {
		return rest, errSyntax
	}
	if c.Ms == 0 {
		c.First = ALTQBandwidth{}
	}
	return rest[1:], nil
}

func number(words []string, least, most int, what string) (int, []string, error) {
	if len(words) == 0 {
		return 0, words, errSyntax
	}
	n, err := strconv.Atoi(words[0])
	if err != nil {
		return 0, words, errSyntax
	}
	if n < least || n > most {
		return 0, words, fmt.Errorf("%s out of range: max %d", what, most)
	}
	return n, words[1:], nil
}

// bandwidth reads 1Mb, 950Kb or 100%: the units are exactly b, Kb, Mb and Gb.
func bandwidth(words []string) (ALTQBandwidth, []string, error) {
	if len(words) == 0 {
		return ALTQBandwidth{}, words, errSyntax
	}
	s := words[0]
	if num, ok := strings.CutSuffix(s, "%"); ok {
		n, err := strconv.Atoi(num)
		if err != nil {
			return ALTQBandwidth{}, words, errSyntax
		}
		if n < 1 || n > 100 {
			return ALTQBandwidth{}, words, fmt.Errorf("bandwidth spec out of range: %s", s)
		}
		return ALTQBandwidth{Percent: n}, words[1:], nil
	}
	end := strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end < 0 {
		return ALTQBandwidth{}, words, fmt.Errorf("unknown unit in %q; use b, Kb, Mb or Gb", s)
	}
	switch name := s[end:]; name {
	case "b", "Kb", "Mb", "Gb":
		r, err := unit.ParseRate(s[:end] + strings.ToLower(name))
		if err != nil {
			return ALTQBandwidth{}, words, err
		}
		return ALTQBandwidth{Rate: r}, words[1:], nil
	default:
		return ALTQBandwidth{}, words, fmt.Errorf("unknown unit %q", name)
	}
}
