package lab

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"unbloat/internal/measure/verdict"
)

// EvidenceHeader begins every file that WriteEvidence writes.
const EvidenceHeader = "<!-- Written by `make compare`. Changes by hand are lost. -->"

// Evidence is the figures of one subject: what WriteEvidence writes as a page.
type Evidence struct {
	Title   string   // "Hundreds of connections"
	About   []string // sentences for people, a paragraph each
	Command string   // that gives these figures again
	Cases   []string // in the order of a table's rows
	Rows    []Row    // a table each
	Lines   bool     // lines that vary: delays and rates of each case, instead of what it adds
	Left    []string // what could not be run, a sentence each
}

// WriteEvidence writes the page of a subject in Markdown: what was run and where,
// then a table for each scenario. A figure of several seeds is the median, with
// the least and the most in brackets. The page names no version of unbloat, so
// it changes only when a figure does.
func WriteEvidence(w io.Writer, e Evidence) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n# %s\n\n", EvidenceHeader, e.Title)
	for _, p := range e.About {
		fmt.Fprintf(&b, "%s\n\n", p)
	}
	fmt.Fprintf(&b, "- Command: `%s`\n- Measured on: %s\n- Seeds: %s\n- A figure is the median of the seeds, with the least and the most of them in brackets; one figure alone: all are the same.\n",
		e.Command, e.where(), e.seeds())
	for _, r := range e.Rows {
		fmt.Fprintf(&b, "\n## %s\n\n%s. Line and loads: %s.\n\n", r.Scenario.Name, r.Scenario.Title, r.Setting())
		if e.Lines {
			r.writeLines(&b, Chosen(r.Scenario, e.Cases))
			continue
		}
		r.writeEvidence(&b, Chosen(r.Scenario, e.Cases))
	}
	if len(e.Left) > 0 {
		b.WriteString("\n## SKIPPED\n\n")
		for _, l := range e.Left {
			fmt.Fprintf(&b, "- %s\n", l)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeEvidence writes the table of one scenario: a row for each case and phase.
// A column that no case has anything for is left out.
func (r Row) writeEvidence(b *strings.Builder, cases []string) {
	type line struct{ name, added, lost, goodput, call, others string }
	var lines []line
	anyCall, anyGoodput, anyOthers := false, false, false
	for _, name := range cases {
		m, ok := r.measured(name)
		if !ok {
			continue
		}
		for _, p := range m.phases {
			l := line{name: shownCase(name), added: p.added(), lost: p.lostPercent(), call: m.call(), others: strings.Join(m.others(), "; ")}
			if p.name != verdict.PhaseLoaded {
				l.name += ", " + p.name
			}
			if m.invalid > 0 {
				l.name += fmt.Sprintf(" (not valid in %d of %d)", m.invalid, m.seeds)
			}
			if !m.loads {
				l.goodput = p.loaded()
			}
			anyCall, anyGoodput, anyOthers = anyCall || l.call != "", anyGoodput || l.goodput != "", anyOthers || l.others != ""
			lines = append(lines, l)
		}
	}
	row := func(l line) {
		cells := []string{l.name, l.added, l.lost}
		if anyGoodput {
			cells = append(cells, l.goodput)
		}
		if anyCall {
			cells = append(cells, l.call)
		}
		if anyOthers {
			cells = append(cells, l.others)
		}
		for i, c := range cells {
			cells[i] = cmp.Or(c, "–")
		}
		fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
	}
	head := line{"router", "added delay, p95, ms", "probes lost, %", "download / upload, Mbit/s", "worst call, MOS", "what the others got through"}
	row(head)
	row(line{"---", "---", "---", "---", "---", "---"})
	for _, l := range lines {
		row(l)
	}
}

// shownCase is what people read for a case's name.
func shownCase(name string) string {
	switch name {
	case "before":
		return "as it is"
	case "seed":
		return "the article's fix"
	case "cake":
		return "CAKE"
	case "ours", "plan":
		return "unbloat"
	case "uncounted":
		return "CAKE, framing not known"
	case "uncounted-htb":
		return "HTB and fq_codel, framing not known"
	case "counted":
		return "CAKE, framing known"
	case "counted-htb":
		return "HTB and fq_codel, framing known"
	case "marked":
		return "CAKE diffserv4, the call marked AF41"
	case "rule":
		return "unbloat, with a rule"
	case "tuned":
		return "`unbloat tune`"
	case caseFixed:
		return "fixed rates"
	case caseFollows:
		return "unbloat, `follow = true`"
	case caseOracle:
		return "CAKE that knows the line"
	}
	return name
}

// where says which engine and kernel the figures come from.
func (e Evidence) where() string {
	var out []string
	for _, r := range e.Rows {
		for _, x := range r.Results {
			s := fmt.Sprintf("Linux %s in %s time", x.Kernel, x.Engine)
			if x.Engine == Sim {
				s = "the simulator"
			}
			if !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
	}
	return strings.Join(out, ", ")
}

// seeds lists the seeds of all results.
func (e Evidence) seeds() string {
	var out []uint64
	for _, r := range e.Rows {
		for _, x := range r.Results {
			out = append(out, x.Seed)
		}
	}
	slices.Sort(out)
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(slices.Compact(out)), "[]"), " ", ", ")
}
