package report

import (
	"bytes"
	"encoding/json"

	"unbloat/internal/path"
	"unbloat/internal/plan"
	"unbloat/internal/result"
	"unbloat/internal/verdict"
)

// Schema names the JSON layout of a report.
const Schema = result.ReportSchema

// document is a report as JSON: the verdict, and the tests it was made from.
type document struct {
	Schema  string          `json:"schema"`
	Title   string          `json:"title"`
	Verdict string          `json:"verdict"`
	GoalMs  float64         `json:"goal_ms,omitempty"`
	Notes   []string        `json:"notes"`
	Plan    *plan.Plan      `json:"plan,omitempty"`
	Steps   []documentStep  `json:"steps,omitempty"`
	Tests   []*verdict.Test `json:"tests"` // before first, after last
	Paths   []*path.Result  `json:"paths,omitempty"`
}

type documentStep struct {
	Name    string        `json:"name"`
	DownBps int64         `json:"down_bps"`
	UpBps   int64         `json:"up_bps"`
	Outcome string        `json:"outcome"`
	Test    *verdict.Test `json:"test,omitempty"`
}

func writeJSON(b *bytes.Buffer, p Page) error {
	d := document{Schema: Schema, Title: p.title(), Verdict: p.sentence(), GoalMs: p.goal(), Plan: p.Plan, Notes: []string{}, Tests: []*verdict.Test{}, Paths: p.Paths}
	d.Notes = append(d.Notes, p.notes()...)
	for _, r := range p.runs() {
		d.Tests = append(d.Tests, r.test)
	}
	for _, s := range p.Steps {
		d.Steps = append(d.Steps, documentStep{s.Name, int64(s.Down), int64(s.Up), s.Outcome, s.Test})
	}
	e := json.NewEncoder(b)
	e.SetIndent("", " ")
	return e.Encode(d)
}
