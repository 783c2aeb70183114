// This file writes a plan as text to paste into a router: the platform's
// commands and files, with the reason of each number in comments. The
// platform's driver provides the commands and files; the comments are the same
// for all. It is pure: it looks nothing up on this machine.

package platform

import (
	"strings"

	"unbloat/internal/cure/plan"
	"unbloat/reason"
)

// A PlanPart is one file, or one list of commands, to paste.
type PlanPart struct {
	Where string // what to do with it, shown as a comment
	Text  string // complete lines, or ""
}

// PlanText writes a plan and its parts. Everything but the parts is comments. Notes
// say what the platform's language cannot express.
func PlanText(p plan.Plan, parts []PlanPart, notes []string) string {
	var b strings.Builder
	head(&b, p, notes)
	for _, part := range parts {
		b.WriteString("\n")
		comment(&b, part.Where)
		b.WriteString(part.Text)
	}
	return b.String()
}

// head writes the reasons and warnings as comments.
func head(b *strings.Builder, p plan.Plan, notes []string) {
	comment(b, p.Title())
	for _, r := range p.Reasons {
		if !r.OfDirection() {
			setting(b, r)
		}
	}
	for _, d := range []struct {
		name plan.Direction
		s    *plan.Shaper
	}{{plan.DirectionUp, p.Up}, {plan.DirectionDown, p.Down}} {
		if d.s == nil {
			continue
		}
		b.WriteString("#\n")
		comment(b, reason.Of(reason.PlanOn, "direction", string(d.name), "device", d.s.Device).String())
		for _, r := range p.ReasonsOf(string(d.name)) {
			setting(b, r)
		}
	}
	for _, w := range p.Warnings {
		b.WriteString("#\n")
		comment(b, reason.Of(reason.PlanWarning).With(w).String())
	}
	for _, n := range notes {
		b.WriteString("#\n")
		comment(b, "note: "+n)
	}
	if lines := difference(p); len(lines) > 0 {
		b.WriteString("#\n")
		comment(b, reason.Of(reason.PlanOfArticle).String())
		for _, line := range lines {
			b.WriteString(PlanItem(line.String()))
		}
	}
}

// difference lists how our own plan differs from one in an article's style.
func difference(p plan.Plan) []reason.Reason {
	if p.Basis == nil || p.Basis.Preferences.Style != plan.StyleArticle {
		return nil
	}
	w := p.Basis.Preferences
	w.Style = plan.StyleDefault
	ours, err := plan.Make(p.Basis.Line, p.Basis.Capabilities, w)
	if err != nil {
		return nil
	}
	return p.Differences(ours)
}

// PlanWidth is the width of comments in characters.
const PlanWidth = 100

func comment(b *strings.Builder, text string) { wrap(b, "# ", "# ", text) }

func setting(b *strings.Builder, r plan.Reason) {
	b.WriteString(PlanItem(reason.Of(reason.SettingIs, "field", r.Field).With(r.Value, r.Why).String()))
}

// wrap writes text in lines of at most Width characters. A longer word gets a
// line of its own.
func wrap(b *strings.Builder, first, rest, text string) {
	line := first
	for i, word := range strings.Fields(text) {
		if i > 0 && len([]rune(line))+1+len([]rune(word)) > PlanWidth {
			b.WriteString(line + "\n")
			line = rest + word
			continue
		}
		if i > 0 {
			line += " "
		}
		line += word
	}
	b.WriteString(line + "\n")
}

// PlanItem returns a comment that is one item of a list, wrapped.
func PlanItem(text string) string {
	var b strings.Builder
	wrap(&b, "#   ", "#     ", text)
	return b.String()
}

// PlanLines writes commands for a shell, one a line.
func PlanLines(commands [][]string) string {
	var b strings.Builder
	for _, argv := range commands {
		words := make([]string, len(argv))
		for i, w := range argv {
			words[i] = shellWord(w)
		}
		b.WriteString(strings.Join(words, " ") + "\n")
	}
	return b.String()
}

// shellWord quotes a word if a shell would split or expand it.
func shellWord(w string) string {
	if w != "" && !strings.ContainsAny(w, " \t\n'\"\\$`|&;<>()*?[]#~{}!") {
		return w
	}
	return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
}
