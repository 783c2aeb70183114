package lab

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"unbloat/internal/lab/scenario"
	"unbloat/internal/verdict"
	"unbloat/unit"
)

// CompareCases returns the cases that stand side by side in a comparison, in
// the order of its columns: the line as it is, what others do, what we do.
func CompareCases() []string { return []string{"before", "fq_codel", "cake", "ours"} }

// A Row is a scenario and what its cases gave, for WriteTable.
type Row struct {
	Scenario *scenario.Scenario
	Result   *Result
}

// Chosen returns which of the cases the scenario has, in the given order.
func Chosen(s *scenario.Scenario, cases []string) []string {
	return slices.DeleteFunc(slices.Clone(cases), func(name string) bool {
		_, err := s.Case(name)
		return err != nil
	})
}

// WriteTable writes scenarios as one Markdown table: a row each, a column for
// each case. What a scenario has no case for stays empty.
func WriteTable(w io.Writer, rows []Row, cases []string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "| scenario | %s |\n|%s\n", strings.Join(cases, " | "), strings.Repeat("---|", len(cases)+1))
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s: %s |", r.Scenario.Name, r.Setting())
		for _, name := range cases {
			fmt.Fprintf(&b, " %s |", r.Cell(name))
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Setting says the scenario's line and household in a few words.
func (r Row) Setting() string {
	s := r.Scenario
	line := fmt.Sprintf("%.4g/%.4g Mbit/s, %.4g ms", float64(s.Line.Down)/1e6, float64(s.Line.Up)/1e6, unit.Ms(s.Line.RTT))
	var loads []string
	for _, l := range s.Loads {
		what := l.Kind
		switch {
		case l.Kind == scenario.Torrent:
			what = fmt.Sprintf("%d %s peers", l.Peers, l.Transport)
		case l.Kind == scenario.IMAP:
			what = fmt.Sprintf("%d messages", l.Messages)
		case l.Kind == scenario.UDP:
			what += " of " + l.Rate.String()
		}
		if l.Flows > 1 {
			what = fmt.Sprintf("%d × %s", l.Flows, what)
		}
		loads = append(loads, what)
	}
	if len(loads) == 0 {
		return line
	}
	return line + "; " + strings.Join(loads, ", ")
}

// Cell says what one case gave: the probe's delay and loss, the worst call, and
// what every other load got through; a dash if the scenario has no such case.
func (r Row) Cell(name string) string {
	i := slices.IndexFunc(r.Result.Cases, func(c CaseResult) bool { return c.Name == name })
	if i < 0 {
		return "–"
	}
	c := r.Result.Cases[i]
	var parts []string
	for _, p := range c.Test.Phases() {
		if p.Name == verdict.PhaseIdle {
			continue
		}
		label := ""
		if p.Name != verdict.PhaseLoaded {
			label = p.Name + " "
		}
		parts = append(parts, fmt.Sprintf("%s+%s ms", label, figure(p.Latency.IncreaseMs.P95))+lost(p.Latency.Loss))
		if len(c.Loads) == 0 {
			parts = append(parts, both(p.GoodputDownBps, p.GoodputUpBps))
		}
	}
	if mos, ok := WorstCall(c); ok {
		parts = append(parts, fmt.Sprintf("MOS %.2f", mos))
	}
	for _, l := range c.Loads {
		if said := got(l); said != "" {
			parts = append(parts, said)
		}
	}
	if !c.Test.Valid {
		parts = append(parts, "NOT VALID")
	}
	return strings.Join(parts, "; ")
}

// WorstCall returns the lowest MOS of a case's calls; ok is false if it has no calls.
// A call of which nothing arrived counts as 1.
func WorstCall(c CaseResult) (mos float64, ok bool) {
	mos = math.Inf(1)
	for _, l := range c.Loads {
		if l.Kind != scenario.VoIP {
			continue
		}
		ok = true
		if l.Voice == nil {
			mos = 1
			continue
		}
		mos = min(mos, l.Voice.MOS)
	}
	return mos, ok
}

// got says what a load got through.
func got(l LoadResult) string {
	switch {
	case l.Kind == scenario.VoIP:
		return ""
	case l.Torrent != nil:
		return "torrent " + both(l.GoodputDownBps, l.GoodputUpBps)
	case l.Mail != nil && l.Mail.Done:
		return fmt.Sprintf("mail in %.1f s", l.Mail.Seconds)
	case l.Mail != nil:
		return fmt.Sprintf("%d of %d messages in %.0f s", l.Mail.Messages, l.Mail.Of, l.Mail.Seconds)
	case l.Web != nil && l.Web.Pages == 0:
		return fmt.Sprintf("no page, %d failed", l.Web.Failed)
	case l.Web != nil:
		return fmt.Sprintf("pages in %.2f s", time.Duration(l.Web.LoadMs.P50*float64(time.Millisecond)).Seconds())
	case l.DNS != nil || l.Shell != nil || l.Video != nil:
		return string(l.Kind) + ": " + strings.Join(l.Sentences(), ", ")
	}
	return fmt.Sprintf("%s %.3g Mbit/s", l.Kind, l.GoodputBps/1e6)
}

func both(down, up float64) string { return fmt.Sprintf("%.3g/%.3g Mbit/s", down/1e6, up/1e6) }

func lost(loss float64) string {
	if loss == 0 {
		return ""
	}
	return fmt.Sprintf(", %.2g %% lost", 100*loss)
}

// figure prints milliseconds with as many digits as people compare.
func figure(ms float64) string {
	if ms < 100 {
		return fmt.Sprintf("%.1f", ms)
	}
	return fmt.Sprintf("%.0f", ms)
}
