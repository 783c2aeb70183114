package report

import (
	"fmt"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/unit"
)

// steps writes what the tuner tried.
func (h page) steps(p Page) {
	if len(p.Steps) == 0 {
		return
	}
	h.raw(`<section id="steps"><h2>What was tried</h2>`)
	h.tableHead("Step", "set, down / up", "added, p95", "got, down / up")
	for _, s := range p.Steps {
		plus, got := none, none
		if s.Test != nil {
			_, worst := worstPhase(s.Test)
			down, up := speeds(s.Test)
			plus, got = ms(added(worst)), both(speed(down), speed(up))
		}
		h.row(clean(s.Name), both(shaped(s.Down), shaped(s.Up)), plus, got)
		if o := clean(s.Outcome); o != "" {
			h.raw("<tr>")
			h.el(`td class="words outcome" colspan="4"`, o)
			h.raw("</tr>\n")
		}
	}
	h.raw("</tbody></table></div></section>\n")
}

// both prints the rates of the two directions. A unit that both have is printed
// once.
func both(down, up quantity) string {
	if down == up && down == shaped(0) {
		return down.String()
	}
	return down.before(up) + " / " + up.String()
}

// shaped prints a shaper's rate; zero is none.
func shaped(r unit.Rate) quantity {
	if r <= 0 {
		return quantity{figure: "not shaped"}
	}
	return speed(float64(r))
}

// plan writes what was set on the router, and why.
func (h page) plan(p Page) {
	if p.Plan == nil {
		return
	}
	h.raw(`<section id="plan"><h2>What was set</h2>`)
	h.el("p", planWords(p.Plan))
	if len(p.Plan.Reasons) > 0 {
		h.raw(`<div class="wrap"><table><thead><tr><th scope="col">Setting</th><th scope="col">value</th><th scope="col" class="words">why</th></tr></thead><tbody>` + "\n")
		for _, r := range p.Plan.Reasons {
			h.raw("<tr>")
			h.el(`th scope="row"`, clean(r.Field))
			h.el("td", clean(r.Value.String()))
			h.el(`td class="words"`, clean(r.Why.String()))
			h.raw("</tr>\n")
		}
		h.raw("</tbody></table></div>")
	}
	h.raw("</section>\n")
}

// planWords says in one sentence what a plan sets.
func planWords(p *plan.Plan) string {
	s := fmt.Sprintf("%s: download %s, upload %s", clean(string(p.AQM)), shaped(p.DownBps), shaped(p.UpBps))
	if w := clean(p.WAN); w != "" {
		s += ", on " + w
	}
	if f := clean(p.Platform); f != "" {
		s += " (" + f + ")"
	}
	if p.Goal > 0 {
		s += fmt.Sprintf("; goal: p95 at most %s over idle", shortMs(float64(p.Goal)/float64(time.Millisecond)))
	}
	return s + "."
}

// hops writes the table of every trace.
func (h page) hops(p Page) {
	for _, t := range p.Paths {
		h.raw(`<section><h2>`)
		h.text(pathHeading(t))
		h.raw("</h2>")
		h.el(`p class="muted"`, capital(pathConditions(t)))
		h.tableHead(append([]string{"Hop"}, hopHeads(t)...)...)
		for _, r := range hopRows(t) {
			h.row(r.name, r.cells...)
			if r.begin {
				h.raw("<tr>")
				h.el(fmt.Sprintf(`td class="words outcome" colspan="%d"`, len(r.cells)+1), "↑ the increase begins here, "+t.Begins.Place.Words())
				h.raw("</tr>\n")
			}
		}
		h.raw("</tbody></table></div></section>\n")
	}
}

// conditions writes every figure of every test with what it was taken under.
func (h page) conditions(p Page) {
	runs := p.runs()
	if len(runs) == 0 {
		return
	}
	h.raw(`<section id="conditions"><h2>All figures and conditions</h2>` + "\n")
	for _, r := range runs {
		open := ""
		if len(runs) == 1 {
			open = " open"
		}
		h.raw("<details" + open + "><summary>")
		h.text(r.heading() + ", " + gradeWords(r))
		h.raw("</summary>\n")
		if s := english().conditions(r.test); s != "" {
			h.el(`p class="muted"`, capital(s))
		}
		h.facts(r)
		h.raw("</details>\n")
	}
	h.raw("</section>\n")
}

// facts writes one test's table: a column a phase.
func (h page) facts(r run) {
	phases := r.test.Phases()
	if len(phases) == 0 {
		h.raw("<p>No phase was measured.</p>\n")
		return
	}
	heads := []string{"Figure"}
	for _, p := range phases {
		heads = append(heads, p.Name)
	}
	h.tableHead(heads...)
	for _, f := range english().facts(r.test) {
		h.row(f.name, f.cells...)
	}
	h.raw("</tbody></table></div>\n")
}
