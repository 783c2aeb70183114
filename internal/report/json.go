package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"unbloat/internal/path"
	"unbloat/internal/plan"
	"unbloat/internal/verdict"
)

// Schema names the JSON layout of a report.
const Schema = "unbloat.report/1"

// labSchema names the JSON that `unbloat lab run` prints.
const labSchema = "unbloat.lab/1"

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

// Parse reads the tests of a result as Read does; one that holds none is an error.
func Parse(data []byte) ([]*verdict.Test, error) {
	tests, _, err := Read(data)
	if err == nil && len(tests) == 0 {
		err = errors.New("holds no test")
	}
	return tests, err
}

// Read reads the tests of a result: one of `unbloat test --json`, every case
// of `unbloat lab run --json`, or those of an earlier report in JSON; and the
// trace of `unbloat path --json`. A case's name labels its test. Errors say what
// is wrong with the data, not where it came from.
func Read(data []byte) (tests []*verdict.Test, paths []*path.Result, _ error) {
	var head struct {
		Schema *string         `json:"schema"`
		Tests  json.RawMessage `json:"tests"`
		Cases  json.RawMessage `json:"cases"`
		Paths  json.RawMessage `json:"paths"`
	}
	if err := unmarshal(data, &head); err != nil {
		return nil, nil, err
	}
	switch {
	case head.Schema == nil:
		return nil, nil, fmt.Errorf(`no "schema": not a result of unbloat; make one with: unbloat test --json`)
	case *head.Schema == verdict.TestSchema:
		t := new(verdict.Test)
		if err := unmarshal(data, t); err != nil {
			return nil, nil, err
		}
		tests = append(tests, t)
	case *head.Schema == path.Schema:
		r := new(path.Result)
		if err := unmarshal(data, r); err != nil {
			return nil, nil, err
		}
		paths = append(paths, r)
	case *head.Schema == labSchema:
		var cases []struct {
			Name string        `json:"name"`
			Test *verdict.Test `json:"test"`
		}
		if err := unmarshal(head.Cases, &cases); err != nil {
			return nil, nil, fmt.Errorf("cases: %w", err)
		}
		for _, c := range cases {
			if c.Test != nil {
				if c.Test.Label == "" {
					c.Test.Label = c.Name
				}
				tests = append(tests, c.Test)
			}
		}
	case *head.Schema == Schema:
		if err := unmarshal(head.Tests, &tests); err != nil {
			return nil, nil, fmt.Errorf("tests: %w", err)
		}
		if len(head.Paths) > 0 {
			if err := unmarshal(head.Paths, &paths); err != nil {
				return nil, nil, fmt.Errorf("paths: %w", err)
			}
		}
	default:
		return nil, nil, fmt.Errorf("schema %q: report reads %s, %s, %s and %s", clean(*head.Schema), verdict.TestSchema, labSchema, path.Schema, Schema)
	}
	if len(tests)+len(paths) == 0 {
		return nil, nil, errors.New("holds no test")
	}
	for i, t := range tests {
		if err := check(t); err != nil {
			return nil, nil, fmt.Errorf("test %d: %w", i+1, err)
		}
	}
	for i, r := range paths {
		if r == nil {
			return nil, nil, fmt.Errorf("path %d: is null", i+1)
		}
		if err := checkPath(r); err != nil {
			return nil, nil, fmt.Errorf("path %d: %w", i+1, err)
		}
	}
	return tests, paths, nil
}

// unmarshal reads one JSON value and says in words what is wrong with it.
func unmarshal(data []byte, v any) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return errors.New("is empty")
	}
	err := json.Unmarshal(data, v)
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		line := 1 + bytes.Count(data[:min(int(syntax.Offset), len(data))], []byte("\n"))
		return fmt.Errorf("not JSON: line %d: %w", line, err)
	case errors.As(err, &kind):
		return fmt.Errorf("%s: is a %s, not the %s of the schema", clean(kind.Field), kind.Value, kind.Type)
	}
	return err
}

// check refuses a test whose parts contradict each other.
func check(t *verdict.Test) error {
	if t == nil {
		return errors.New("is null")
	}
	if len(t.Phases()) == 0 {
		return errors.New("has no phase: neither idle, download, upload, both nor loaded")
	}
	for _, p := range t.Phases() {
		s := p.Series
		switch l := p.Latency; {
		case l.Sent < 0 || l.Received < 0 || l.Received > l.Sent:
			return fmt.Errorf("%s: %d of %d probes answered", p.Name, l.Received, l.Sent)
		case !(p.GoodputDownBps >= 0 && p.GoodputUpBps >= 0):
			return fmt.Errorf("%s: a goodput is negative", p.Name)
		case s == nil:
		case len(s.TS) != len(s.RTTMs):
			return fmt.Errorf("%s: series: %d times but %d round trips", p.Name, len(s.TS), len(s.RTTMs))
		case !(s.EndS >= s.StartS) || math.Abs(s.StartS) > 1e9:
			return fmt.Errorf("%s: series: from %g s to %g s", p.Name, s.StartS, s.EndS)
		}
	}
	return nil
}
