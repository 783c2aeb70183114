package main

import (
	"fmt"
	"io"
	"strings"

	"unbloat/internal/cure/plan"
	"unbloat/internal/show/cli"
	"unbloat/reason"
	"unbloat/unit"
)

// queueName returns the usual name of a queue.
func queueName(a plan.AQM) string {
	return map[plan.AQM]string{plan.CAKE: "CAKE", plan.FQCoDel: "FQ-CoDel", plan.FIFO: "a short FIFO", plan.SFQ: "SFQ"}[a]
}

// printSummary prints a paragraph and a short table about a plan. args are the
// arguments that led to it.
func (f *planFlags) printSummary(out io.Writer, p plan.Plan, width int) error {
	if width == 0 { // not a terminal
		width = 78
	}
	w := cli.FitTo(out, min(width, 90))
	w.Hang = 0
	fmt.Fprintf(w, "%s\n\n", summaryOf(p))
	rows := [][]string{{"", "download", "upload"}}
	both := func(name string, of func(s *plan.Shaper, line unit.Rate) string) {
		cells := make([]string, 2)
		line := plan.Line{}
		if p.Basis != nil {
			line = p.Basis.Line
		}
		for i, s := range []*plan.Shaper{p.Down, p.Up} {
			if s != nil {
				cells[i] = of(s, []unit.Rate{line.Down, line.Up}[i])
			}
			if cells[i] == "" {
				cells[i] = "–"
			}
		}
		rows = append(rows, append([]string{name}, cells...))
	}
	both("line", func(_ *plan.Shaper, line unit.Rate) string { return rateOrDash(line) })
	both("limit", func(s *plan.Shaper, _ unit.Rate) string { return s.Rate.Short() })
	both("interface", func(s *plan.Shaper, _ unit.Rate) string { return s.Device })
	both("queue", func(s *plan.Shaper, _ unit.Rate) string { return string(s.AQM) })
	both("bytes added per packet", func(s *plan.Shaper, _ unit.Rate) string { return fmt.Sprint(s.Overhead) })
	if p.Classes != nil {
		first := func(shares []plan.Share) string {
			if len(shares) == 0 {
				return "–"
			}
			return string(shares[0].Class)
		}
		rows = append(rows, []string{"goes first", first(p.Classes.Down), first(p.Classes.Up)})
	}
	cli.Columns(w, w.Width, rows)
	for _, warning := range p.Warnings {
		fmt.Fprintf(w, "\nNote: %s.\n", strings.TrimSuffix(warning.Text(reason.English(), reason.Terminal), "."))
	}
	fmt.Fprint(w, "\nNothing was changed. `unbloat apply` with the same rates does it, and undoes it by itself unless you confirm. --commands prints it in the router's own language, --explain the reason for each number.\n")
	return w.Flush()
}

// summaryOf returns the paragraph.
func summaryOf(p plan.Plan) string {
	var what []string
	for _, d := range []struct {
		name string
		s    *plan.Shaper
	}{{"the download", p.Down}, {"the upload", p.Up}} {
		if d.s != nil {
			what = append(what, d.name+" to "+d.s.Rate.Short())
		}
	}
	text := fmt.Sprintf("Limit %s, with %s on %s.", strings.Join(what, " and "), queueName(p.AQM), p.WAN)
	if p.Basis != nil && p.Basis.Line.Down+p.Basis.Line.Up > 0 {
		text += " That is a little below what the line carries, so packets wait in this router and no longer in the modem."
	} else {
		text += " If that is a little below what the line carries, packets wait in this router and no longer in the modem."
	}
	switch {
	case p.ByBehaviour():
		text += " Here calls, games and other small flows go first."
	case p.Classes != nil:
		text += " Here what a rule names goes first, as DNS and ping do."
	case p.AQM == plan.CAKE || p.AQM == plan.FQCoDel:
		text += " Here every flow has a queue of its own, so a call does not wait behind an upload."
	}
	if p.Goal > 0 {
		text += fmt.Sprintf(" Under load the round trip should rise by %.3g ms at most (p95).", unit.Ms(p.Goal))
	}
	return text
}

func rateOrDash(r unit.Rate) string {
	if r == 0 {
		return "–"
	}
	return r.Short()
}
