//go:build !router

package report

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	xfont "golang.org/x/image/font"
	"golang.org/x/image/font/sfnt"
)

// TestWidths: the table has each letter of the fonts, and is as wide as they are.
func TestWidths(t *testing.T) {
	r := NewRuler()
	regular, bold := r.Face(measureSize, false), r.Face(measureSize, true)
	var want strings.Builder
	var buffer sfnt.Buffer
	for c := rune(0); c <= 0xffff; c++ {
		var in [2]sfnt.GlyphIndex
		for i, f := range []*sfnt.Font{r.regular, r.bold} {
			var err error
			if in[i], err = f.GlyphIndex(&buffer, c); err != nil {
				t.Fatal(err)
			}
		}
		if (in[0] == 0) != (in[1] == 0) {
			t.Fatalf("%U is in one font only", c)
		}
		if c == missing || in[0] != 0 {
			narrow, _ := regular.GlyphAdvance(c)
			wide, _ := bold.GlyphAdvance(c)
			fmt.Fprintf(&want, "%x %d %d\n", c, narrow, wide)
		}
	}
	if *update {
		if err := os.WriteFile("widths.txt", []byte(want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if widths != want.String() {
		t.Error("widths.txt is not as the fonts are; -update writes it")
	}
	for _, s := range []string{"", "To the line: 4.1 of 4.9 Mbit/s", "Größe ≤ 5 ms → A+", "日本 \U0001f600", "AVATAR To Ty fi"} {
		for i, face := range []xfont.Face{regular, bold} {
			got := r.Width(s, measureSize, i == 1) / []float64{1.13, 1.22}[i]
			if want := float64(xfont.MeasureString(face, s)) / 64; math.Abs(got-want) > 1e-9 {
				t.Errorf("%q is %v wide, with the font %v", s, got, want)
			}
		}
	}
}
