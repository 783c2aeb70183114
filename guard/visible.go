// This file shows text that may not be ours: names of interfaces and machines,
// what tools and servers say, words of files. A terminal obeys control characters, and
// other characters reorder or hide what stands beside them. Here they become escapes
// that are seen, as \u001b, which JSON reads as the character itself.
//
// Each way out of the program has one place that uses it: standard output and standard
// error (a VisibleWriter), a line of a log, an element of a page, a label of a metric.

package guard

import (
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// safe reports whether a character stands for itself: it is seen, and changes nothing
// around it. The end of a line and a tab are safe.
func safe(r rune) bool { return r == '\n' || r == '\t' || unicode.IsGraphic(r) }

// Visible returns s with an escape for each character that is not safe to show. CR LF is
// the end of a line; what is not UTF-8 becomes U+FFFD, as in HTML and labels it must.
func Visible(s string) string {
	if plain(s) {
		return s
	}
	text, rest := escaped(make([]byte, 0, len(s)+16), []byte(s))
	return string([]rune(string(closed(text, rest))))
}

// VisibleLine returns s as one line: ends of lines and tabs become blanks. A line of more than
// most characters is cut; 0 is no limit.
func VisibleLine(s string, most int) string {
	s = strings.TrimSpace(strings.NewReplacer("\r\n", " ", "\n", " ", "\t", " ").Replace(Visible(s)))
	if r := []rune(s); most > 0 && len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// plain reports whether s is ASCII that stands for itself, as most text is.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c != '\n' && c != '\t' && (c < ' ' || c > '~') {
			return false
		}
	}
	return true
}

// escaped appends the text b to out, and returns what of its end is not whole yet: a
// character, or a CR that a LF may follow.
func escaped(out, b []byte) (text, rest []byte) {
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		switch {
		case r == '\r' && len(b) == 1, !utf8.FullRune(b):
			return out, b
		case r == utf8.RuneError && n == 1:
			out = foreign(out, b[0])
		case safe(r):
			out = append(out, b[:n]...)
		case r == '\r' && b[1] == '\n':
			out = append(out, '\r')
		default:
			out = escape(out, r)
		}
		b = b[n:]
	}
	return out, nil
}

// closed appends the end of a text that is not whole.
func closed(out, rest []byte) []byte {
	for _, c := range rest {
		if c == '\r' {
			out = escape(out, '\r')
		} else {
			out = foreign(out, c)
		}
	}
	return out
}

// foreign appends a byte that is not UTF-8. In older encodings those below 0xA0 are
// control characters, and the others letters.
func foreign(out []byte, c byte) []byte {
	if c < 0xA0 {
		return escape(out, rune(c))
	}
	return append(out, c)
}

// escape appends an escape, beyond U+FFFF as two, which is what JSON has.
func escape(out []byte, r rune) []byte {
	if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
		return escape(escape(out, high), low)
	}
	const hex = "0123456789abcdef"
	return append(out, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
}

// A VisibleWriter writes what Visible makes of a text that comes in pieces, but leaves letters of
// older encodings as they are: a file in Latin-1 is shown as it is written. Several
// goroutines may use it.
type VisibleWriter struct {
	w    io.Writer
	mu   sync.Mutex
	rest []byte // the begin of a character, or a CR
}

// NewVisibleWriter returns a Writer to w.
func NewVisibleWriter(w io.Writer) *VisibleWriter { return &VisibleWriter{w: w} }

// Write writes the text b, in one piece.
func (v *VisibleWriter) Write(b []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	out, rest := escaped(make([]byte, 0, len(v.rest)+len(b)), append(v.rest, b...))
	v.rest = append([]byte(nil), rest...)
	if len(out) == 0 {
		return len(b), nil
	}
	if _, err := v.w.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Flush writes the end of a text that ended within a character.
func (v *VisibleWriter) Flush() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.rest) == 0 {
		return nil
	}
	_, err := v.w.Write(closed(nil, v.rest))
	v.rest = nil
	return err
}
