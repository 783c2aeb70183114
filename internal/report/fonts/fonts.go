// Package fonts holds the fonts of reports and measures text in them.
package fonts

import (
	"strings"

	xfont "golang.org/x/image/font"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
)

// A Ruler measures and holds the fonts. It is not safe for concurrent use; each
// report makes its own.
type Ruler struct {
	regular, bold *opentype.Font
	wide          [2]xfont.Face // regular and bold at measureSize
}

const measureSize = 100

// NewRuler returns a ruler of the fonts that are part of the program.
func NewRuler() *Ruler {
	r := &Ruler{regular: mustParse(goregular.TTF), bold: mustParse(bold())}
	r.wide[0], r.wide[1] = mustFace(r.regular, measureSize), mustFace(r.bold, measureSize)
	return r
}

// mustParse reads a font that is part of the program; a broken one is a broken build.
func mustParse(ttf []byte) *opentype.Font {
	f, err := opentype.Parse(ttf)
	if err != nil {
		panic("report: built-in font: " + err.Error())
	}
	return f
}

func mustFace(f *opentype.Font, size float64) xfont.Face {
	face, err := opentype.NewFace(f, &opentype.FaceOptions{Size: size, DPI: 72, Hinting: xfont.HintingNone})
	if err != nil {
		panic("report: built-in font: " + err.Error())
	}
	return face
}

// Face returns a face of the font at size, in pixels.
func (r *Ruler) Face(size float64, bold bool) xfont.Face {
	if bold {
		return mustFace(r.bold, size)
	}
	return mustFace(r.regular, size)
}

// Width returns how wide s is at a size, in user units. Browsers choose their
// own font for SVG, some of them wider, so an eighth is added.
func (r *Ruler) Width(s string, size float64, bold bool) float64 {
	face, room := r.wide[0], 1.13
	if bold {
		face, room = r.wide[1], 1.22
	}
	return float64(xfont.MeasureString(face, s)) / 64 / measureSize * size * room
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
