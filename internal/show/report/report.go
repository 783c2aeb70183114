// Package report shows results: one self-contained HTML page, SVG, PNG, CSV,
// JSON, flent data files and terminal tables, for one test or for a before and
// an after. Every picture is drawn once, on a figure, and rendered from it.
//
// Words, tables and charts are made from the same Test. Strings that come from
// a test (labels, servers, reasons) are hostile: they are cleaned of control
// characters here and escaped by each writer.
package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/internal/measure/path"
	"unbloat/internal/measure/verdict"
	"unbloat/unit"
)

// A Page is what one report shows. Only After, or only Before, is a report of
// one result; with neither, and no path, there is nothing to report and the
// writers fail.
type Page struct {
	Title  string          // "" : a title is made up
	Before *verdict.Test   // the state that was found
	After  *verdict.Test   // the state that is judged
	Others []*verdict.Test // further results, between them; compared in the range chart
	Plan   *plan.Plan      // what was applied for After, if known
	Goal   time.Duration   // p95 increase that was aimed at; 0: the plan's, or none
	Steps  []Step          // what the tuner tried, in order
	Notes  []string        // sentences to print under the verdict
	Paths  []*path.Result  // traces, hop by hop
	Lines  []*Line         // what lines did over hours
	Chart  string          // draw this picture alone, such as "framing"; "": all
}

// A Step is one trial of the tuner.
type Step struct {
	Name    string        `json:"name"` // "trial 3"
	Down    unit.Rate     `json:"down_bps"`
	Up      unit.Rate     `json:"up_bps"`
	Outcome string        `json:"outcome"`        // "kept", "too slow: p95 12 ms over a goal of 5 ms"
	Test    *verdict.Test `json:"test,omitempty"` // nil: not measured
}

// A Format is a kind of file that Write makes.
type Format string

// The formats, named by the extension that chooses them.
const (
	FormatHTML  Format = "html"
	FormatSVG   Format = "svg"
	FormatPNG   Format = "png"
	FormatCSV   Format = "csv"
	FormatJSON  Format = "json"
	FormatFlent Format = "flent.gz"
)

// ErrNothing is returned when a page holds no test and no path.
var ErrNothing = errors.New("nothing to report: no test, no path and no line in the page")

// ErrUnsuitable is returned when a format cannot hold what the page holds.
var ErrUnsuitable = errors.New("the format cannot hold this")

// FormatOf returns the format that a file's name asks for by its extension.
func FormatOf(path string) (Format, error) {
	name := strings.ToLower(path)
	for _, f := range []Format{FormatHTML, FormatSVG, FormatPNG, FormatCSV, FormatJSON, FormatFlent} {
		if strings.HasSuffix(name, "."+string(f)) {
			return f, nil
		}
	}
	if strings.HasSuffix(name, ".htm") {
		return FormatHTML, nil
	}
	return "", fmt.Errorf("%q: unknown kind of report; end its name in .html, .svg, .png, .csv, .json or .flent.gz", path)
}

// Write renders the page in format f to w. Nothing is written if rendering fails.
func Write(f Format, w io.Writer, p Page) error {
	if len(p.runs())+len(p.Paths)+len(p.Lines) == 0 {
		return ErrNothing
	}
	var b bytes.Buffer
	var err error
	switch f {
	case FormatHTML:
		err = writeHTML(&b, p)
	case FormatSVG:
		err = sheet(p).writeSVG(&b, standalone)
	case FormatPNG:
		err = sheet(p).writePNG(&b, lightTheme(), 2)
	case FormatCSV:
		if len(p.runs())+len(p.Paths) == 0 {
			err = writeLinesCSV(&b, p.Lines)
		} else {
			err = writeCSV(&b, p)
		}
	case FormatJSON:
		err = writeJSON(&b, p)
	case FormatFlent:
		err = writeFlent(&b, p)
	default:
		err = fmt.Errorf("unknown format %q", string(f))
	}
	if err != nil {
		return fmt.Errorf("make %s report: %w", f, err)
	}
	_, err = w.Write(b.Bytes())
	return err
}

// A run is one test of a page under the name it has there.
type run struct {
	name string // "before", "after", or "" for a report of one
	ink  ink
	dash dash
	test *verdict.Test
}

// runs returns the page's tests, before first and after last.
func (p Page) runs() []run {
	var out []run
	if p.Before != nil {
		out = append(out, run{"before", inkBefore, dashed, p.Before})
	}
	for i, t := range p.Others {
		if t != nil {
			out = append(out, run{fmt.Sprintf("result %d", i+2), inkMuted, dotted, t})
		}
	}
	if p.After != nil {
		out = append(out, run{"after", inkAfter, solid, p.After})
	}
	if len(out) == 1 {
		out[0].name, out[0].ink, out[0].dash = "", inkAfter, solid
	}
	return out
}

// ends returns the first and the last run: what the charts over time compare.
func (p Page) ends() []run {
	r := p.runs()
	if len(r) > 2 {
		return []run{r[0], r[len(r)-1]}
	}
	return r
}

// goal returns the p95 increase aimed at, in ms, or 0.
func (p Page) goal() float64 {
	g := p.Goal
	if g == 0 && p.Plan != nil {
		g = p.Plan.Goal
	}
	return max(0, float64(g)/1e6)
}

// title returns the page's heading.
func (p Page) title() string {
	if t := clean(p.Title); t != "" {
		return t
	}
	r := p.runs()
	if len(r) == 0 && len(p.Paths) > 0 {
		return pathHeading(p.Paths[0])
	}
	if len(r) == 0 && len(p.Lines) > 0 {
		return p.Lines[0].heading()
	}
	if len(r) == 1 {
		if l := clean(r[0].test.Label); l != "" {
			return "Latency under load: " + l
		}
		return "Latency under load"
	}
	return "Latency under load, before and after"
}
