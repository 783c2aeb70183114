package path

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Write prints a result as `mtr -r` does: one line a hop, with the columns
// under load beside the idle ones if there was a load; then the verdict. Where
// both do not fit into width columns they stand below each other; 0 is no limit.
func Write(w io.Writer, r *Result, width int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Start: %s\n", r.Time)
	table := Table(r)
	if width > 0 && r.Load != nil && widest(table) > width {
		table = stacked(r)
	}
	b.WriteString(table)
	b.WriteByte('\n')
	wrap(&b, "", r.Verdict)
	for _, n := range r.Notes {
		wrap(&b, "· ", n)
	}
	if r.Marks != nil {
		r.Marks.write(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Bounds of the column of names, and the width of text.
const (
	leastName = 27
	mostName  = 44
	textWidth = 78
)

// Table returns the lines of the hops, with their heads.
func Table(r *Result) string {
	width := leastName
	for _, h := range r.Hops {
		width = min(max(width, utf8.RuneCountInString(label(h))), mostName)
	}
	var b strings.Builder
	two := r.Load != nil
	if two {
		const block = 46
		fmt.Fprintf(&b, "%-*s  %s   %s\n", width+6, "", left("idle", block), "under "+r.Load.words()+" load")
	}
	line := left("HOST: "+r.Host, width+6) + heads()
	if two {
		line += "  |" + heads() + "    +p50    +p95"
	}
	b.WriteString(line + "\n")
	for _, h := range r.Hops {
		line := fmt.Sprintf("%3d.|-- %s", h.Hop, left(label(h), width-2)) + columns(h.Idle)
		if two {
			line += "  |" + columns(h.Loaded) + added(h.Increase)
			if r.Begins != nil && r.Begins.Hop == h.Hop {
				line += "  ◄ begins " + r.Begins.Place.Words()
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	if n := len(r.Hops); n > 0 && !r.Reached && r.Hops[n-1].Refusal == "" {
		fmt.Fprintf(&b, "%3d.|-- ???\n", n+1)
	}
	return b.String()
}

// widest returns the length of the longest line without the note of where the
// increase begins, which may wrap.
func widest(table string) int {
	n := 0
	for _, line := range strings.Split(table, "\n") {
		line, _, _ = strings.Cut(line, "  ◄")
		n = max(n, utf8.RuneCountInString(line))
	}
	return n
}

// stacked returns the lines of the hops idle, and below them under load.
func stacked(r *Result) string {
	const name = 16
	var b strings.Builder
	for _, p := range []struct {
		title  string
		of     func(HopFigures) *Figures
		loaded bool
	}{{"idle", func(h HopFigures) *Figures { return h.Idle }, false}, {"under " + r.Load.words() + " load", func(h HopFigures) *Figures { return h.Loaded }, true}} {
		if p.loaded {
			b.WriteByte('\n')
		}
		line := left(p.title, 4+name) + heads()
		if p.loaded {
			line += fmt.Sprintf("%9s", "+p95")
		}
		b.WriteString(line + "\n")
		for _, h := range r.Hops {
			line := fmt.Sprintf("%3d %s", h.Hop, left(label(h), name)) + columns(p.of(h))
			if p.loaded && h.Increase != nil {
				line += fmt.Sprintf("%+9.1f", h.Increase.P95+0)
			}
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			if p.loaded && r.Begins != nil && r.Begins.Hop == h.Hop {
				b.WriteString("    ▲ begins " + r.Begins.Place.Words() + "\n")
			}
		}
	}
	return b.String()
}

// label is how a hop is called: by its name if that is known.
func label(h HopFigures) string {
	s := h.Address
	if h.Name != "" {
		s = h.Name + " (" + h.Address + ")"
	}
	s = cmp.Or(s, "???")
	if n := len(h.Others); n > 0 {
		s += fmt.Sprintf(" +%d", n)
	}
	if h.Refusal != "" {
		s += " !"
	}
	return s
}

func heads() string {
	return fmt.Sprintf("%6s %5s%7s%7s%7s%7s%7s", "Loss%", "Snt", "Last", "Avg", "Best", "Wrst", "StDev")
}

// columns are the figures of one phase; empty of a phase that has not begun.
func columns(f *Figures) string {
	if f == nil {
		return strings.Repeat(" ", 46)
	}
	return fmt.Sprintf("%5.1f%% %5d%s%s%s%s%s", 100*f.Loss, f.Sent,
		tenths(f.LastMs), tenths(f.AvgMs), tenths(f.BestMs), tenths(f.WorstMs), tenths(f.StDevMs))
}

// tenths prints ms in seven columns.
func tenths(ms float64) string {
	if ms >= 9999.5 {
		return fmt.Sprintf("%7.0f", ms)
	}
	return fmt.Sprintf("%7.1f", ms)
}

func added(i *Increase) string {
	if i == nil {
		return fmt.Sprintf("%8s%8s", "–", "–")
	}
	return fmt.Sprintf("%+8.1f%+8.1f", i.P50+0, i.P95+0)
}

// left sets s in n columns, shortened if it is longer. A rune is taken for one column.
func left(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s + strings.Repeat(" ", n-utf8.RuneCountInString(s))
}

// wrap writes s in lines of at most textWidth columns, the first after mark and
// the others indented as far.
func wrap(b *strings.Builder, mark, s string) {
	indent := strings.Repeat(" ", utf8.RuneCountInString(mark))
	line := ""
	for _, word := range strings.Fields(s) {
		if line != "" && utf8.RuneCountInString(mark+line)+1+utf8.RuneCountInString(word) > textWidth {
			b.WriteString(mark + line + "\n")
			line, mark = "", indent
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	if line != "" {
		b.WriteString(mark + line + "\n")
	}
}
