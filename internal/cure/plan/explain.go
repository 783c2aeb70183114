package plan

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"unbloat/reason"
)

// Sections of a plan other than its directions, by the fields of reasons:
// "classes.voice" belongs to SectionClasses, "aqm" to Whole.
const (
	Whole          = ""
	SectionClasses = "classes"
)

// Explain returns the plan as English text: one line for each number, with its reason.
func (p Plan) Explain() string { return p.ExplainIn(reason.English()) }

// ExplainIn returns the plan as text in a language.
func (p Plan) ExplainIn(l *reason.Language) string {
	var b strings.Builder
	line := func(code reason.Code, args ...any) { b.WriteString(in(l, code, args...)) }
	line(reason.PlanHead, "platform", p.Platform, "aqm", p.AQM, "wan", p.WAN)
	if p.LAN != "" {
		line(reason.PlanHome, "lan", p.LAN)
	}
	b.WriteString("\n" + in(l, reason.PlanGoal, "goal_ms", p.Goal) + "\n")
	for _, d := range []struct {
		name Direction
		s    *Shaper
	}{{DirectionDown, p.Down}, {DirectionUp, p.Up}} {
		b.WriteString("\n")
		if d.s == nil {
			line(reason.PlanUnshaped, "direction", d.name)
			b.WriteString("\n")
			continue
		}
		line(reason.PlanShaped, "direction", d.name, "rate_bps", d.s.Rate, "device", d.s.Device)
		b.WriteString("\n")
		p.explain(&b, l, string(d.name))
	}
	b.WriteString("\n" + in(l, reason.PlanBoth) + "\n")
	p.explain(&b, l, Whole)
	if p.Classes != nil {
		b.WriteString("\n" + in(l, reason.PlanClasses) + "\n")
		p.explain(&b, l, SectionClasses)
	}
	for _, w := range p.Warnings {
		b.WriteString("\n" + say(reason.PlanWarning).With(w).Text(l, reason.Terminal) + "\n")
	}
	return b.String()
}

// in returns the text of a code in a language.
func in(l *reason.Language, code reason.Code, args ...any) string {
	return say(code, args...).Text(l, reason.Terminal)
}

// explain prints the reasons of a section.
func (p Plan) explain(b *strings.Builder, l *reason.Language, section string) {
	w := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	for _, r := range p.ReasonsOf(section) {
		fmt.Fprintf(w, "  %s\t%s\t%s\n", r.Field, r.Value.Text(l, reason.Terminal), r.Why.Text(l, reason.Terminal))
	}
	w.Flush()
}

// ReasonsOf returns the reasons of a section: a direction, SectionClasses or Whole.
// Their fields come without the section's name.
func (p Plan) ReasonsOf(section string) []Reason {
	var out []Reason
	for _, r := range p.Reasons {
		of, name, has := strings.Cut(r.Field, ".")
		if !has {
			of, name = Whole, r.Field
		}
		if of == section {
			out = append(out, Reason{Field: name, Value: r.Value, Why: r.Why})
		}
	}
	return out
}

// OfDirection reports whether the reason is about a single direction.
func (r Reason) OfDirection() bool {
	of, _, has := strings.Cut(r.Field, ".")
	return has && (of == string(DirectionDown) || of == string(DirectionUp))
}

// Title describes the plan in one line of English.
func (p Plan) Title() string {
	return in(reason.English(), reason.PlanTitle, "platform", p.Platform, "aqm", p.AQM, "goal_ms", p.Goal)
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

// Differences lists the settings of other that p does not have or has with another
// value, with other's reasons: how the article's plan and ours differ.
func (p Plan) Differences(other Plan) []reason.Reason {
	var out []reason.Reason
	for _, r := range other.Reasons {
		mine, ok := p.Why(r.Field)
		switch {
		case !ok:
			out = append(out, say(reason.SettingOnlyHere, "field", r.Field).With(r.Value, r.Why))
		case !mine.Value.Equal(r.Value):
			out = append(out, say(reason.SettingDiffers, "field", r.Field).With(r.Value, mine.Value, r.Why))
		}
	}
	return out
}
