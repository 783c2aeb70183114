package main

import (
	"fmt"
	"io"

	"unbloat/internal/measure/framing"
	"unbloat/internal/measure/verdict"
	"unbloat/reason"
	"unbloat/unit"
)

// A speaker prints tables in one language.
type speaker struct {
	*reason.Language
	w io.Writer
}

// line prints the words of a code as a line, after an indent.
func (s speaker) line(indent string, code reason.Code, args ...any) {
	fmt.Fprintln(s.w, indent+s.Say(code, args...))
}

// wholeTable is the width of a test's table with all columns.
const wholeTable = 93

// printTest prints the table of a test for a terminal of this width; 0 is no
// terminal. A narrow one gets the most important columns.
func printTest(out io.Writer, l *reason.Language, t *verdict.Test, width int) {
	w := fit(out, width)
	defer w.Flush() // out keeps its errors
	s := speaker{l, w}
	narrow := width >= narrowest && width < wholeTable
	if t.Label != "" {
		fmt.Fprintf(w, "%s — ", t.Label)
	}
	s.line("", reason.TestHead, "time", localText(t.Time), "server", t.Server)
	fmt.Fprintln(w)
	if narrow {
		fmt.Fprintf(w, "%-9s %8s %8s %7s %9s %9s %5s\n", "", "p95 ms", "+p95 ms", l.Name("loss"), "↓ Mbit/s", "↑ Mbit/s", l.Name("grade"))
	} else {
		fmt.Fprintf(w, "%-9s %9s %9s %9s %9s  %7s %7s  %11s %11s  %s\n", "", "p50 ms", "p95 ms", "max ms", "+p95 ms",
			l.Name("loss up"), l.Name("loss down"), l.Name("download"), l.Name("upload"), l.Name("grade"))
	}
	for _, p := range t.Phases() {
		lat := p.Latency
		grade, plus := "", ""
		if p.Name != verdict.PhaseIdle {
			plus = l.Number("%.1f", lat.IncreaseMs.P95)
			grade = verdict.GradeOf(p.Phase)
			if !t.Valid {
				grade = "–"
			}
		}
		if lat.Received == 0 && plus != "" {
			plus = "–"
		}
		if narrow {
			fmt.Fprintf(w, "%-9s %8s %8s %6s%% %9s %9s %5s\n", l.Name(p.Name), s.msOrNone(lat, lat.RTTMs.P95), plus,
				l.Number("%.1f", 100*lat.Loss), s.mbitOrNone(p.GoodputDownBps), s.mbitOrNone(p.GoodputUpBps), grade)
			continue
		}
		fmt.Fprintf(w, "%-9s %9s %9s %9s %9s  %15s  %11s %11s  %s\n", l.Name(p.Name),
			s.msOrNone(lat, lat.RTTMs.P50), s.msOrNone(lat, lat.RTTMs.P95), s.msOrNone(lat, lat.RTTMs.Max), plus, s.losses(lat),
			s.rateOrNone(p.GoodputDownBps), s.rateOrNone(p.GoodputUpBps), grade)
	}
	fmt.Fprintln(w)
	if t.Valid {
		fmt.Fprint(w, l.Say(reason.GradeLine, "grade", t.Grade, "down", orNone(t.GradeDown), "up", orNone(t.GradeUp)))
	}
	if t.Valid {
		fmt.Fprintln(w, t.VerdictIn(l, reason.Terminal))
	} else {
		s.invalid(t)
	}
	s.conditions(t)
}

// invalid prints why a test is invalid, each reason once with its remedy, and
// what is certain all the same.
func (s speaker) invalid(t *verdict.Test) {
	s.line("", reason.NotValidFor)
	for i, why := range t.WhyInvalid(s.Language, reason.Terminal) {
		fmt.Fprintln(s.w, "  ·", why)
		if i < len(t.Reasons) {
			if do := s.ToDo(t.Reasons[i]); do != "" {
				fmt.Fprintln(s.w, "   ", do)
			}
		}
	}
	if c := t.Certain(); c != nil {
		fmt.Fprintln(s.w, c.Text(s.Language, reason.Terminal))
	}
}

// losses returns the loss by direction, or the total if the directions cannot
// be told apart.
func (s speaker) losses(l verdict.Latency) string {
	if l.OneWayUnknown {
		return s.Say(reason.LostInAll, "loss", l.Loss)
	}
	return s.Number("%6.1f%%", 100*l.LossUp) + " " + s.Number("%6.1f%%", 100*l.LossDown)
}

// msOrNone prints milliseconds, or that nothing was answered.
func (s speaker) msOrNone(l verdict.Latency, ms float64) string {
	if l.Received == 0 {
		return "–"
	}
	return s.Number("%.1f", ms)
}

// conditions prints further results: the queue, calls, round trips per minute,
// further probes, and the conditions of the measurement.
func (s speaker) conditions(t *verdict.Test) {
	if t.Valid && t.RPM > 0 && t.Voice != nil {
		s.line("", reason.WorstLoad, "rpm", t.RPM, "r", t.Voice.R, "mos", t.Voice.MOS)
	}
	for _, p := range t.Phases() {
		if q := p.Queue; t.Valid && q != nil && q.Ms >= 1 {
			s.line("", reason.QueueLine, "in", p.Name, "ms", q.Ms, "bytes", float64(q.Bytes), "packets", q.Packets, "side", "held "+q.Direction)
		}
		for _, b := range p.Secondary {
			s.line("  ", reason.BesideLine, "in", p.Name, "probe", b.Name, "p50_ms", b.Latency.RTTMs.P50, "p95_ms", b.Latency.RTTMs.P95, "loss", b.Latency.Loss)
		}
		if l := p.OnLoad; l != nil {
			s.line("  ", reason.OnLoadLine, "in", p.Name, "p50_ms", l.RTTMs.P50, "p95_ms", l.RTTMs.P95)
		}
	}
	if o := t.Outcomes; t.Valid && len(o) == 4 {
		s.line("", reason.OutcomeLine, "call", o[0].Score, "game", o[1].Score, "stream", o[2].Score, "browsing", o[3].Score)
	}
	if p := slowestRecovery(t); p.Phase != nil {
		s.line("", reason.RecoveryLine, "in", p.Name, "ms", *p.RecoveryMs)
	}
	if f := t.Framing; f != nil {
		s.framing("down", f.Down)
		s.framing("up", f.Up)
	}
	if len(t.Runs) > 1 {
		fmt.Fprint(s.w, s.Say(reason.MedianOf, "runs", len(t.Runs)))
		for _, r := range t.Runs {
			fmt.Fprintf(s.w, " %s %s ms", s.Name(orNone(r.Grade)), s.Number("+%.1f", r.IncreaseMs))
		}
		fmt.Fprintln(s.w)
	}
	for _, p := range t.Phases() {
		if r := p.Fill(); t.Valid && r != nil {
			s.line("  ", reason.NoteLine, "text", s.Say(reason.InPhase, "in", p.Name, "text", r.Text(s.Language, reason.Terminal)))
		}
	}
	for _, n := range t.NotesIn(s.Language, reason.Terminal) {
		s.line("  ", reason.NoteLine, "text", n)
	}
}

// slowestRecovery returns the phase after whose load the delay took longest to fall, if that was
// noticeable.
func slowestRecovery(t *verdict.Test) (worst verdict.NamedPhase) {
	const noticeable = 100 // ms
	for _, p := range t.Phases() {
		if p.RecoveryMs != nil && *p.RecoveryMs >= noticeable && (worst.Phase == nil || *p.RecoveryMs > *worst.RecoveryMs) {
			worst = p
		}
	}
	return worst
}

// framing prints what the line adds to each packet in a direction.
func (s speaker) framing(direction string, e *framing.Estimate) {
	switch {
	case e == nil:
	case !e.Sure:
		s.line("", reason.FramingNotSure, "direction", direction, "why", e.Why.Text(s.Language, reason.Terminal))
	case e.ATM:
		s.line("", reason.FramingCells, "direction", direction, "bytes", e.Overhead, "rate_bps", float64(e.Rate))
	case e.MPU > 0:
		s.line("", reason.FramingLeast, "direction", direction, "bytes", e.Overhead, "least", e.MPU, "rate_bps", float64(e.Rate))
	default:
		s.line("", reason.FramingBytes, "direction", direction, "bytes", e.Overhead, "rate_bps", float64(e.Rate))
	}
}

// mbitOrNone prints a rate in Mbit/s without the unit.
func (s speaker) mbitOrNone(bps float64) string {
	if bps <= 0 {
		return "–"
	}
	return s.Number("%.3g", bps/1e6)
}

func (s speaker) rateOrNone(bps float64) string { return s.Numeral(rateOrNone(bps)) }

func rateOrNone(bps float64) string {
	if bps <= 0 {
		return "–"
	}
	return unit.Rate(bps).Short()
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
