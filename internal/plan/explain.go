package plan

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// Explain returns the plan in words: a line a number, with its reason.
func (p Plan) Explain() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Plan for %s: %s on %s", p.Platform, p.AQM, p.WAN)
	if p.LAN != "" {
		fmt.Fprintf(&b, ", home on %s", p.LAN)
	}
	fmt.Fprintf(&b, "\nGoal: latency under load at most %s above idle (p95)\n", ms(p.Goal))
	for _, d := range []struct {
		name Direction
		s    *Shaper
	}{{DirectionDown, p.Down}, {DirectionUp, p.Up}} {
		if d.s == nil {
			fmt.Fprintf(&b, "\n%s: not shaped\n", d.name)
			continue
		}
		fmt.Fprintf(&b, "\n%s: %s on %s\n", d.name, d.s.Rate, d.s.Device)
		p.explain(&b, string(d.name)+".")
	}
	b.WriteString("\nboth:\n")
	p.explain(&b, "")
	if p.Classes != nil {
		b.WriteString("\nclasses:\n")
		p.explain(&b, "classes.")
	}
	for _, w := range p.Warnings {
		fmt.Fprintf(&b, "\nwarning: %s\n", w)
	}
	return b.String()
}

// explain prints the reasons whose field begins with prefix; with none, those
// that belong to no direction.
func (p Plan) explain(b *strings.Builder, prefix string) {
	w := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	for _, r := range p.Reasons {
		name, ok := strings.CutPrefix(r.Field, prefix)
		if !ok || strings.Contains(name, ".") {
			continue
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\n", name, r.Value, r.Why)
	}
	w.Flush()
}

// Title says in a line what the plan is.
func (p Plan) Title() string {
	return fmt.Sprintf("unbloat plan for %s: %s; goal: latency under load at most %s above idle (p95)", p.Platform, p.AQM, ms(p.Goal))
}

// Why returns the reason recorded for a field such as "up.rate".
func (p Plan) Why(field string) (Reason, bool) {
	for _, r := range p.Reasons {
		if r.Field == field {
			return r, true
		}
	}
	return Reason{}, false
}

// Differences lists the numbers in which other differs from p, a line each,
// with other's reason: how the article's plan and ours differ.
func (p Plan) Differences(other Plan) []string {
	var out []string
	for _, r := range other.Reasons {
		mine, ok := p.Why(r.Field)
		switch {
		case !ok:
			out = append(out, fmt.Sprintf("%s: %s (not set here): %s", r.Field, r.Value, r.Why))
		case mine.Value != r.Value:
			out = append(out, fmt.Sprintf("%s: %s instead of %s: %s", r.Field, r.Value, mine.Value, r.Why))
		}
	}
	return out
}
