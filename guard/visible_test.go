package guard_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"unbloat/guard"
)

// What a terminal would obey, or what reorders or hides text, is seen; all else
// stays as it is.
func TestText(t *testing.T) {
	for s, want := range map[string]string{
		"eth0 – 5 Mbit/s, größer\n\tnext":     "eth0 – 5 Mbit/s, größer\n\tnext",
		"Fußnote\u00a0↓ ▁█ ⣿ 日本":              "Fußnote\u00a0↓ ▁█ ⣿ 日本",
		"\x1b[2J\x1b]0;title\x07":             `\u001b[2J\u001b]0;title\u0007`,
		"all is well\rnothing":                `all is well\u000dnothing`,
		"said\r\nby a tool\r\n":               "said\r\nby a tool\r\n",
		"\r":                                  `\u000d`,
		"\u009b31m":                           `\u009b31m`,
		"\x9b31m":                             `\u009b31m`,
		"caf\xe9":                             "caf\uFFFD",
		"a\xe2\x82":                           "a\uFFFD\\u0082",
		"\x7f\x00\b":                          `\u007f\u0000\u0008`,
		"eth0\u202etxt.exe\u2066\u200b":       `eth0\u202etxt.exe\u2066\u200b`,
		"one\u2028two\ufeff":                  `one\u2028two\ufeff`,
		"hidden \U000e0041":                   `hidden \udb40\udc41`,
		"private \ue000, noncharacter \ufffe": `private \ue000, noncharacter \ufffe`,
	} {
		if got := guard.Visible(s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
	if got := guard.VisibleLine(" two\r\nlines\tand \x1b ", 0); got != `two lines and \u001b` {
		t.Errorf("a line: %q", got)
	}
	if got := guard.VisibleLine("größer als vier", 4); got != "größ…" {
		t.Errorf("cut: %q", got)
	}
}

// FuzzWriter: a Writer writes what Text returns, however its text is cut; that has no
// character that a terminal obeys, stays as it is when it is shown again, and is the
// same value in JSON.
func FuzzWriter(f *testing.F) {
	f.Add("eth0\x1b[31m \u202e größer\r\n\xe2\x82", 3)
	f.Add("\r", 1)
	f.Add("\U000e0041\xf3\xa0", 2)
	f.Fuzz(func(t *testing.T, s string, piece int) {
		want := guard.Visible(s)
		var out bytes.Buffer
		w := guard.NewVisibleWriter(&out)
		piece = max(piece&15, 1)
		for rest := s; rest != ""; {
			n := min(piece, len(rest))
			if k, err := w.Write([]byte(rest[:n])); k != n || err != nil {
				t.Fatal(k, err)
			}
			rest = rest[n:]
		}
		if err := w.Flush(); err != nil || string([]rune(out.String())) != want {
			t.Fatalf("%q in pieces of %d: %q, want %q, %v", s, piece, out.String(), want, err)
		}
		for _, c := range []byte(strings.ReplaceAll(out.String(), "\r\n", "")) {
			if c < ' ' && c != '\n' && c != '\t' || c == 0x7f {
				t.Fatalf("%q: %q", s, out.String())
			}
		}
		if strings.ContainsAny(strings.ReplaceAll(want, "\r\n", ""), "\x1b\r\b\a\x00\x7f\u009b\u202e") || !utf8.ValidString(want) {
			t.Fatalf("%q becomes %q", s, want)
		}
		if again := guard.Visible(want); again != want {
			t.Fatalf("%q becomes %q, and then %q", s, want, again)
		}
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var was, is string
		if err := json.Unmarshal(b, &was); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(guard.Visible(string(b))), &is); err != nil || is != was {
			t.Fatalf("%q in JSON: %q, %v", was, is, err)
		}
	})
}
