package fake

import (
	"fmt"
	"strings"
)

// parseConfig reads /etc/config/sqm: the options of each queue, in order. As in
// uci the last value of an option holds.
func parseConfig(text string) ([]map[string]string, error) {
	var out []map[string]string
	var now map[string]string
	for i, line := range strings.Split(text, "\n") {
		words, err := uciWords(line)
		if err != nil {
			return nil, fmt.Errorf("uci: line %d: %w", i+1, err)
		}
		switch {
		case len(words) == 0:
		case words[0] == "package" && len(words) == 2:
		case words[0] == "config" && (len(words) == 2 || len(words) == 3) && words[1] == "queue":
			now = map[string]string{}
			out = append(out, now)
		case words[0] == "option" && len(words) == 3 && now != nil:
			now[words[1]] = words[2]
		default:
			return nil, fmt.Errorf("uci: line %d: %q is neither a queue nor an option of one", i+1, line)
		}
	}
	return out, nil
}

// uciWords splits a line into words, of which some are quoted; # begins a
// comment.
func uciWords(line string) (words []string, err error) {
	for line = strings.TrimLeft(line, " \t"); line != "" && line[0] != '#'; line = strings.TrimLeft(line, " \t") {
		switch q := line[0]; q {
		case '\'', '"':
			word, rest, ok := strings.Cut(line[1:], string(q))
			if !ok || rest != "" && rest[0] != ' ' && rest[0] != '\t' || q == '"' && strings.Contains(word, `\`) {
				return nil, fmt.Errorf("quotes in %q", line)
			}
			words, line = append(words, word), rest
		default:
			word := line
			if end := strings.IndexAny(line, " \t"); end >= 0 {
				word = line[:end]
			}
			if strings.ContainsAny(word, `'"\#;`) {
				return nil, fmt.Errorf("the word %q", word)
			}
			words, line = append(words, word), line[len(word):]
		}
	}
	return words, nil
}
