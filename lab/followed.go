package lab

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"unbloat/internal/keep/follow"
	"unbloat/lab/scenario"
	"unbloat/unit"
)

// FollowLog is all that the daemon measured and decided while it followed a case's line.
type FollowLog struct {
	Began unit.Instant `json:"began_ns"` // when the measuring began, and with it the changes of the line
	Text  string       `json:"text"`     // as follow.Replay reads it
}

// Places in the figure, in its own units.
const (
	figureWide  = 860.0
	figureLeft  = 62.0
	figureRight = 14.0
)

// A panel is a part of the figure: from top on, so high, with values from 0 to most.
type panel struct {
	title     string
	top, high float64
	most      float64
}

func (p panel) y(v float64) float64 { return p.top + p.high*(1-min(max(v/p.most, 0), 1)) }

// situationInks are the colours of situations; what has none is left blank.
func situationInks() map[follow.Kind]string {
	return map[follow.Kind]string{
		follow.IsQueueing: "#c0392b", follow.IsDraining: "#e67e22", follow.IsDrained: "#f1c40f", follow.IsRefilling: "#f1c40f", follow.IsUnclear: "#e67e22",
		follow.IsRoom: "#27ae60", follow.IsFloor: "#8e44ad", follow.IsBlind: "#7f8c8d", follow.IsOutage: "#000000", follow.IsBack: "#7f8c8d", follow.IsShaped: "#2980b9",
	}
}

// Figure draws the log as SVG: for each direction what the line carries and the shaper's
// rate, the delay, and the situation that the controller saw.
func (l FollowLog) Figure(s *scenario.Scenario) ([]byte, error) {
	from := l.Began.Add(s.Test.Idle)
	seconds := s.Test.Seconds.Seconds()
	x := func(at time.Duration) float64 {
		return figureLeft + (figureWide-figureLeft-figureRight)*min(max(at.Seconds()/seconds, 0), 1)
	}
	mostRate := func(of func(scenario.Change) unit.Rate, first unit.Rate) float64 {
		for _, c := range s.Line.Vary {
			first = max(first, of(c))
		}
		return 1.25 * first.Mbit()
	}
	lineOf := [2]func(scenario.Change) unit.Rate{func(c scenario.Change) unit.Rate { return c.Down }, func(c scenario.Change) unit.Rate { return c.Up }}
	firsts := [2]unit.Rate{s.Line.Down, s.Line.Up}
	rates := [2]panel{{"Mbit/s down", 26, 120, mostRate(lineOf[0], firsts[0])}, {"Mbit/s up", 176, 120, mostRate(lineOf[1], firsts[1])}}
	delay := panel{"ms of queue", 326, 80, 100}
	strips := [2]float64{430, 448}

	var paths [2]path // of the rates
	var delays [2]path
	var bands bytes.Buffer
	var since [2]time.Duration
	var was [2]follow.Kind
	inks := situationInks()
	band := func(d int, to time.Duration) {
		if ink := inks[was[d]]; ink != "" && to > since[d] {
			fmt.Fprintf(&bands, `<rect x="%.1f" y="%.0f" width="%.1f" height="12" fill="%s"/>`, x(since[d]), strips[d], x(to)-x(since[d]), ink)
		}
	}
	end := time.Duration(seconds * 1e9)
	drawn := 0
	err := follow.Replay(strings.NewReader(l.Text), func(r follow.Replayed) {
		at := r.Now.Sub(from)
		if at < 0 || at > end {
			return
		}
		drawn++
		for d := range paths {
			is := r.Controller.Situation(follow.Direction(d))
			paths[d].to(x(at), rates[d].y(r.Decision.Rate[d].Mbit()))
			delays[d].to(x(at), delay.y(unit.Ms(is.Delay)))
			if is.Is != was[d] {
				band(d, at)
				was[d], since[d] = is.Is, at
			}
		}
	})
	if err != nil {
		return nil, err
	}
	if drawn == 0 {
		return nil, fmt.Errorf("draw what was followed: the log has nothing of the measured %.0f s", seconds)
	}
	for d := range was {
		band(d, end)
		fmt.Fprintf(&paths[d], "H%.1f", x(end))
		fmt.Fprintf(&delays[d], "H%.1f", x(end))
	}

	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f 520" width="%.0f" height="520" role="img" font-family="sans-serif" font-size="12">`, figureWide, figureWide)
	fmt.Fprintf(&b, "<title>%s, followed</title><rect width=\"%.0f\" height=\"520\" fill=\"#ffffff\"/>\n", s.Title, figureWide)
	for _, p := range append(rates[:], delay) {
		fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" font-weight="bold">%s</text>`, figureLeft, p.top-6, p.title)
		for _, v := range []float64{0, p.most / 2, p.most} {
			fmt.Fprintf(&b, `<path d="M%.1f %.1fH%.1f" stroke="#dddddd"/><text x="%.1f" y="%.1f" text-anchor="end" fill="#555555">%.4g</text>`, figureLeft, p.y(v), figureWide-figureRight, figureLeft-6, p.y(v)+4, v)
		}
		b.WriteByte('\n')
	}
	for d, p := range rates {
		var line path
		now := firsts[d]
		line.to(x(0), p.y(now.Mbit()))
		for _, c := range s.Line.Vary {
			if r := lineOf[d](c); r > 0 || c.Exact {
				now = r
			}
			if at := c.At - s.Test.Idle; at <= end {
				line.to(x(at), p.y(now.Mbit()))
			}
		}
		fmt.Fprintf(&line, "H%.1f", x(end))
		fmt.Fprintf(&b, "<path d=\"%s\" fill=\"none\" stroke=\"#999999\" stroke-width=\"2\" stroke-dasharray=\"5 3\"/>\n", line.String())
		fmt.Fprintf(&b, "<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\"/>\n", paths[d].String(), wayInks()[d])
		fmt.Fprintf(&b, "<path d=\"%s\" fill=\"none\" stroke=\"%s\"/>\n", delays[d].String(), wayInks()[d])
		fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" text-anchor="end">%s</text>`, figureLeft-6, strips[d]+10, follow.Direction(d))
	}
	b.Write(bands.Bytes())
	for at := time.Duration(0); at <= end; at += 10 * time.Second {
		fmt.Fprintf(&b, `<text x="%.1f" y="478" text-anchor="middle" fill="#555555">%.0f s</text>`, x(at), at.Seconds())
	}
	left := figureLeft
	fmt.Fprintf(&b, "\n<text x=\"%.0f\" y=\"500\" fill=\"#555555\">dashed: what the line carries; blank: nothing to do</text>", left)
	left += 316
	for _, k := range []follow.Kind{follow.IsRoom, follow.IsQueueing, follow.IsDraining, follow.IsDrained, follow.IsShaped, follow.IsBlind} {
		fmt.Fprintf(&b, `<rect x="%.0f" y="490" width="12" height="12" fill="%s"/><text x="%.0f" y="500" fill="#555555">%s</text>`, left, inks[k], left+16, k)
		left += 76
	}
	b.WriteString("</svg>\n")
	return b.Bytes(), nil
}

// wayInks are the colours of the directions.
func wayInks() [2]string { return [2]string{"#1f6fb4", "#b4561f"} }

// A path is a line that holds its value until the next.
type path struct {
	strings.Builder
	y string
}

func (p *path) to(x, y float64) {
	is := fmt.Sprintf("%.1f", y)
	switch {
	case p.Len() == 0:
		fmt.Fprintf(p, "M%.1f %s", x, is)
	case is != p.y:
		fmt.Fprintf(p, "H%.1fV%s", x, is)
	}
	p.y = is
}
