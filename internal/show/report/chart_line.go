package report

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// LineSchema names the JSON layout of a Line.
const LineSchema = "unbloat.line/1"

// A Line is what a line did over hours, as `unbloat history --line --json` prints it.
// Each list is as long as At. Rates that are not known are 0, delays null.
type Line struct {
	Schema string  `json:"schema"`
	WAN    string  `json:"wan"`
	Router string  `json:"router,omitempty"`
	Step   int     `json:"step_seconds"`
	At     []int64 `json:"at_ms"` // begin of each step, since 1970, ascending
	Down   LineWay `json:"down"`
	Up     LineWay `json:"up"`
}

// A LineWay is one direction of a Line.
type LineWay struct {
	Rate     []int64    `json:"rate_bps"`     // of the shaper
	Capacity []int64    `json:"capacity_bps"` // that the line was believed to have
	Carried  []int64    `json:"carried_bps"`
	Delay    []*float64 `json:"delay_ms"`     // mean, that queues on the line added; null: not known
	DelayMax []*float64 `json:"delay_max_ms"` // worst; null: not known
}

// Check returns an error if the lists do not fit, or nothing is in them.
func (l *Line) Check() error {
	n := len(l.At)
	if n == 0 {
		return fmt.Errorf("the history of %q is empty", clean(l.WAN))
	}
	for _, w := range []LineWay{l.Down, l.Up} {
		for _, k := range []int{len(w.Rate), len(w.Capacity), len(w.Carried), len(w.Delay), len(w.DelayMax)} {
			if k != n {
				return fmt.Errorf("the history of %q has lists of %d and of %d figures", clean(l.WAN), n, k)
			}
		}
	}
	const most = 20 * 365 * 24 * time.Hour
	if !slices.IsSorted(l.At) || l.At[0] < 0 || l.At[n-1] > math.MaxInt64/2 || l.At[n-1]-l.At[0] > most.Milliseconds() || l.Step > 365*24*3600 {
		return fmt.Errorf("the history of %q has times that are not ascending, or too far apart", clean(l.WAN))
	}
	if l.Step <= 0 {
		return fmt.Errorf("the history of %q has steps of %d s", clean(l.WAN), l.Step)
	}
	return nil
}

// heading names the line and its time.
func (l *Line) heading() string {
	name := clean(l.WAN)
	if l.Router != "" {
		name += " of " + clean(l.Router)
	}
	const layout = "2006-01-02 15:04"
	return fmt.Sprintf("%s, %s – %s", name, l.time(0).Format(layout), l.time(len(l.At)-1).Format(layout))
}

func (l *Line) time(i int) time.Time { return time.UnixMilli(l.At[i]).Local() }

// says is what the history shows, in words.
func (l *Line) says() string {
	text := ""
	for _, w := range []struct {
		name string
		is   LineWay
	}{{"download", l.Down}, {"upload", l.Up}} {
		lo, hi := math.Inf(1), 0.0
		for _, r := range w.is.Rate {
			if r > 0 {
				lo, hi = min(lo, float64(r)), max(hi, float64(r))
			}
		}
		if hi == 0 {
			continue
		}
		rates := mbit(lo)
		if mbit(hi) != rates {
			rates += " to " + mbit(hi)
		}
		text += fmt.Sprintf("The %s was shaped to %s Mbit/s", w.name, rates)
		if worst, known := w.is.worst(); known {
			text += "; queues on the line added at most " + shortMs(worst)
		}
		text += ". "
	}
	if !l.timed() {
		text += "The delay was not measured: the line's rates were fixed."
	}
	return strings.TrimSpace(text)
}

// worst returns the most that queues added; known is false if nothing measured it.
func (w LineWay) worst() (ms float64, known bool) {
	for _, d := range w.DelayMax {
		if d != nil {
			ms, known = max(ms, *d), true
		}
	}
	return ms, known
}

// timed says that the delay was measured at some time.
func (l *Line) timed() bool {
	_, down := l.Down.worst()
	_, up := l.Up.worst()
	return down || up
}

// lineChart draws the rates of both directions, and the delay.
func lineChart(l *Line, lay layout) *figure {
	const head, gap, foot = 30, 14, 26
	high := 130.0
	and := ""
	if l.timed() {
		and = "; and the delay in milliseconds that queues on the line added"
	}
	f := newFigure(lay.w, 0, "The line over time", "Rates in Mbit/s: the shaper's, what the line was believed to carry, and what was used"+and+". "+l.says(), lay.rule)
	step := int64(l.Step) * 1000
	from, to := l.At[0], l.At[len(l.At)-1]+step
	y := 0.0
	panel := func(name string, top float64) plot {
		p := plot{fig: f, x0: axisWidth, y0: y + head, x1: lay.w - rightSpace, y1: y + head + high}
		p.x = scale{lo: 0, hi: float64(to-from) / 1000, a: p.x0, b: p.x1}
		p.y = linearScale(max(top, 0.1), p.y1, p.y0)
		f.text(0, y+16, lay.rule.Cut(name, lay.w, textSize+1, true), font{textSize + 1, true, inkText, atStart})
		p.grid()
		y += head + high + gap
		return p
	}
	// paths returns a curve, with a gap where nothing is known.
	paths := func(p plot, value func(i int) float64) (out [][]point) {
		var now []point
		for i, at := range l.At {
			v := value(i)
			if i > 0 && at-l.At[i-1] > 3*step/2 || math.IsNaN(v) {
				out, now = append(out, now), nil
			}
			if !math.IsNaN(v) {
				x := float64(at-from) / 1000
				now = append(now, point{p.x.at(x), p.y.at(v)}, point{p.x.at(x + float64(l.Step)), p.y.at(v)})
			}
		}
		return append(out, now)
	}
	rate := func(list []int64) func(int) float64 {
		return func(i int) float64 {
			if list[i] <= 0 {
				return math.NaN()
			}
			return float64(list[i]) / 1e6
		}
	}
	var last plot
	for _, w := range []struct {
		name string
		is   LineWay
		ink  ink
	}{{"Download, Mbit/s", l.Down, inkDownload}, {"Upload, Mbit/s", l.Up, inkUpload}} {
		top := 0.0
		for i := range l.At {
			top = max(top, float64(max(w.is.Rate[i], w.is.Capacity[i], w.is.Carried[i]))/1e6)
		}
		last = panel(w.name+": shaper (line), what the line carries (dashed), used (area)", top)
		var areas [][]point
		for _, path := range paths(last, func(i int) float64 { return float64(w.is.Carried[i]) / 1e6 }) {
			if len(path) > 1 {
				areas = append(areas, append(append([]point{{path[0].x, last.y1}}, path...), point{path[len(path)-1].x, last.y1}))
			}
		}
		f.areas(areas, w.ink, 0.25)
		f.lines(paths(last, rate(w.is.Capacity)), pen{inkMuted, 1.2, dashed})
		f.lines(paths(last, rate(w.is.Rate)), pen{w.ink, 1.6, solid})
	}
	if l.timed() {
		down, _ := l.Down.worst()
		up, _ := l.Up.worst()
		last = panel("Delay that queues on the line added at most, ms: download (solid), upload (dashed)", max(1, down, up))
		delay := func(list []*float64) func(int) float64 {
			return func(i int) float64 {
				if list[i] == nil {
					return math.NaN()
				}
				return *list[i]
			}
		}
		f.lines(paths(last, delay(l.Up.DelayMax)), pen{inkUpload, 1.2, dashed})
		f.lines(paths(last, delay(l.Down.DelayMax)), pen{inkDownload, 1.4, solid})
	}
	last.clock(from, to)
	f.h = y - gap + foot
	return f
}

// clock draws times of day under a plot.
func (p plot) clock(from, to int64) {
	hours := float64(to-from) / 3_600_000
	format, each := "15:04", roundHours(hours/((p.x1-p.x0)/70))
	if hours > 48 {
		format = "2 Jan 15:04"
		each = roundHours(hours / ((p.x1 - p.x0) / 110))
	}
	begin := time.UnixMilli(from).Local()
	step := time.Duration(each * float64(time.Hour))
	midnight := time.Date(begin.Year(), begin.Month(), begin.Day(), 0, 0, 0, 0, begin.Location())
	for t := midnight; t.UnixMilli() <= to; t = t.Add(step) {
		if t.UnixMilli() < from {
			continue
		}
		x := p.x.at(float64(t.UnixMilli()-from) / 1000)
		p.fig.line(x, p.y1, x, p.y1+4, pen{inkMuted, 1, solid})
		at := atMiddle
		if x > p.x1-30 {
			at = atEnd
		}
		p.fig.text(x, p.y1+17, t.Format(format), font{smallSize, false, inkMuted, at})
	}
}

// roundHours returns the least usual step of a clock that is not below h.
func roundHours(h float64) float64 {
	for _, s := range []float64{1.0 / 60, 1.0 / 30, 1.0 / 12, 1.0 / 6, 0.25, 0.5, 1, 2, 3, 6, 12, 24, 48, 168} {
		if s >= h {
			return s
		}
	}
	return 24 * 28
}

// writeLinesCSV writes a row for each step.
func writeLinesCSV(b *bytes.Buffer, lines []*Line) error {
	w := csv.NewWriter(b)
	if err := w.Write([]string{"wan", "router", "time", "step_seconds", "direction", "rate_bps", "capacity_bps", "carried_bps", "delay_ms", "delay_max_ms"}); err != nil {
		return err
	}
	for _, l := range lines {
		for i, at := range l.At {
			for d, x := range []LineWay{l.Down, l.Up} {
				ms := func(v *float64) string {
					if v == nil {
						return ""
					}
					return strconv.FormatFloat(*v, 'f', -1, 64)
				}
				err := w.Write([]string{inert(clean(l.WAN)), inert(clean(l.Router)), time.UnixMilli(at).UTC().Format(time.RFC3339), strconv.Itoa(l.Step), [2]string{"down", "up"}[d],
					strconv.FormatInt(x.Rate[i], 10), strconv.FormatInt(x.Capacity[i], 10), strconv.FormatInt(x.Carried[i], 10), ms(x.Delay[i]), ms(x.DelayMax[i])})
				if err != nil {
					return err
				}
			}
		}
	}
	w.Flush()
	return w.Error()
}
