package report

import (
	"bytes"
	"encoding/json"

	"unbloat/internal/cure/plan"
	"unbloat/internal/measure/path"
	"unbloat/internal/measure/verdict"
)

// Schema names the JSON layout of a report.
const Schema = resultSchema

// document is a report as JSON: the verdict, and the tests it was made from.
type document struct {
	Schema  string          `json:"schema"`
	Title   string          `json:"title"`
	Verdict string          `json:"verdict"`
	GoalMs  float64         `json:"goal_ms,omitempty"`
	Notes   []string        `json:"notes"`
	Plan    *plan.Plan      `json:"plan,omitempty"`
	Steps   []Step          `json:"steps,omitempty"`
	Tests   []*verdict.Test `json:"tests"` // before first, after last
	Paths   []*path.Result  `json:"paths,omitempty"`
	Lines   []*Line         `json:"lines,omitempty"`
}

func writeJSON(b *bytes.Buffer, p Page) error {
	d := document{Schema: Schema, Title: p.title(), Verdict: p.sentence(), GoalMs: p.goal(), Plan: p.Plan, Notes: append([]string{}, p.notes()...), Steps: p.Steps, Tests: []*verdict.Test{}, Paths: p.Paths, Lines: p.Lines}
	for _, r := range p.runs() {
		d.Tests = append(d.Tests, r.test)
	}
	e := json.NewEncoder(b)
	e.SetIndent("", " ")
	return e.Encode(d)
}
