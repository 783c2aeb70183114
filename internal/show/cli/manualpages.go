// This part writes manual pages, man(7), of a program's commands as they
// describe themselves. It is pure.

package cli

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A Manual is what all pages of a program have in common.
type Manual struct {
	Version string    // of the program
	Date    time.Time // of the source
	Exits   []Entry   // exit codes and what they mean
	Files   []Entry   // files of the user's that the program reads or writes
}

// An Entry is a name and what it stands for.
type Entry struct{ Name, Says string }

// A Page is one manual page of section 1.
type Page struct {
	Name string // of its file, such as unbloat-plan.1
	Text string
}

// Pages returns a page for the command and for each one below it that is listed
// in its help.
func (m *Manual) Pages(c *cobra.Command) []Page {
	pages := []Page{{title(c) + ".1", m.page(c)}}
	for _, sub := range listed(c) {
		pages = append(pages, m.Pages(sub)...)
	}
	return pages
}

// listed are the commands below c that have a page.
func listed(c *cobra.Command) []*cobra.Command {
	var out []*cobra.Command
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			out = append(out, sub)
		}
	}
	return out
}

// title is a command's name as one word: unbloat-lab-run.
func title(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

func (m *Manual) page(c *cobra.Command) string {
	c.InitDefaultHelpFlag()
	c.InitDefaultVersionFlag()
	var p writer
	p.line(".TH %s 1 %s %s %s", strings.ToUpper(title(c)), m.Date.UTC().Format(time.DateOnly), quoted(c.Root().Name()+" "+m.Version), quoted(c.Root().Name()))
	p.line(".SH NAME")
	p.text(`%s \- %s`, escaped(title(c)), escaped(strings.TrimSuffix(c.Short, ".")))
	p.line(".SH SYNOPSIS")
	use := escaped(strings.TrimPrefix(c.Use, c.Name()))
	p.text(`\fB%s\fR%s [\fIflags\fR]`, escaped(c.CommandPath()), use)
	subs := listed(c)
	if len(subs) > 0 {
		p.line(".br")
		p.text(`\fB%s\fR \fIcommand\fR`, escaped(c.CommandPath()))
	}
	p.line(".SH DESCRIPTION")
	p.prose(cmp.Or(c.Long, c.Short+"."))
	if len(subs) > 0 {
		p.line(".SH COMMANDS")
		for _, sub := range subs {
			p.entry(`\fB`+escaped(title(sub))+`\fR(1)`, escaped(sub.Short))
		}
	}
	p.line(".SH OPTIONS")
	c.LocalFlags().VisitAll(func(f *pflag.Flag) { p.flag(f) })
	if inherited := c.InheritedFlags(); inherited.HasAvailableFlags() {
		inherited.VisitAll(func(f *pflag.Flag) { p.flag(f) })
	}
	if c.Example != "" {
		p.line(".SH EXAMPLES")
		p.verbatim(strings.Split(c.Example, "\n"))
	}
	p.entries("EXIT STATUS", m.Exits)
	if !c.HasParent() {
		p.entries("FILES", m.Files)
	}
	p.line(".SH SEE ALSO")
	var see []string
	if c.HasParent() {
		see = append(see, reference(c.Parent()))
		for _, other := range listed(c.Parent()) {
			if other != c && other.GroupID == c.GroupID {
				see = append(see, reference(other))
			}
		}
	} else {
		for _, sub := range subs {
			see = append(see, reference(sub))
		}
	}
	p.text("%s", strings.Join(see, ", "))
	return p.b.String()
}

// reference is a command's page as others refer to it.
func reference(c *cobra.Command) string { return `\fB` + escaped(title(c)) + `\fR(1)` }

// A writer writes the lines of a page, none of them longer than 78 bytes where a
// space allows it.
type writer struct{ b strings.Builder }

func (p *writer) line(format string, args ...any) { fmt.Fprintf(&p.b, format+"\n", args...) }

// text writes a paragraph that is escaped already.
func (p *writer) text(format string, args ...any) {
	line := ""
	flush := func() {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") { // else a request
			line = `\&` + line
		}
		p.line("%s", line)
		line = ""
	}
	for _, word := range strings.Fields(fmt.Sprintf(format, args...)) {
		if line != "" && len(line)+1+len(word) > 76 {
			flush()
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	if line != "" {
		flush()
	}
}

// prose writes paragraphs, which an empty line ends, and lines that are indented
// as they are.
func (p *writer) prose(text string) {
	for i, block := range strings.Split(strings.TrimSpace(text), "\n\n") {
		lines := strings.Split(strings.Trim(block, "\n"), "\n")
		plain := 0
		for plain < len(lines) && !strings.HasPrefix(lines[plain], " ") && !strings.HasPrefix(lines[plain], "\t") {
			plain++
		}
		if plain > 0 {
			if i > 0 {
				p.line(".PP")
			}
			p.text("%s", escaped(strings.Join(lines[:plain], " ")))
		}
		if plain < len(lines) {
			p.verbatim(lines[plain:])
		}
	}
}

// verbatim writes lines that are not filled, indented alike.
func (p *writer) verbatim(lines []string) {
	p.line(".RS 4\n.nf")
	for _, l := range lines {
		l = escaped(strings.TrimPrefix(strings.ReplaceAll(l, "\t", "  "), "  "))
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			l = `\&` + l
		}
		p.line("%s", strings.TrimRight(l, " "))
	}
	p.line(".fi\n.RE")
}

// entry writes a tag and what it means, both escaped.
func (p *writer) entry(tag, says string) {
	p.line(".TP")
	p.line("%s", tag)
	p.text("%s", says)
}

func (p *writer) entries(heading string, list []Entry) {
	if len(list) == 0 {
		return
	}
	p.line(".SH %s", heading)
	for _, e := range list {
		p.entry(`\fB`+escaped(e.Name)+`\fR`, escaped(e.Says))
	}
}

// flag writes one flag, if it is shown in the help.
func (p *writer) flag(f *pflag.Flag) {
	if f.Hidden || f.Deprecated != "" {
		return
	}
	placeholder, usage := pflag.UnquoteUsage(f)
	tag := `\fB` + escaped("--"+f.Name) + `\fR`
	if f.Shorthand != "" {
		tag = `\fB` + escaped("-"+f.Shorthand) + `\fR, ` + tag
	}
	if placeholder != "" {
		tag += ` \fI` + escaped(placeholder) + `\fR`
	}
	if !strings.Contains(usage, "(default") && !zero(f) {
		usage += " (default: " + f.DefValue + ")"
	}
	p.entry(tag, escaped(usage))
}

// zero reports whether a flag's default is nothing worth writing down.
func zero(f *pflag.Flag) bool {
	switch f.DefValue {
	case "", "0", "false", "0s", "[]", "-1":
		return true
	}
	return false
}

// quoted is an argument of a macro.
func quoted(s string) string { return `"` + strings.ReplaceAll(escaped(s), `"`, `\(dq`) + `"` }

// escaped is text in which nothing means anything to the formatter, in ASCII. A
// hyphen stays the one that is typed.
func escaped(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case r == '~':
			b.WriteString(`\(ti`)
		case r == '^':
			b.WriteString(`\(ha`)
		case r == '`':
			b.WriteString(`\(ga`)
		case r >= utf8.RuneSelf:
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
