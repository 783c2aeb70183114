// Package terminal draws how a test, a tuning or a trace goes, for a terminal of
// any size. Views are pure: events and the time come in, a screen of text goes out;
// Screen shows them.
//
// What a colour says, a sign or a word says too.
package terminal

import (
	"strings"
	"unicode"
)

// An Options says what a terminal can show.
type Options struct {
	Width, Height int
	Colour        bool // false: NO_COLOR; bold is used still
	ASCII         bool // no box drawing, no braille, no arrows
}

// style is how a cell looks.
type style uint8

const (
	plain style = iota
	bold
	dim
	good
	bad
	accent
	downward
	upward
	styles
)

// codes are the styles' SGR parameters (ECMA-48), of the sixteen colours that
// every theme chooses for itself.
func (s style) code(colour bool) string {
	if !colour {
		return [styles]string{bold: "1", accent: "1"}[s]
	}
	return [styles]string{bold: "1", dim: "90", good: "32", bad: "31", accent: "1;33", downward: "36", upward: "35"}[s]
}

type cell struct {
	r rune
	s style
}

// canvas is a screen of cells. A rune is taken for one column: texts from
// outside are cleaned of those that are not.
type canvas struct {
	w, h  int
	cells []cell
}

func newCanvas(w, h int) *canvas {
	c := &canvas{w: w, h: h, cells: make([]cell, w*h)}
	for i := range c.cells {
		c.cells[i].r = ' '
	}
	return c
}

// pane is a part of a canvas; what would lie outside it is not drawn.
type pane struct {
	c          *canvas
	x, y, w, h int
}

func (c *canvas) all() pane { return pane{c, 0, 0, c.w, c.h} }

// part returns a pane within p, cut to it.
func (p pane) part(x, y, w, h int) pane {
	x, y = min(max(x, 0), p.w), min(max(y, 0), p.h)
	return pane{p.c, p.x + x, p.y + y, min(max(w, 0), p.w-x), min(max(h, 0), p.h-y)}
}

func (p pane) set(x, y int, r rune, s style) {
	if x >= 0 && y >= 0 && x < p.w && y < p.h {
		p.c.cells[(p.y+y)*p.c.w+p.x+x] = cell{r, s}
	}
}

// text writes s from x on and returns the column behind it.
func (p pane) text(x, y int, s string, st style) int {
	for _, r := range s {
		p.set(x, y, r, st)
		x++
	}
	return x
}

// right writes s so that it ends before column x, and returns where it begins.
func (p pane) right(x, y int, s string, st style) int {
	at := x - width(s)
	p.text(at, y, s, st)
	return at
}

// box draws a frame with a title, and returns what is within. A pane too small
// for a frame, or narrow, gets a line with the title instead.
func (p pane) box(title, note string, narrow bool) pane {
	if p.h < 1 || p.w < 4 {
		return p.part(0, 0, 0, 0)
	}
	left, right := '╭', '╮'
	if narrow {
		left, right = '─', '─'
	}
	for x := range p.w {
		p.set(x, 0, '─', dim)
	}
	p.set(0, 0, left, dim)
	p.set(p.w-1, 0, right, dim)
	end := p.text(2, 0, " "+title+" ", bold)
	if note = " " + note + " "; width(note) > 2 && end+width(note) < p.w {
		p.right(p.w-2, 0, note, plain)
	}
	if narrow {
		return p.part(0, 1, p.w, p.h-1)
	}
	for y := 1; y < p.h-1; y++ {
		p.set(0, y, '│', dim)
		p.set(p.w-1, y, '│', dim)
	}
	for x := range p.w {
		p.set(x, p.h-1, '─', dim)
	}
	p.set(0, p.h-1, '╰', dim)
	p.set(p.w-1, p.h-1, '╯', dim)
	return p.part(2, 1, p.w-4, p.h-2)
}

// render returns the lines of the canvas with their styles.
func (c *canvas) render(o Options) string {
	var b strings.Builder
	for y := range c.h {
		if y > 0 {
			b.WriteByte('\n')
		}
		line := c.cells[y*c.w : (y+1)*c.w]
		for len(line) > 0 && line[len(line)-1].r == ' ' {
			line = line[:len(line)-1]
		}
		now := ""
		for _, k := range line {
			code := k.s.code(o.Colour)
			if k.r == ' ' {
				code = now // a space looks the same in any colour
			}
			if code != now {
				b.WriteString("\x1b[0")
				if code != "" {
					b.WriteString(";" + code)
				}
				b.WriteByte('m')
				now = code
			}
			if o.ASCII {
				b.WriteRune(ascii(k.r))
			} else {
				b.WriteRune(k.r)
			}
		}
		if now != "" {
			b.WriteString("\x1b[0m")
		}
	}
	return b.String()
}

// ascii returns what stands for a rune where only ASCII is shown.
func ascii(r rune) rune {
	switch {
	case r < 0x80:
		return r
	case r == brailleBase:
		return ' '
	case r > brailleBase && r < brailleBase+256, r >= '▁' && r <= '█':
		return '*'
	}
	for _, t := range []struct {
		from string
		to   rune
	}{{"╭╮╰╯┼┬┴", '+'}, {"─━╌", '-'}, {"│┃┊┤├", '|'}, {"✓", '*'}, {"✗", 'x'}, {"▶→", '>'}, {"◄", '<'}, {"↓", 'v'}, {"↑", '^'}, {"·…", '.'}, {"–", '-'}, {"×", 'x'}, {"●", 'o'}, {"äÄ", 'a'}, {"öÖ", 'o'}, {"üÜ", 'u'}, {"ß", 's'}} {
		if strings.ContainsRune(t.from, r) {
			return t.to
		}
	}
	return '?'
}

// clean makes a text from outside safe: no control characters, which a
// terminal would obey, and none that take more or less than one column.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case !unicode.IsPrint(r) || unicode.Is(unicode.Mn, r):
			return '?'
		case r >= 0x1100 && r != '…' && r != '–' && (r < 0x2000 || r > 0x2bff):
			return '?'
		}
		return r
	}, s)
}

func width(s string) int { return len([]rune(s)) }

// cut shortens s to n columns.
func cut(s string, n int) string {
	r := []rune(s)
	switch {
	case len(r) <= n:
		return s
	case n < 1:
		return ""
	}
	return string(r[:n-1]) + "…"
}
