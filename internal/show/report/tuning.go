package report

import (
	"fmt"
	"io"
	"strings"

	"unbloat/internal/cure/tune"
	"unbloat/reason"
	"unbloat/unit"
)

// TuningPage is the report of a tuning.
func TuningPage(r *tune.Result) Page {
	p := Page{Before: r.Before, After: r.After, Plan: r.Plan, Goal: unit.FromMs(r.GoalMs)}
	for i, t := range r.Trials {
		outcome := fmt.Sprintf("p95 rises by %.1f ms: too much", t.IncreaseMs)
		if t.Held {
			outcome = fmt.Sprintf("p95 rises by %.1f ms: holds the goal", t.IncreaseMs)
		}
		p.Steps = append(p.Steps, Step{Name: fmt.Sprintf("trial %d", i+1), Down: t.Down, Up: t.Up, Outcome: outcome})
	}
	if r.Reason != "" {
		verb := "Kept"
		if !r.Kept {
			verb = "Undone"
		}
		p.Notes = append(p.Notes, verb+": "+r.Reason+".")
	}
	return p
}

// TuningIn prints, in a language, the before → after table and the outcome.
func TuningIn(w io.Writer, l *reason.Language, r *tune.Result, width int) error {
	switch {
	case r.Before == nil:
		return nil
	case r.After == nil:
		return TestTableIn(w, l, r.Before)
	}
	if err := TableOf(w, l, r.Before, r.After, width); err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString("\n" + l.Say(reason.LineCarries, "down_bps", float64(r.LineDownBps), "up_bps", float64(r.LineUpBps)))
	if p := r.Plan; p != nil {
		b.WriteString(l.Say(reason.ShapedTo, "aqm", string(p.AQM), "down_bps", float64(p.DownBps), "up_bps", float64(p.UpBps)) + "\n")
	}
	if r.Kept {
		b.WriteString(l.Say(reason.KeptLine, "why", r.Why(l)) + "\n")
	}
	text := b.String()
	if width > 0 {
		b.Reset()
		for line := range strings.Lines(text) {
			if wrapTextTo(&b, line, min(width, textWidth)); line == "\n" {
				b.WriteString(line)
			}
		}
		text = b.String()
	}
	_, err := io.WriteString(w, text)
	return err
}
