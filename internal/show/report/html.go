package report

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"strings"

	"unbloat/guard"
	"unbloat/internal/measure/verdict"
	"unbloat/reason"
)

// page builds an HTML document. Text goes through text or el, which escape it.
type page struct{ b *bytes.Buffer }

// raw writes markup; it takes no string of an input.
func (h page) raw(s string) { h.b.WriteString(s) }

// text writes escaped text.
func (h page) text(s string) { h.b.WriteString(markup(s)) }

// markup returns text as an element of HTML or SVG has it: made visible, since XML
// forbids control characters and a browser turns text around too, and escaped.
func markup(s string) string { return html.EscapeString(guard.Visible(s)) }

// el writes one element: its opening tag without brackets, as in `td class="x"`,
// and its text, escaped.
func (h page) el(tag, s string) {
	name, _, _ := strings.Cut(tag, " ")
	h.raw("<" + tag + ">")
	h.text(s)
	h.raw("</" + name + ">")
}

// cells writes cells of one kind, as in `th scope="col"`.
func (h page) cells(tag string, texts ...string) {
	for _, s := range texts {
		h.el(tag, s)
	}
}

// row writes a row with its name.
func (h page) row(name string, cells ...string) {
	h.raw("<tr>")
	h.el(`th scope="row"`, name)
	h.cells("td", cells...)
	h.raw("</tr>\n")
}

// tableHead opens a table with the heads of its columns, and its body.
func (h page) tableHead(heads ...string) {
	h.raw(`<div class="wrap"><table><thead><tr>`)
	h.cells(`th scope="col"`, heads...)
	h.raw("</tr></thead><tbody>\n")
}

// writeHTML renders the page: the verdict first, then the figures, the charts,
// what was done, and the conditions.
func writeHTML(b *bytes.Buffer, p Page) error {
	h := page{b}
	h.head(p.title())
	h.header(p)
	if err := h.charts(p); err != nil {
		return err
	}
	h.steps(p)
	h.plan(p)
	h.hops(p)
	h.conditions(p)
	h.raw("<footer>")
	if p.last() != nil {
		h.el("p", english().Say(reason.TableGlossary)+" Grades are those of DSLReports: by the mean latency added, under 5 ms is A+, 30 A, 60 B, 200 C, 400 D.")
	}
	h.foot()
	return nil
}

// head opens the document.
func (h page) head(title string) { h.headIn("en", title) }

// headIn opens a document in a language.
func (h page) headIn(language, title string) {
	h.raw("<!doctype html>\n<html lang=\"" + language + "\">\n<meta charset=\"utf-8\">\n")
	h.raw(`<meta name="viewport" content="width=device-width,initial-scale=1">` + "\n")
	h.raw(`<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">` + "\n")
	h.raw(`<meta name="color-scheme" content="light dark">` + "\n")
	h.el("title", title)
	h.raw("\n<style>" + pageCSS() + "</style>\n<main>\n")
}

// foot closes it, in the footer.
func (h page) foot() {
	h.raw("<p>Made by unbloat. This page holds everything it shows; it loads nothing.</p></footer>\n</main>\n</html>\n")
}

// header writes the verdict, what spoils it, the main figures and the notes.
func (h page) header(p Page) {
	h.raw("<header>\n")
	h.el("h1", p.title())
	h.el(`p class="verdict"`, p.sentence())
	for _, r := range p.ends() {
		if r.test.Valid {
			continue
		}
		h.raw(`<div class="alert" role="note"><b>`)
		h.text("Invalid measurement: " + r.heading())
		h.raw("</b><ul>")
		for _, why := range english().listReasons(r.test) {
			h.el("li", why)
		}
		h.raw("</ul></div>\n")
	}
	if !p.invalid() && p.last() != nil {
		h.tiles(p)
	}
	if notes := p.notes(); len(notes) > 0 {
		h.raw(`<ul class="notes">`)
		for _, n := range notes {
			h.el("li", n)
		}
		h.raw("</ul>\n")
	}
	h.raw("</header>\n")
}

// tiles writes the figures that matter most: grade, added latency, speeds.
func (h page) tiles(p Page) {
	first, last := p.first(), p.last()
	tests := []*verdict.Test{last}
	ref := last
	if first != nil {
		tests, ref = []*verdict.Test{first, last}, first
	}
	name, _ := worstPhase(ref)
	h.raw(`<ul class="tiles">`)
	h.tile("Grade", tests, func(t *verdict.Test) quantity { return quantity{figure: english().grade(t)} })
	if name != "" {
		h.tile("Added latency, p95, "+while(name), tests, func(t *verdict.Test) quantity { return latency(added(phase(t, name))) })
	}
	for _, d := range []direction{download, upload} {
		value := func(t *verdict.Test) quantity {
			down, up := speeds(t)
			return speed([...]float64{down, up}[d])
		}
		if down, up := speeds(ref); !math.IsNaN([...]float64{down, up}[d]) {
			h.tile(d.String()+" speed", tests, value)
		}
	}
	h.raw("</ul>\n")
}

// tile writes one figure, before → after if there are two tests.
func (h page) tile(what string, tests []*verdict.Test, value func(*verdict.Test) quantity) {
	h.raw("<li>")
	h.el(`span class="what"`, what)
	h.raw(`<span class="num">`)
	if len(tests) > 1 {
		a, b := value(tests[0]), value(tests[1])
		h.el(`span class="from"`, a.before(b))
		h.text(" → ")
		h.el(`span class="to"`, b.String())
	} else {
		h.el(`span class="to"`, value(tests[0]).String())
	}
	h.raw("</span></li>\n")
}

// charts writes every chart under its heading, once for a wide page and once
// for a phone; the table of figures follows the first.
func (h page) charts(p Page) error {
	r := NewRuler()
	wide := charts(p, layout{w: 872, rule: r})
	narrow := charts(p, layout{w: 350, narrow: true, rule: r})
	captions := map[string]string{
		"range":        "Further left is better. The axis is logarithmic: each step to the right is many times slower.",
		"latency":      "Every probe is in the picture; each column shows the fastest, the median and the slowest of its moment. The axis is logarithmic, the same for all panels.",
		"distribution": "How many of 100 probes came back within a time. Steep and far left is good; a long slope to the right is what calls suffer from. Lost probes are not in the curves; the tables count them.",
		"framing":      "A full line passes packets of one size at even distances; the time of one, in the line's own bytes, is what it occupies there. Dots are measured, the line is the framing that fits them.",
		"hops":         "Where a hop and all hops behind it get slower under load, the queue is in front of that hop. A single slow hop only gives its answers low priority, which delays no traffic.",
		"line":         "Means of each step of time, and its worst delay. Where a curve has a gap, nothing is known.",
		"throughput":   "What arrived, without packet headers. Over each phase stands its mean, as in the tables.",
	}
	for i, c := range wide {
		fmt.Fprintf(h.b, `<section id="%s">`, c.id)
		h.el("h2", c.title)
		h.raw(`<figure><div class="wide">`)
		if err := c.fig.writeSVG(h.b, inline); err != nil {
			return err
		}
		h.raw(`</div><div class="narrow">`)
		if err := narrow[i].fig.writeSVG(h.b, inline); err != nil {
			return err
		}
		h.raw("</div>")
		h.el("figcaption", captions[c.kind])
		h.raw("</figure>\n</section>\n")
		if i == 0 {
			h.table(p)
		}
	}
	if len(wide) == 0 {
		h.el(`p class="alert"`, "There is nothing to draw: no probe was answered.")
		h.table(p)
	} else if len(wide) == 1 && len(p.Paths)+len(p.Lines) == 0 {
		h.el("p", "The result carries no series over time, so only its figures can be drawn.")
	}
	return nil
}

// table writes the before/after table; a single test has its figures below.
func (h page) table(p Page) {
	first, last := p.first(), p.last()
	if first == nil {
		return
	}
	h.raw(`<section id="table"><h2>Before and after</h2><div class="wrap"><table class="change"><thead><tr><th scope="col">Figure</th><th scope="col">before</th><th scope="col">after</th><th scope="col">change</th></tr></thead>` + "\n")
	for _, g := range english().groups(first, last) {
		h.raw("<tbody>")
		if g.name != "" {
			h.raw("<tr>")
			h.el(`th scope="rowgroup" colspan="4"`, g.name)
			h.raw("</tr>\n")
		}
		for _, r := range g.rows {
			h.raw("<tr>")
			h.el(`th scope="row"`, r.name)
			h.el("td", r.before)
			h.el("td", r.after)
			tone := [...]string{unknown: "", same: "", better: ` class="tone-good"`, worse: ` class="tone-bad"`}[r.outcome]
			h.el("td"+tone, r.change)
			h.raw("</tr>\n")
		}
		h.raw("</tbody>\n")
	}
	h.raw("</table></div></section>\n")
}
