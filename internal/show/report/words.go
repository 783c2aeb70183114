package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"unbloat/guard"
	"unbloat/internal/measure/verdict"
	"unbloat/reason"
	"unbloat/unit"
)

// maxText is the longest string of an input that is shown, in runes.
const maxText = 300

// none stands where there is no figure.
const none = "–"

// clean makes a string of an input safe to print anywhere: one line, nothing that a
// terminal obeys, that XML forbids or that reorders text, and not endlessly long.
// Escaping for the format is the writer's.
func clean(s string) string { return guard.VisibleLine(s, maxText) }

// A quantity is a figure as it is printed, and its unit, "" if it has none.
type quantity struct{ figure, unit string }

// String returns the figure with its unit.
func (q quantity) String() string {
	if q.unit == "" {
		return q.figure
	}
	return q.figure + " " + q.unit
}

// before returns q for a place before another quantity: without the unit if that
// has the same.
func (q quantity) before(next quantity) string {
	if q.unit == next.unit {
		return q.figure
	}
	return q.String()
}

// ms prints a latency: one decimal below 100 ms.
func ms(v float64) string { return latency(v).String() }

// number prints a latency without its unit.
func number(v float64) string { return latency(v).figure }

// latency returns what ms prints.
func latency(v float64) quantity {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return quantity{figure: none}
	case math.Abs(v) < 99.95:
		return quantity{fmt.Sprintf("%.1f", roundTo(v, 1)+0), "ms"} // + 0: no "-0.0"
	case math.Abs(v) < 1e7:
		return quantity{fmt.Sprintf("%.0f", v), "ms"}
	}
	return quantity{fmt.Sprintf("%.2g", v), "ms"}
}

// shortMs prints a latency for a sentence: no decimals from 10 ms on.
func shortMs(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "an unknown time"
	}
	if math.Abs(v) < 9.95 {
		return strconv.FormatFloat(roundTo(v, 1)+0, 'f', -1, 64) + " ms"
	}
	return fmt.Sprintf("%.0f ms", v)
}

// rate prints bit/s for people, three digits.
func rate(bps float64) string { return speed(bps).String() }

// speed returns what rate prints.
func speed(bps float64) quantity {
	if math.IsNaN(bps) || math.IsInf(bps, 0) {
		return quantity{figure: none}
	}
	figure, name := unit.Rate(math.Round(clamp(bps, 0, 1e15))).ShortParts()
	return quantity{figure, name}
}

// percent prints a fraction as a percentage; a small one is not rounded to nothing.
func percent(f float64) string {
	p := f * 100
	switch {
	case math.IsNaN(p) || math.IsInf(p, 0):
		return none
	case p == 0:
		return "0 %"
	case p < 0.01:
		return "< 0.01 %"
	case p < 9.95:
		return strconv.FormatFloat(roundTo(p, 2), 'f', -1, 64) + " %"
	}
	return fmt.Sprintf("%.0f %%", p)
}

// doing says what the line was busy with in a phase.
func doing(phase string) string {
	switch phase {
	case verdict.PhaseIdle:
		return "idle"
	case verdict.PhaseDownload:
		return "downloading"
	case verdict.PhaseUpload:
		return "uploading"
	case verdict.PhaseBoth:
		return "both ways"
	}
	return "loaded"
}

// while begins a sentence about a phase, in English.
func while(phase string) string { return english().Name(whileName(phase)) }

// A language is how tables and sentences speak.
type language struct{ *reason.Language }

func english() language { return language{reason.English()} }

// These are the figures of the functions of the same name, as the language writes them.
func (l language) ms(v float64) string     { return l.Numeral(ms(v)) }
func (l language) number(v float64) string { return l.Numeral(number(v)) }
func (l language) rate(bps float64) string { return l.speed(bps).String() }
func (l language) speed(bps float64) quantity {
	q := speed(bps)
	return quantity{l.Numeral(q.figure), q.unit}
}
func (l language) mbit(bps float64) string  { return l.Numeral(mbit(bps)) }
func (l language) percent(f float64) string { return l.Numeral(percent(f)) }
func (l language) shortMs(v float64) string {
	if !finite(v) {
		return l.Name("an unknown time")
	}
	return l.Numeral(shortMs(v))
}

// whileName is what Names calls the time of a phase.
func whileName(phase string) string {
	if slices.Contains([]string{verdict.PhaseIdle, verdict.PhaseDownload, verdict.PhaseUpload, verdict.PhaseBoth}, phase) {
		return "while " + phase
	}
	return "while " + verdict.PhaseLoaded
}

// runName is how a run is called where its name stands alone.
func (r run) heading() string {
	name := clean(r.test.Label)
	switch {
	case r.name == "" && name == "":
		return "this test"
	case r.name == "":
		return name
	case name == "" || strings.EqualFold(name, r.name):
		return capital(r.name)
	}
	return capital(r.name) + ": " + name
}

func capital(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	if n == 0 {
		return s
	}
	return string(unicode.ToUpper(r)) + s[n:]
}
