package lab

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"unbloat/internal/measure/verdict"
	"unbloat/lab/scenario"
	"unbloat/unit"
)

// CompareCases returns the cases that stand side by side in a comparison, in
// the order of its columns: the line as it is, what others do, what we do.
func CompareCases() []string { return []string{"before", "fq_codel", "cake", "ours"} }

// CallCases returns the cases of the scenarios about video calls, in the order of a
// table's rows.
func CallCases() []string { return []string{"fq_codel", "cake", "marked", "plan", "rule"} }

// FramingCases returns those of lines that add much to each packet.
func FramingCases() []string {
	return []string{"before", "uncounted", "uncounted-htb", "counted", "counted-htb"}
}

// A Row is a scenario and what its cases gave.
type Row struct {
	Scenario *scenario.Scenario
	Results  []*Result // one for each seed, with the same cases; at least one
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
		case l.Kind == scenario.UDP || l.Kind == scenario.CloudGame:
			what += " of " + l.Rate.String()
		case l.Kind == scenario.WebRTC:
			what += " of " + l.Bitrate.String()
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
// Of several seeds each figure is the median, with its range.
func (r Row) Cell(name string) string {
	m, ok := r.measured(name)
	if !ok {
		return "–"
	}
	var parts []string
	for _, p := range m.phases {
		label := ""
		if p.name != verdict.PhaseLoaded {
			label = p.name + " "
		}
		text := label + "+" + p.added() + " ms"
		if p.anyLost() {
			text += ", " + p.lostPercent() + " % lost"
		}
		parts = append(parts, text)
		if !m.loads {
			parts = append(parts, p.goodput()+" Mbit/s")
		}
	}
	if call := m.call(); call != "" {
		parts = append(parts, "MOS "+call)
	}
	parts = append(parts, m.others()...)
	switch {
	case m.invalid == m.seeds && m.seeds == 1:
		parts = append(parts, "NOT VALID")
	case m.invalid > 0:
		parts = append(parts, fmt.Sprintf("NOT VALID (%d of %d)", m.invalid, m.seeds))
	}
	return strings.Join(parts, "; ")
}

// WorstCall returns the lowest MOS of a case's calls; ok is false if it has no calls.
// A call of which nothing arrived counts as 1.
func WorstCall(c CaseResult) (mos float64, ok bool) {
	mos = math.Inf(1)
	for _, l := range c.Loads {
		switch {
		case l.Call != nil:
			mos, ok = min(mos, l.Call.MOS()), true
		case l.Kind == scenario.VoIP && l.Voice == nil:
			mos, ok = 1, true
		case l.Kind == scenario.VoIP:
			mos, ok = min(mos, l.Voice.MOS), true
		}
	}
	return mos, ok
}
