package pf

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"unbloat/unit"
)

// Parse reads pf.conf(5) text, or what `pfctl -vsq` and `pfctl -sr` print. It
// understands macros, comments and continued lines, keeps queues and rules, and
// ignores all other statements. Errors have pfctl's wording.
func Parse(text string) (Ruleset, error) {
	var rs Ruleset
	macros := map[string]string{}
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		line, at := lines[i], i+1
		for strings.HasSuffix(line, `\`) && i+1 < len(lines) {
			i++
			line = line[:len(line)-1] + " " + lines[i]
		}
		if err := rs.parseLine(strings.TrimSpace(uncomment(line)), macros); err != nil {
			return Ruleset{}, fmt.Errorf("pf.conf:%d: %w", at, err)
		}
	}
	return rs, rs.Check()
}

// uncomment removes a comment, but not a # between quotes.
func uncomment(line string) string {
	quoted := false
	for i, c := range line {
		switch {
		case c == '"':
			quoted = !quoted
		case c == '#' && !quoted:
			return line[:i]
		}
	}
	return line
}

// parseLine reads one line without its comment.
func (rs *Ruleset) parseLine(line string, macros map[string]string) error {
	if line == "" || strings.HasPrefix(line, "[") { // counters of pfctl -vsq
		return nil
	}
	if name, value, ok := strings.Cut(line, "="); ok && isName(strings.TrimSpace(name)) {
		macros[strings.TrimSpace(name)] = strings.Trim(strings.TrimSpace(value), `"`)
		return nil
	}
	line, err := expand(line, macros)
	if err != nil {
		return err
	}
	words := tokens(line)
	if len(words) == 0 { // only macros without a value
		return nil
	}
	switch words[0] {
	case "queue":
		q, err := parseQueue(words[1:])
		if err != nil {
			return err
		}
		if err := rs.checkPlace(len(rs.Queues), q); err != nil {
			return err
		}
		rs.Queues = append(rs.Queues, q)
	case "match", "pass", "block":
		r := Rule{Text: line}
		if r.Queues, err = rs.setQueue(words); err != nil {
			return err
		}
		rs.Rules = append(rs.Rules, r)
	case "set", "table", "include", "anchor", "load", "antispoof", "}":
	default:
		return errSyntax
	}
	return nil
}

// expand replaces $name with the macro's value.
func expand(line string, macros map[string]string) (string, error) {
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(line, "$")
		b.WriteString(before)
		if !ok {
			return b.String(), nil
		}
		n := 0
		for n < len(after) && isName(after[:n+1]) {
			n++
		}
		value, defined := macros[after[:n]]
		if !defined {
			return "", fmt.Errorf("macro '%s' not defined", after[:n])
		}
		b.WriteString(value)
		line = after[n:]
	}
}

func isName(s string) bool {
	for i, c := range []byte(s) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// tokens splits at blanks; , ( ) { } are words of their own.
func tokens(line string) []string {
	for _, p := range []string{",", "(", ")", "{", "}"} {
		line = strings.ReplaceAll(line, p, " "+p+" ")
	}
	return strings.Fields(line)
}

// setQueue returns the queues that a rule assigns to; only queues with a parent
// can be named.
func (rs *Ruleset) setQueue(words []string) ([]string, error) {
	names := assigned(words)
	for _, name := range names {
		q, ok := rs.find(name)
		if !ok || q.Parent == "" {
			return nil, fmt.Errorf("queue %s is not defined", name)
		}
	}
	return names, nil
}

// assigned returns the names after the `queue` of a rule's `set`.
func assigned(words []string) (names []string) {
	for i := 1; i+1 < len(words); i++ {
		if before := words[i-1]; words[i] != "queue" || before != "set" && before != "(" && before != "," {
			continue
		}
		if words[i+1] != "(" {
			return words[i+1 : i+2]
		}
		for _, w := range words[i+2:] {
			if w == ")" {
				break
			}
			if w != "," {
				names = append(names, w)
			}
		}
		return names
	}
	return nil
}

// parseQueue reads what follows the word `queue`.
func parseQueue(words []string) (Queue, error) {
	if len(words) == 0 {
		return Queue{}, errSyntax
	}
	q := Queue{Name: words[0]}
	if len(q.Name) > MaxName {
		return q, q.check()
	}
	seen := map[string]bool{}
	last := ""
	for i := 1; i < len(words); i++ {
		word := words[i]
		if word == "," && (last == "bandwidth" || last == "min" || last == "max") && i+1 < len(words) && (words[i+1] == "min" || words[i+1] == "max") {
			continue
		}
		if (word == "min" || word == "max") && !(last == "bandwidth" || last == "min" || last == "max") {
			return q, errSyntax
		}
		if seen[word] {
			return q, fmt.Errorf("%s cannot be respecified", word)
		}
		seen[word], last = true, word
		if word == "default" {
			q.Default = true
			continue
		}
		i++
		if i == len(words) {
			return q, errSyntax
		}
		if err := q.set(word, words[i]); err != nil {
			return q, err
		}
	}
	if q.Device == "" && q.Parent == "" {
		return q, fmt.Errorf("root queue without interface")
	}
	return q, q.check()
}

// set reads one option and its value.
func (q *Queue) set(word, value string) (err error) {
	number := func(to *int, least int, what string, most int) error {
		n, err := strconv.Atoi(value)
		if err != nil {
			return errSyntax
		}
		if n < least || n > most {
			return fmt.Errorf("%s out of range: max %d", what, most)
		}
		*to = n
		return nil
	}
	switch word {
	case "on":
		q.Device = value
	case "parent":
		q.Parent = value
	case "flows":
		return number(&q.Flows, 1, "number of flows", MaxFlows)
	case "quantum":
		return number(&q.Quantum, 1, "quantum", MaxQuantum)
	case "qlimit":
		return number(&q.Qlimit, 0, "qlimit", MaxQlimit)
	case "bandwidth":
		if q.Bandwidth, err = ParseRate(value); err == nil && q.Bandwidth == 0 {
			err = fmt.Errorf("bandwidth 0 lets nothing through") // pfctl accepts it
		}
	case "min":
		q.Min, err = ParseRate(value)
	case "max":
		q.Max, err = ParseRate(value)
	default:
		return errSyntax
	}
	return err
}

// ParseRate reads a bandwidth of pf.conf(5): 11M, 11.5M, 950Kb, 11Mbit or
// 11000000. Like pfctl it refuses percents and other units, and truncates to
// whole bit/s.
func ParseRate(s string) (unit.Rate, error) {
	end := strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	num, name := s, ""
	if end >= 0 {
		num, name = s[:end], s[end:]
	}
	value, ok := new(big.Rat).SetString(num)
	if !ok || len(num) > 40 {
		return 0, errSyntax
	}
	of := int64(1)
	switch name {
	case "", "b", "bit":
	case "K", "Kb", "Kbit":
		of = 1e3
	case "M", "Mb", "Mbit":
		of = 1e6
	case "G", "Gb", "Gbit":
		of = 1e9
	case "%":
		return 0, fmt.Errorf("no bandwidth in %% yet")
	default:
		return 0, fmt.Errorf("unknown unit %q", name)
	}
	value.Mul(value, new(big.Rat).SetInt64(of))
	bits := new(big.Int).Div(value.Num(), value.Denom())
	if !bits.IsInt64() || bits.Int64() > 999e9 {
		return 0, fmt.Errorf("bandwidth %s is more than 999G", s)
	}
	return unit.Rate(bits.Int64()), nil
}
