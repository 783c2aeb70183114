//go:build !router

package report

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math"

	xfont "golang.org/x/image/font"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/gofont/goregular"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
	"golang.org/x/image/vector"
)

// writePNG renders the figure in a theme, scale pixels to a unit.
func (f *figure) writePNG(b *bytes.Buffer, t theme, scale float64) error {
	w, h := int(math.Ceil(f.w*scale)), int(math.Ceil(f.h*scale))
	img := image.NewRGBA(image.Rect(0, 0, w, h))
	draw.Draw(img, img.Bounds(), image.NewUniform(t[inkPaper]), image.Point{}, draw.Src)
	p := painter{img: img, scale: scale, rule: f.rule, faces: map[font]xfont.Face{}}
	for i := range f.marks {
		p.paint(&f.marks[i], t)
	}
	return png.Encode(b, img)
}

// painter rasterises marks.
type painter struct {
	img   *image.RGBA
	scale float64
	rule  *Ruler
	faces map[font]xfont.Face // by size and weight
	ras   vector.Rasterizer
}

func (p *painter) paint(m *mark, t theme) {
	if m.text != "" {
		p.write(m, t[m.font.ink])
		return
	}
	if m.fill != inkNone {
		c := t[m.fill]
		a := m.alpha
		over := color.NRGBA{c.R, c.G, c.B, uint8(math.Round(255 * a))}
		p.fill(p.scaled(m.paths), over)
	}
	if m.stroke.ink != inkNone {
		var quads [][]point
		for _, path := range p.scaled(m.paths) {
			if m.closed && len(path) > 0 {
				path = append(path, path[0])
			}
			for _, piece := range dashes(path, m.stroke.dash.pattern(), p.scale) {
				quads = append(quads, outline(piece, m.stroke.width*p.scale/2)...)
			}
		}
		p.fill(quads, t[m.stroke.ink])
	}
}

func (p *painter) scaled(paths [][]point) [][]point {
	out := make([][]point, len(paths))
	for i, path := range paths {
		out[i] = make([]point, len(path), len(path)+1)
		for j, q := range path {
			out[i][j] = point{q.x * p.scale, q.y * p.scale}
		}
	}
	return out
}

// fill paints the union of polygons of the same turning direction.
func (p *painter) fill(polys [][]point, c color.Color) {
	x0, y0, x1, y1 := math.Inf(1), math.Inf(1), math.Inf(-1), math.Inf(-1)
	for _, poly := range polys {
		for _, q := range poly {
			x0, y0, x1, y1 = min(x0, q.x), min(y0, q.y), max(x1, q.x), max(y1, q.y)
		}
	}
	if math.IsInf(x0, 0) || math.IsNaN(x0+y0+x1+y1) {
		return
	}
	box := image.Rect(int(math.Floor(x0)), int(math.Floor(y0)), int(math.Ceil(x1))+1, int(math.Ceil(y1))+1).Intersect(p.img.Bounds())
	if box.Empty() {
		return
	}
	p.ras.Reset(box.Dx(), box.Dy())
	ox, oy := float64(box.Min.X), float64(box.Min.Y)
	for _, poly := range polys {
		for i, q := range poly {
			x, y := float32(q.x-ox), float32(q.y-oy)
			if i == 0 {
				p.ras.MoveTo(x, y)
			} else {
				p.ras.LineTo(x, y)
			}
		}
		p.ras.ClosePath()
	}
	p.ras.Draw(p.img, box, image.NewUniform(c), image.Point{})
}

// outline returns the polygons that a pen of half-width r covers along a path:
// one box a segment, and a round join where it turns. All turn the same way.
func outline(path []point, r float64) [][]point {
	var out [][]point
	for i := 1; i < len(path); i++ {
		a, b := path[i-1], path[i]
		dx, dy := b.x-a.x, b.y-a.y
		n := math.Hypot(dx, dy)
		if n == 0 || math.IsNaN(n) {
			continue
		}
		nx, ny := -dy/n*r, dx/n*r
		out = append(out, []point{{a.x + nx, a.y + ny}, {a.x - nx, a.y - ny}, {b.x - nx, b.y - ny}, {b.x + nx, b.y + ny}})
		if i+1 < len(path) {
			out = append(out, joint(b, r))
		}
	}
	return out
}

// joint is a small circle, turning as outline's boxes do.
func joint(c point, r float64) []point {
	out := make([]point, 0, 8)
	for i := range 8 {
		sin, cos := unitCircle(i, 8)
		out = append(out, point{c.x + r*cos, c.y + r*sin})
	}
	return out
}

// dashes cuts a path into the pieces that a pattern of on and off lengths leaves.
func dashes(path []point, pattern []float64, scale float64) [][]point {
	if len(pattern) == 0 || len(path) < 2 {
		return [][]point{path}
	}
	var out [][]point
	piece := []point{path[0]}
	k, left, on := 0, pattern[0]*scale, true
	for i := 1; i < len(path); i++ {
		a, b := path[i-1], path[i]
		n := math.Hypot(b.x-a.x, b.y-a.y)
		for done := 0.0; done < n; {
			step := min(left, n-done)
			done += step
			left -= step
			q := point{a.x + (b.x-a.x)*done/n, a.y + (b.y-a.y)*done/n}
			if on {
				piece = append(piece, q)
			}
			if left <= 1e-9 {
				if on {
					out = append(out, piece)
				}
				on, k = !on, (k+1)%len(pattern)
				left, piece = pattern[k]*scale, []point{q}
			}
		}
	}
	if on && len(piece) > 1 {
		out = append(out, piece)
	}
	return out
}

// write draws a text.
func (p *painter) write(m *mark, c color.Color) {
	key := font{size: m.font.size, bold: m.font.bold}
	face := p.faces[key]
	if face == nil {
		face = p.rule.Face(m.font.size*p.scale, m.font.bold)
		p.faces[key] = face
	}
	d := xfont.Drawer{Dst: p.img, Src: image.NewUniform(c), Face: face}
	x := m.at.x * p.scale
	w := float64(d.MeasureString(m.text)) / 64
	switch m.font.at {
	case atMiddle:
		x -= w / 2
	case atEnd:
		x -= w
	}
	d.Dot = fixed.Point26_6{X: fixed.Int26_6(x * 64), Y: fixed.Int26_6(m.at.y * p.scale * 64)}
	d.DrawString(m.text)
}

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
