package report

import (
	"math"
	"strings"
)

// A figure is a picture as a list of marks in user units, y downwards. It
// names inks, not colours: the theme that renders it chooses those. SVG and
// PNG are made from the same marks.
type figure struct {
	w, h        float64
	title, desc string // for screen readers
	marks       []mark
	rule        *Ruler
}

// point is a place in a figure.
type point struct{ x, y float64 }

// ink is a colour by its role.
type ink int

const (
	inkNone ink = iota
	inkText
	inkMuted
	inkGrid
	inkBand
	inkPaper
	inkBefore
	inkAfter
	inkIdle
	inkDownload
	inkUpload
	inkBoth
	inkLoaded
	inkGood
	inkFair
	inkBad
	inkCount
)

// dash is a line style, so that colour is never the only difference.
type dash int

const (
	solid dash = iota
	dashed
	dotted
	dashDot
	longDash
)

// pattern returns the on and off lengths of a dash, nil for a solid line.
func (d dash) pattern() []float64 {
	switch d {
	case dashed:
		return []float64{6, 3.5}
	case dotted:
		return []float64{1.6, 2.8}
	case dashDot:
		return []float64{8, 3, 1.8, 3}
	case longDash:
		return []float64{12, 4}
	}
	return nil
}

// pen draws lines.
type pen struct {
	ink   ink
	width float64
	dash  dash
}

// anchor says which end of a text lies at its point.
type anchor int

const (
	atStart anchor = iota
	atMiddle
	atEnd
)

// font is how a text looks.
type font struct {
	size float64
	bold bool
	ink  ink
	at   anchor
}

// mark is one element: paths that are filled or stroked, or a text.
type mark struct {
	paths  [][]point
	closed bool
	fill   ink
	alpha  float64 // of the fill
	stroke pen
	text   string
	at     point
	font   font
}

func newFigure(w, h float64, title, desc string, r *Ruler) *figure {
	return &figure{w: w, h: h, title: title, desc: desc, rule: r}
}

// lines strokes open paths as one mark. Paths of fewer than two points are left out.
func (f *figure) lines(paths [][]point, p pen) {
	var keep [][]point
	for _, path := range paths {
		if len(path) > 1 {
			keep = append(keep, path)
		}
	}
	if len(keep) > 0 {
		f.marks = append(f.marks, mark{paths: keep, stroke: p})
	}
}

// line strokes one segment.
func (f *figure) line(x1, y1, x2, y2 float64, p pen) {
	f.lines([][]point{{{x1, y1}, {x2, y2}}}, p)
}

// areas fills closed paths as one mark.
func (f *figure) areas(paths [][]point, fill ink, alpha float64) {
	if len(paths) > 0 {
		f.marks = append(f.marks, mark{paths: paths, closed: true, fill: fill, alpha: alpha})
	}
}

// rect fills a rectangle.
func (f *figure) rect(x, y, w, h float64, fill ink, alpha float64) {
	f.areas([][]point{{{x, y}, {x + w, y}, {x + w, y + h}, {x, y + h}}}, fill, alpha)
}

// text writes s with its baseline at (x, y).
func (f *figure) text(x, y float64, s string, ft font) {
	if s != "" {
		f.marks = append(f.marks, mark{text: s, at: point{x, y}, font: ft})
	}
}

// fit writes s within a width: closer set, smaller, and only then cut.
func (f *figure) fit(x, y float64, s string, width float64, ft font) {
	if f.rule.Width(s, ft.size, ft.bold) > width {
		s = strings.ReplaceAll(s, " → ", "→")
	}
	for ft.size > 9 && f.rule.Width(s, ft.size, ft.bold) > width {
		ft.size -= 0.5
	}
	f.text(x, y, f.rule.Cut(s, width+6, ft.size, ft.bold), ft)
}

// shape is the form of a data marker.
type shape int

const (
	circle shape = iota
	diamond
	square
	triangle
)

// marker draws a data marker of radius r; hollow ones are filled with paper.
func (f *figure) marker(x, y, r float64, s shape, c ink, hollow bool) {
	var path []point
	switch s {
	case diamond:
		path = []point{{x, y - r*1.25}, {x + r*1.25, y}, {x, y + r*1.25}, {x - r*1.25, y}}
	case square:
		path = []point{{x - r, y - r}, {x + r, y - r}, {x + r, y + r}, {x - r, y + r}}
	case triangle:
		path = []point{{x, y - r*1.2}, {x + r*1.2, y + r}, {x - r*1.2, y + r}}
	default:
		for i := range 12 {
			sin, cos := unitCircle(i, 12)
			path = append(path, point{x + r*cos, y + r*sin})
		}
	}
	fill := c
	if hollow {
		fill = inkPaper
	}
	f.marks = append(f.marks, mark{paths: [][]point{path}, closed: true, fill: fill, alpha: 1, stroke: pen{c, 1.6, solid}})
}

// place copies the marks of g into f, moved by (x, y).
func (f *figure) place(x, y float64, g *figure) {
	for _, m := range g.marks {
		moved := m
		moved.at = point{m.at.x + x, m.at.y + y}
		moved.paths = nil
		for _, path := range m.paths {
			p := make([]point, len(path))
			for i, q := range path {
				p[i] = point{q.x + x, q.y + y}
			}
			moved.paths = append(moved.paths, p)
		}
		f.marks = append(f.marks, moved)
	}
}

func unitCircle(i, n int) (sin, cos float64) {
	return math.Sincos(2 * math.Pi * float64(i) / float64(n))
}
