package report

import (
	"fmt"

	"unbloat/internal/measure/framing"
	"unbloat/internal/measure/verdict"
	"unbloat/unit"
)

// shownSize is the largest IP packet of the chart of framing: up to there steps and flat parts
// can be seen.
const shownSize = 100

// framingChart draws what small packets occupy on the line, as measured, with the framing that
// was found: a panel a direction. Nil: it was not measured.
func framingChart(t *verdict.Test, l layout) *figure {
	if t == nil || t.Framing == nil {
		return nil
	}
	const head, high, below, gap = 30, 190, 38, 16
	f := newFigure(l.w, 0, "What the line adds to each packet", "Bytes that a packet occupies on the line, by its size in bytes of IP: dots are measured, the line is the framing that was found.", l.rule)
	y := 0.0
	for _, d := range []struct {
		direction direction
		e         *framing.Estimate
	}{{download, t.Framing.Down}, {upload, t.Framing.Up}} {
		if d.e == nil || !d.e.Sure || len(d.e.Sizes) == 0 {
			continue
		}
		p := plot{fig: f, x0: axisWidth, y0: y + head, x1: l.w - rightSpace, y1: y + head + high}
		p.x = linearScale(shownSize, p.x0, p.x1)
		p.y = linearScale(1.1*float64(d.e.Wire(shownSize)), p.y1, p.y0)
		f.text(0, y+16, d.direction.String()+", bytes on the line", font{textSize + 1, true, inkText, atStart})
		p.grid()
		p.across("bytes of IP")
		p.framing(d.e)
		y += head + high + below + gap
	}
	if f.h = y; y == 0 {
		return nil
	}
	return f
}

// framing draws the framing as a line, and each size's measured time as the bytes that pass in it.
func (p plot) framing(e *framing.Estimate) {
	var path []point
	for n := 0; n <= shownSize; n++ {
		x := p.x.at(float64(n))
		at := p.y.at(float64(e.Wire(unit.Size(n))))
		if k := len(path); k > 0 && path[k-1].y != at && e.ATM { // a step, not a slope
			path = append(path, point{x, path[k-1].y})
		}
		path = append(path, point{x, at})
	}
	p.fig.lines([][]point{path}, pen{inkAfter, 1.6, solid})
	for _, s := range e.Sizes {
		n, bytes := float64(s.Size), s.Us*1e-6*float64(e.Rate)/8
		if n < 0 || n > shownSize || !finite(bytes) {
			continue
		}
		p.fig.marker(p.x.at(n), p.y.at(bytes), 2.2, circle, inkText, true)
	}
	words := fmt.Sprintf("adds %d bytes", e.Overhead)
	switch {
	case e.ATM:
		words += ", then cells: 53 bytes for each 48"
	case e.MPU > 0:
		words += fmt.Sprintf(", %d at least", e.MPU)
	}
	p.fig.text(p.x1-8, p.y1-10, words, font{textSize, false, inkText, atEnd})
}
