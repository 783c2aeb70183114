package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"unbloat/internal/measure/verdict"
	"unbloat/reason"
)

// textWidth is the widest line of a table for the terminal.
const textWidth = 78

// TestTable is TestTableIn in English.
func TestTable(w io.Writer, t *verdict.Test) error { return TestTableIn(w, reason.English(), t) }

// TableOf writes the before → after table for a terminal of this width in a language, without
// colour; 0 is no terminal: at most 78 columns. On a narrow one a row's figures stand below its
// name. With one test nil, it writes TestTableIn of the other.
func TableOf(w io.Writer, in *reason.Language, before, after *verdict.Test, width int) error {
	l := language{in}
	switch {
	case before == nil && after == nil:
		return ErrNothing
	case before == nil:
		return TestTableIn(w, in, after)
	case after == nil:
		return TestTableIn(w, in, before)
	}
	var b strings.Builder
	sentence, _ := l.compare(before, after)
	stacked := width > 0 && width < textWidth
	wide := textWidth
	if stacked {
		wide = width
	}
	wrapTextTo(&b, sentence, wide)
	b.WriteByte('\n')
	if stacked {
		fmt.Fprintf(&b, "%11s   %11s\n", l.Name("before"), l.Name("after"))
	} else {
		fmt.Fprintf(&b, "%-*s%13s   %13s\n", l.Column+1, "", l.Name("before"), l.Name("after"))
	}
	for _, g := range l.groups(before, after) {
		indent := ""
		if g.name != "" {
			b.WriteString(g.name + "\n")
			indent = "  "
		}
		for _, r := range g.rows {
			if stacked {
				b.WriteString(indent + r.name + "\n" + strings.TrimRight(fmt.Sprintf("%s → %s %s", right(r.before, 11), right(r.after, 11), r.change), " ") + "\n")
				continue
			}
			line := fmt.Sprintf("%s %s → %s  %s", left(indent+r.name, l.Column), right(r.before, 13), right(r.after, 13), r.change)
			b.WriteString(strings.TrimRight(line, " ") + "\n")
		}
	}
	b.WriteByte('\n')
	wrapTextTo(&b, l.Say(reason.TableGlossary), wide)
	_, err := io.WriteString(w, b.String())
	return err
}

// TestTableIn writes one test for a terminal in a language: the verdict, then a
// column a phase; at most 78 columns, without colour.
func TestTableIn(w io.Writer, in *reason.Language, t *verdict.Test) error {
	l := language{in}
	if t == nil {
		return ErrNothing
	}
	var b strings.Builder
	if l := clean(t.Label); l != "" {
		wrapText(&b, l)
	}
	head, _ := l.compare(nil, t)
	if g := clean(t.Grade); g != "" && t.Valid {
		head = l.Say(reason.GradeLine, "grade", g, "down", orNone(t.GradeDown), "up", orNone(t.GradeUp)) + head
	}
	wrapText(&b, head)
	phases := t.Phases()
	if len(phases) > 0 {
		b.WriteByte('\n')
		name, col := 18, 12
		b.WriteString(strings.Repeat(" ", name))
		for _, p := range phases {
			b.WriteString(right(l.Name(p.Name), col))
		}
		b.WriteByte('\n')
		for _, f := range l.facts(t) {
			b.WriteString(left(f.name, name))
			for _, c := range f.cells {
				b.WriteString(right(c, col))
			}
			b.WriteByte('\n')
		}
	}
	if s := l.conditions(t); s != "" {
		b.WriteByte('\n')
		wrapText(&b, s)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// conditions says where and when a test was taken.
func (l language) conditions(t *verdict.Test) string {
	var out []string
	if s := clean(t.Server); s != "" {
		out = append(out, l.Say(reason.Conditions, "server", s))
	}
	if s := clean(t.Time); s != "" {
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

func orNone(s string) string {
	if s = clean(s); s == "" {
		return none
	}
	return s
}

// left and right set s in n columns, shortened if it is longer. A rune is taken
// for one column.
func left(s string, n int) string { s = short(s, n); return s + pad(s, n) }

func right(s string, n int) string { s = short(s, n); return pad(s, n) + s }

func pad(s string, n int) string { return strings.Repeat(" ", max(0, n-utf8.RuneCountInString(s))) }

func short(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// wrapText writes s in lines of at most textWidth columns.
func wrapText(b *strings.Builder, s string) { wrapTextTo(b, s, textWidth) }

// wrapTextTo writes s in lines of at most so many columns; a word that is longer is broken.
func wrapTextTo(b *strings.Builder, s string, textWidth int) {
	line := ""
	flush := func() {
		if line != "" {
			b.WriteString(line + "\n")
			line = ""
		}
	}
	for _, word := range strings.Fields(s) {
		if utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > textWidth {
			flush()
		}
		for utf8.RuneCountInString(word) > textWidth {
			r := []rune(word)
			b.WriteString(string(r[:textWidth]) + "\n")
			word = string(r[textWidth:])
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	flush()
}
