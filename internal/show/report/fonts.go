// This file measures text in the fonts of reports, and holds these fonts where
// pictures are drawn. How wide their letters are is a table: a font takes as much of a
// router's flash as all the rest of a report.

package report

import (
	_ "embed"
	"strconv"
	"strings"
)

// A Ruler measures text in the two fonts. It is not safe for concurrent use; each
// report makes its own.
type Ruler struct {
	faces
	wide map[rune][2]int // in the regular font and in the bold one
}

// measureSize is the size, in pixels, of the letters in the table.
const measureSize = 100

// widths has a line for each letter of both fonts: its code in hexadecimal, and how wide
// it is in the regular and in the bold font, in 64ths of a pixel at measureSize. Letters
// that the fonts lack are as wide as missing.
//
//go:embed widths.txt
var widths string

// missing is the code of a letter that there never is.
const missing = 0xffff

// NewRuler returns a ruler of the fonts.
func NewRuler() *Ruler {
	r := &Ruler{faces: newFaces(), wide: map[rune][2]int{}}
	for line := range strings.Lines(widths) {
		var n [3]int64
		base := 16
		for i, word := range strings.Fields(line) {
			var err error
			if n[i], err = strconv.ParseInt(word, base, 32); err != nil {
				panic("report: widths.txt: " + err.Error()) // a broken build
			}
			base = 10
		}
		r.wide[rune(n[0])] = [2]int{int(n[1]), int(n[2])}
	}
	return r
}

// Width returns how wide s is at a size, in user units. Browsers choose their
// own font for SVG, some of them wider, so an eighth is added.
func (r *Ruler) Width(s string, size float64, bold bool) float64 {
	face, room := 0, 1.13
	if bold {
		face, room = 1, 1.22
	}
	sum := 0
	for _, c := range s {
		w, is := r.wide[c]
		if !is {
			w = r.wide[missing]
		}
		sum += w[face]
	}
	return float64(sum) / 64 / measureSize * size * room
}

// Wrap breaks s into lines of at most width; a longer word is cut.
func (r *Ruler) Wrap(s string, width, size float64, bold bool) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(s) {
		word = r.Cut(word, width, size, bold)
		if line == "" {
			line = word
		} else if r.Width(line+" "+word, size, bold) <= width {
			line += " " + word
		} else {
			lines = append(lines, line)
			line = word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// Cut shortens s, with an ellipsis, to at most width.
func (r *Ruler) Cut(s string, width, size float64, bold bool) string {
	if r.Width(s, size, bold) <= width {
		return s
	}
	runes := []rune(s)
	for n := len(runes) - 1; n > 0; n-- {
		if t := strings.TrimSpace(string(runes[:n])) + "…"; r.Width(t, size, bold) <= width {
			return t
		}
	}
	return ""
}
