package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"unbloat/internal/measure/verdict"
	"unbloat/reason"
)

// A Comparison is what scenarios gave in each of their cases, side by side.
type Comparison struct {
	Title  string
	Notes  []string // sentences under the title: what was run, and where
	Tables []ComparisonTable
}

// A ComparisonTable is scenarios that have the same cases.
type ComparisonTable struct {
	Title string
	Rows  []ComparisonRow
}

// A ComparisonRow is one scenario.
type ComparisonRow struct {
	Name, Setting string // "flood"; "15/1 Mbit/s, 24 ms; upload, voip"
	Cases         []ComparisonCase
}

// A ComparisonCase is what one case of a scenario gave.
type ComparisonCase struct {
	Name  string        // "fq_codel"
	Test  *verdict.Test // drawn by the phase whose p95 rose the most
	Words string        // all that it gave
	Ours  bool          // drawn in the colour of what is judged
}

// ErrNoCase is returned for a comparison in which no case was measured.
var ErrNoCase = errors.New("nothing to compare: no case was measured")

// WriteComparison writes the HTML page of a comparison: a picture and a table
// of each kind. Nothing is written if rendering fails.
func WriteComparison(w io.Writer, c Comparison) error {
	var b bytes.Buffer
	h := page{&b}
	h.head(c.Title)
	h.raw("<header>\n")
	h.el("h1", "unbloat")
	h.el(`p class="verdict"`, clean(c.Title))
	h.raw(`<ul class="notes">`)
	for _, n := range c.Notes {
		h.el("li", clean(n))
	}
	h.raw("</ul>\n</header>\n")
	drawn := false
	for _, t := range c.Tables {
		ok, err := h.comparison(t)
		if err != nil {
			return fmt.Errorf("draw %s: %w", t.Title, err)
		}
		drawn = drawn || ok
	}
	if !drawn {
		return ErrNoCase
	}
	h.raw("<footer>")
	h.el("p", english().Say(reason.TableGlossary))
	h.foot()
	_, err := w.Write(b.Bytes())
	return err
}

// WriteComparisonFile writes the page into a file, which appears whole or not at all.
func WriteComparisonFile(path string, c Comparison) error {
	return writeWhole(path, func(w io.Writer) error { return WriteComparison(w, c) })
}

// comparison writes one table and its picture; ok is false if there is nothing
// to draw.
func (h page) comparison(t ComparisonTable) (ok bool, err error) {
	r := NewRuler()
	h.raw("<section>")
	h.el("h2", clean(t.Title))
	if wide := t.chart(layout{w: 872, rule: r}); wide != nil {
		ok = true
		h.raw(`<figure><div class="wide">`)
		if err := wide.writeSVG(h.b, inline); err != nil {
			return false, err
		}
		h.raw(`</div><div class="narrow">`)
		if err := t.chart(layout{w: 350, narrow: true, rule: r}).writeSVG(h.b, inline); err != nil {
			return false, err
		}
		h.raw("</div>")
		h.el("figcaption", "Round-trip time of the probe, in the phase whose p95 rose the most. Further left is better; the axis is logarithmic. Lost probes are in the table.")
		h.raw("</figure>\n")
	}
	h.raw(`<div class="wrap"><table><thead><tr><th scope="col">Case</th><th scope="col" class="words">added p95, loss, calls, and what the others got through</th></tr></thead>` + "\n")
	for _, row := range t.Rows {
		h.raw("<tbody><tr>")
		h.el(`th scope="rowgroup" colspan="2"`, clean(row.Name)+": "+clean(row.Setting))
		h.raw("</tr>\n")
		for _, c := range row.Cases {
			h.raw("<tr>")
			h.el(`th scope="row"`, clean(c.Name))
			h.el(`td class="words"`, clean(c.Words))
			h.raw("</tr>\n")
		}
		h.raw("</tbody>\n")
	}
	h.raw("</table></div></section>\n")
	return ok, nil
}

// chart draws the cases of every scenario on one axis; nil if none was measured.
func (t ComparisonTable) chart(l layout) *figure {
	c := ranges{multi: true, title: clean(t.Title),
		desc: "Median, p95 and range of the probe's round-trip time in milliseconds, on a logarithmic axis, for each case of each scenario. The table below has the figures."}
	for _, row := range t.Rows {
		g := barGroup{title: clean(row.Name), ink: inkText}
		for _, k := range row.Cases {
			if k.Test == nil {
				continue
			}
			_, p := worstPhase(k.Test)
			if p == nil {
				continue
			}
			b := barOf(run{clean(k.Name), inkMuted, solid, k.Test}, p.Latency.Received, p.Latency.RTTMs)
			if k.Ours {
				b.run.ink = inkAfter
			}
			g.bars = append(g.bars, b)
		}
		c.add(g)
	}
	return c.draw(nil, 0, l)
}
