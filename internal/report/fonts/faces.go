//go:build !omit_tui

package fonts

import (
	xfont "golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
)

// faces are the fonts themselves, with which pictures are drawn.
type faces struct{ regular, bold *opentype.Font }

func newFaces() faces { return faces{mustParse(goregular.TTF), mustParse(gobold.TTF)} }

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
func (f faces) Face(size float64, bold bool) xfont.Face {
	if bold {
		return mustFace(f.bold, size)
	}
	return mustFace(f.regular, size)
}
