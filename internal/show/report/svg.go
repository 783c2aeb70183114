package report

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
)

// svgMode says where an SVG element will stand.
type svgMode int

const (
	standalone svgMode = iota // a file of its own, with its styles and paper
	inline                    // inside an HTML page that has the styles
)

const fontStack = `system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,"Liberation Sans",sans-serif`

// writeSVG renders the figure as one <svg> element.
func (f *figure) writeSVG(b *bytes.Buffer, mode svgMode) error {
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" role="img"`, num(f.w), num(f.h))
	if mode == standalone {
		fmt.Fprintf(b, ` width="%s" height="%s"`, num(f.w), num(f.h))
	}
	fmt.Fprintf(b, ` aria-label="%s">`, markup(f.title))
	fmt.Fprintf(b, "<title>%s</title><desc>%s</desc>", markup(f.title), markup(f.desc))
	if mode == standalone {
		fmt.Fprintf(b, "<style>%s%s</style>", svgCSS(), inkCSS())
		fmt.Fprintf(b, `<rect class="f%d" width="%s" height="%s"/>`, inkPaper, num(f.w), num(f.h))
	}
	for i := range f.marks {
		f.marks[i].writeSVG(b)
	}
	b.WriteString("</svg>")
	if mode == standalone {
		b.WriteString("\n")
	}
	return nil
}

// svgCSS returns the rules for texts and lines.
func svgCSS() string {
	return "text{font-family:" + fontStack + ";font-variant-numeric:tabular-nums}" +
		"text.b{font-weight:600}text.m{text-anchor:middle}text.e{text-anchor:end}" +
		"path{fill:none;stroke-linejoin:round;stroke-linecap:butt}"
}

func (m *mark) writeSVG(b *bytes.Buffer) {
	if m.text != "" {
		class := fmt.Sprintf("f%d", m.font.ink)
		if m.font.bold {
			class += " b"
		}
		class += [...]string{"", " m", " e"}[m.font.at]
		fmt.Fprintf(b, `<text class="%s" x="%s" y="%s" font-size="%s">%s</text>`,
			class, num(m.at.x), num(m.at.y), num(m.font.size), markup(m.text))
		return
	}
	b.WriteString(`<path class="`)
	sep := ""
	if m.fill != inkNone {
		fmt.Fprintf(b, "f%d", m.fill)
		sep = " "
	}
	if m.stroke.ink != inkNone {
		fmt.Fprintf(b, "%ss%d", sep, m.stroke.ink)
	}
	b.WriteString(`"`)
	if m.fill != inkNone && m.alpha < 1 {
		fmt.Fprintf(b, ` fill-opacity="%s"`, strconv.FormatFloat(m.alpha, 'g', 3, 64))
	}
	if m.stroke.ink != inkNone {
		fmt.Fprintf(b, ` stroke-width="%s"`, num(m.stroke.width))
		if p := m.stroke.dash.pattern(); p != nil {
			b.WriteString(` stroke-dasharray="`)
			for i, v := range p {
				if i > 0 {
					b.WriteByte(' ')
				}
				b.WriteString(num(v))
			}
			b.WriteByte('"')
		}
	}
	b.WriteString(` d="`)
	for _, path := range m.paths {
		writePath(b, path, m.closed)
	}
	b.WriteString(`"/>`)
}

// writePath writes path data in tenths of a unit, relative, so that a long
// line stays short in bytes and its rounding does not add up.
func writePath(b *bytes.Buffer, path []point, closed bool) {
	px, py := 0, 0
	for i, p := range path {
		x, y := tenths(p.x), tenths(p.y)
		switch dx, dy := x-px, y-py; {
		case i == 0:
			b.WriteByte('M')
			writePair(b, x, y)
		case dx == 0 && dy == 0:
			continue
		case dy == 0:
			b.WriteByte('h')
			writeTenths(b, dx)
		case dx == 0:
			b.WriteByte('v')
			writeTenths(b, dy)
		default:
			b.WriteByte('l')
			writePair(b, dx, dy)
		}
		px, py = x, y
	}
	if closed {
		b.WriteByte('z')
	}
}

func writePair(b *bytes.Buffer, x, y int) {
	writeTenths(b, x)
	if y >= 0 {
		b.WriteByte(' ')
	}
	writeTenths(b, y)
}

func writeTenths(b *bytes.Buffer, v int) {
	if v < 0 {
		b.WriteByte('-')
		v = -v
	}
	if v >= 10 || v == 0 {
		b.WriteString(strconv.Itoa(v / 10))
	}
	if v%10 != 0 {
		b.WriteByte('.')
		b.WriteByte(byte('0' + v%10))
	}
}

func tenths(v float64) int {
	if math.IsNaN(v) {
		return 0
	}
	return int(math.Round(min(1e6, max(-1e6, v)) * 10))
}

// num prints a coordinate with at most one decimal.
func num(v float64) string {
	var b bytes.Buffer
	writeTenths(&b, tenths(v))
	return b.String()
}
