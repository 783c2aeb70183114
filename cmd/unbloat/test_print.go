//go:build !omit_measure

package main

import (
	"fmt"
	"io"

	"unbloat/internal/verdict"
	"unbloat/unit"
)

// printTest prints the table that people read.
func printTest(w io.Writer, t *verdict.Test) {
	if t.Label != "" {
		fmt.Fprintf(w, "%s — ", t.Label)
	}
	fmt.Fprintf(w, "%s, server %s\n\n", t.Time, t.Server)
	fmt.Fprintf(w, "%-9s %9s %9s %9s %9s  %7s %7s  %11s %11s  %s\n",
		"", "p50 ms", "p95 ms", "max ms", "+p95 ms", "loss up", "down", "download", "upload", "grade")
	for _, p := range t.Phases() {
		l := p.Latency
		grade, plus := "", ""
		if p.Name != verdict.PhaseIdle {
			plus = fmt.Sprintf("%.1f", l.IncreaseMs.P95)
			grade = verdict.GradeOf(p.Phase)
			if !t.Valid {
				grade = "–"
			}
		}
		if l.Received == 0 && plus != "" {
			plus = "–"
		}
		fmt.Fprintf(w, "%-9s %9s %9s %9s %9s  %15s  %11s %11s  %s\n", p.Name,
			msOrNone(l, l.RTTMs.P50), msOrNone(l, l.RTTMs.P95), msOrNone(l, l.RTTMs.Max), plus, losses(l),
			rateOrNone(p.GoodputDownBps), rateOrNone(p.GoodputUpBps), grade)
	}
	fmt.Fprintln(w)
	if t.Valid {
		fmt.Fprintf(w, "Grade %s (download %s, upload %s). ", t.Grade, orNone(t.GradeDown), orNone(t.GradeUp))
	}
	fmt.Fprintln(w, t.Verdict)
	printConditions(w, t)
	for _, r := range t.InvalidReasons {
		fmt.Fprintln(w, "  ·", r)
	}
}

// losses prints what was lost each way, or in all where the ways are not told apart.
func losses(l verdict.Latency) string {
	if l.OneWayUnknown {
		return fmt.Sprintf("%.1f%% in all", 100*l.Loss)
	}
	return fmt.Sprintf("%6.1f%% %6.1f%%", 100*l.LossUp, 100*l.LossDown)
}

// msOrNone prints milliseconds, if anything was answered.
func msOrNone(l verdict.Latency, ms float64) string {
	if l.Received == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f", ms)
}

// printConditions prints what else is known: the queue, calls, round trips a
// minute, further probes, and under which conditions it was measured.
func printConditions(w io.Writer, t *verdict.Test) {
	if t.Valid && t.RPM > 0 && t.Voice != nil {
		fmt.Fprintf(w, "Under the worst load: %.0f round trips a minute; a call has R %.0f, MOS %.1f of 4.5.\n", t.RPM, t.Voice.R, t.Voice.MOS)
	}
	for _, p := range t.Phases() {
		if q := p.Queue; t.Valid && q != nil && q.Ms >= 1 {
			fmt.Fprintf(w, "Queue in phase %s: about %.0f ms, %d bytes, %d packets, held %s.\n", p.Name, q.Ms, q.Bytes, q.Packets,
				map[string]string{"up": "on the way up", "down": "on the way down", "": "on an unknown side"}[q.Direction])
		}
		for _, b := range p.Beside {
			fmt.Fprintf(w, "  beside, %s, %s: p50 %.1f ms, p95 %.1f ms, lost %.1f %%\n", p.Name, b.Name, b.Latency.RTTMs.P50, b.Latency.RTTMs.P95, 100*b.Latency.Loss)
		}
		if l := p.OnLoad; l != nil {
			fmt.Fprintf(w, "  on the loaded connections, %s: p50 %.1f ms, p95 %.1f ms\n", p.Name, l.RTTMs.P50, l.RTTMs.P95)
		}
	}
	if len(t.Runs) > 1 {
		fmt.Fprintf(w, "The median of %d runs:", len(t.Runs))
		for _, r := range t.Runs {
			fmt.Fprintf(w, " %s +%.1f ms", orNone(r.Grade), r.IncreaseMs)
		}
		fmt.Fprintln(w)
	}
	for _, p := range t.Phases() {
		if s := p.FillWords(); t.Valid && s != "" {
			fmt.Fprintf(w, "  note: phase %s: %s\n", p.Name, s)
		}
	}
	for _, n := range t.Notes {
		fmt.Fprintln(w, "  note:", n)
	}
}

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
