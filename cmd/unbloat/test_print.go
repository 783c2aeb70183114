package main

import (
	"fmt"
	"io"
	"strings"

	"unbloat/internal/measure/framing"
	"unbloat/internal/measure/verdict"
	"unbloat/internal/show/cli"
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

// Widths of a test's tables: of that with all columns, and of the short one.
const (
	wholeTable = 93
	shortTable = 61
)

// printTest prints a test for a terminal of this width; 0 is no terminal: the grade, a
// sentence and a table, and with verbose all that was measured.
func printTest(out io.Writer, l *reason.Language, t *verdict.Test, width int, verbose bool) {
	w := cli.FitTo(out, width)
	defer w.Flush() // out keeps its errors
	s := speaker{l, w}
	if t.Label != "" {
		fmt.Fprintf(w, "%s — ", t.Label)
	}
	s.line("", reason.TestHead, "time", localText(t.Time), "server", t.Server)
	fmt.Fprintln(w)
	if t.Valid {
		fmt.Fprintln(w, l.Say(reason.GradeLine, "grade", t.Grade, "down", orNone(t.GradeDown), "up", orNone(t.GradeUp))+t.VerdictIn(l, reason.Terminal))
	} else {
		s.invalid(t)
	}
	fmt.Fprintln(w)
	switch narrow := width >= cli.Narrowest; {
	case verbose && (!narrow || width >= wholeTable):
		s.wholeTable(t)
	case narrow && width < shortTable:
		s.shortTable(t, "%-9s%7s%7s%8s%6s%6s%6s\n", true)
	default:
		s.shortTable(t, "%-9s %8s %8s %7s %9s %9s %5s\n", false)
	}
	if verbose {
		fmt.Fprintln(w)
		s.conditions(t)
		return
	}
	s.askedFor(t)
	fmt.Fprintln(w)
	s.line("", reason.MoreVerbose)
}

// added is how much latency a phase adds, and its grade.
func (s speaker) added(t *verdict.Test, p verdict.NamedPhase, format func(float64) string) (plus, grade string) {
	switch {
	case p.Name == verdict.PhaseIdle:
		return "", ""
	case p.Latency.Received == 0:
		plus = "–"
	default:
		plus = format(p.Latency.IncreaseMs.P95)
	}
	if !t.Valid {
		return plus, "–"
	}
	return plus, verdict.GradeOf(p.Phase)
}

// shortTable prints what people look for; split: the units have a row of their own.
func (s speaker) shortTable(t *verdict.Test, row string, split bool) {
	if split {
		fmt.Fprintf(s.w, row, "", "p95", "+p95", s.Name("loss"), "↓", "↑", s.Name("grade"))
		fmt.Fprintf(s.w, row, "", "ms", "ms", "%", "Mbit/s", "", "")
	} else {
		fmt.Fprintf(s.w, row, "", "p95 ms", "+p95 ms", s.Name("loss"), "↓ Mbit/s", "↑ Mbit/s", s.Name("grade"))
	}
	for _, p := range t.Phases() {
		plus, grade := s.added(t, p, s.shortMs)
		p95 := "–"
		if p.Latency.Received > 0 {
			p95 = s.shortMs(p.Latency.RTTMs.P95)
		}
		loss := s.Number("%.1f", 100*p.Latency.Loss)
		if !split {
			loss += "%"
		}
		fmt.Fprintf(s.w, row, s.Name(p.Name), p95, plus, loss, s.mbitOrNone(p.GoodputDownBps), s.mbitOrNone(p.GoodputUpBps), grade)
	}
}

// shortMs prints milliseconds with three digits at most, or as many as are before the point.
func (s speaker) shortMs(ms float64) string {
	if ms >= 99.95 {
		return s.Number("%.0f", ms)
	}
	return s.Number("%.1f", ms)
}

// wholeTable prints the table with all columns.
func (s speaker) wholeTable(t *verdict.Test) {
	fmt.Fprintf(s.w, "%-9s %9s %9s %9s %9s  %7s %7s  %11s %11s  %s\n", "", "p50 ms", "p95 ms", "max ms", "+p95 ms",
		s.Name("loss up"), s.Name("loss down"), s.Name("download"), s.Name("upload"), s.Name("grade"))
	for _, p := range t.Phases() {
		lat := p.Latency
		plus, grade := s.added(t, p, func(ms float64) string { return s.Number("%.1f", ms) })
		fmt.Fprintf(s.w, "%-9s %9s %9s %9s %9s  %15s  %11s %11s  %s\n", s.Name(p.Name),
			s.msOrNone(lat, lat.RTTMs.P50), s.msOrNone(lat, lat.RTTMs.P95), s.msOrNone(lat, lat.RTTMs.Max), plus, s.losses(lat),
			s.rateOrNone(p.GoodputDownBps), s.rateOrNone(p.GoodputUpBps), grade)
	}
}

// invalid prints what is certain of a test that is not valid, and why it is not: each reason
// once, with the other phases of which it is true too, and its remedy.
func (s speaker) invalid(t *verdict.Test) {
	if c := t.Certain(); c != nil {
		fmt.Fprintln(s.w, c.Text(s.Language, reason.Terminal))
	}
	s.line("", reason.NotValidFor)
	if len(t.Reasons) == 0 { // an older result has the words alone
		for _, why := range t.WhyInvalid(s.Language, reason.Terminal) {
			fmt.Fprintln(s.w, "  ·", why)
		}
		return
	}
	var order []string
	of := map[string][]reason.Reason{}
	for _, r := range t.Reasons {
		kind := string(r.Code)
		for _, c := range r.Causes {
			kind += " " + string(c.Code)
		}
		if of[kind] == nil {
			order = append(order, kind)
		}
		of[kind] = append(of[kind], r)
	}
	for _, kind := range order {
		rs := of[kind]
		text := rs[0].Text(s.Language, reason.Terminal)
		var also []string
		for _, r := range rs[1:] {
			also = append(also, s.Name(r.Phase))
		}
		if len(also) > 0 {
			text = s.Say(reason.AlsoIn, "text", text, "phases", strings.Join(also, ", "))
		}
		fmt.Fprintln(s.w, "  ·", text)
		if do := s.ToDo(rs[0]); do != "" {
			fmt.Fprintln(s.w, "   ", do)
		}
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
			s.line("", reason.QueueLine, "in", p.Name, "ms", q.Ms, "packets", q.Packets, "side", "held "+q.Direction)
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
	s.askedFor(t)
	for _, p := range t.Phases() {
		if r := p.Fill(); t.Valid && r != nil {
			s.line("  ", reason.NoteLine, "text", s.Say(reason.InPhase, "in", p.Name, "text", r.Text(s.Language, reason.Terminal)))
		}
	}
	for _, n := range t.NotesIn(s.Language, reason.Terminal) {
		s.line("  ", reason.NoteLine, "text", n)
	}
}

// askedFor prints what a flag has asked for.
func (s speaker) askedFor(t *verdict.Test) {
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
