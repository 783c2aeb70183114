package clearosfake

import (
	"fmt"
	"strings"
)

// shellSettings reads a file of assignments as a shell sources it.
func shellSettings(text string) (map[string]string, error) {
	set := map[string]string{}
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '\n' || c == ' ' || c == '\t':
			i++
			continue
		case c == '#':
			for i < len(text) && text[i] != '\n' {
				i++
			}
			continue
		}
		name := i
		for i < len(text) && (text[i] == '_' || text[i] >= '0' && text[i] <= '9' || text[i] >= 'A' && text[i] <= 'Z' || text[i] >= 'a' && text[i] <= 'z') {
			i++
		}
		key := text[name:i]
		if key == "" || key[0] >= '0' && key[0] <= '9' || i == len(text) || text[i] != '=' {
			return nil, fmt.Errorf("a shell would take %q for a command", firstLine(text[name:]))
		}
		value, n, err := shellWord(text[i+1:])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		set[key], i = value, i+1+n
		if rest := strings.TrimLeft(text[i:], " \t"); rest != "" && rest[0] != '\n' && rest[0] != '#' {
			return nil, fmt.Errorf("%s: text behind the value: %q", key, firstLine(rest))
		}
	}
	return set, nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// shellWord reads a value, and returns how long its text was.
func shellWord(s string) (value string, n int, err error) {
	var b strings.Builder
	quote := byte(0)
	for ; n < len(s); n++ {
		c := s[n]
		switch {
		case quote == '\'' && c != '\'':
			b.WriteByte(c)
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case c == '\\' && n+1 < len(s) && s[n+1] == '\n':
			n++
		case c == '\\' && n+1 < len(s) && (quote == 0 || strings.IndexByte("\"\\$`", s[n+1]) >= 0):
			n++
			b.WriteByte(s[n])
		case c == '$' || c == '`' || quote == 0 && strings.IndexByte(";&|()<>*?[~", c) >= 0:
			return "", 0, fmt.Errorf("a shell would do something with %q", c)
		case quote == 0 && (c == '\n' || c == ' ' || c == '\t'):
			return b.String(), n, nil
		default:
			b.WriteByte(c)
		}
	}
	if quote != 0 {
		return "", 0, fmt.Errorf("the quote is not closed")
	}
	return b.String(), n, nil
}
