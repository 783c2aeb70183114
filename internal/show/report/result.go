// This file reads the results that commands print with --json, of any
// kind. Files may come from anybody, so results that contradict themselves are
// refused.

package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"unbloat/internal/measure/path"
	"unbloat/internal/measure/verdict"
)

// ReportSchema names the JSON layout of a report.
const resultSchema = "unbloat.report/1"

// labSchema names the JSON that `unbloat lab run` prints.
const labSchema = "unbloat.lab/1"

// ParseResults reads the tests of a result as Read does. A result without tests is an
// error.
func ParseResults(data []byte) ([]*verdict.Test, error) {
	tests, _, err := ReadResults(data)
	if err == nil && len(tests) == 0 {
		err = errors.New("holds no test")
	}
	return tests, err
}

// ReadResults reads the tests of a result: of `unbloat test --json`, every case of
// `unbloat lab run --json`, or those of an earlier report in JSON; and the
// trace of `unbloat path --json`. A case's name labels its test. Errors
// describe the fault in the data, without the name of its source.
func ReadResults(data []byte) (tests []*verdict.Test, paths []*path.Result, _ error) {
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
	case *head.Schema == resultSchema:
		if err := unmarshal(head.Tests, &tests); err != nil {
			return nil, nil, fmt.Errorf("tests: %w", err)
		}
		if len(head.Paths) > 0 {
			if err := unmarshal(head.Paths, &paths); err != nil {
				return nil, nil, fmt.Errorf("paths: %w", err)
			}
		}
	default:
		return nil, nil, fmt.Errorf("schema \"%s\": unbloat reads %s, %s, %s and %s", shortName(*head.Schema), verdict.TestSchema, labSchema, path.Schema, resultSchema)
	}
	if len(tests)+len(paths) == 0 {
		return nil, nil, errors.New("holds no test")
	}
	return tests, paths, checkAll(tests, paths)
}

// checkAll refuses results that contradict themselves.
func checkAll(tests []*verdict.Test, paths []*path.Result) error {
	for i, t := range tests {
		if err := check(t); err != nil {
			return fmt.Errorf("test %d: %w", i+1, err)
		}
	}
	for i, r := range paths {
		if err := checkPath(r); err != nil {
			return fmt.Errorf("path %d: %w", i+1, err)
		}
	}
	return nil
}

// unmarshal reads one JSON value. Its errors are for people.
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
		return fmt.Errorf("%s: is a %s, not the %s of the schema", shortName(kind.Field), kind.Value, kind.Type)
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

// checkPath refuses a trace whose parts contradict each other.
func checkPath(r *path.Result) error {
	if r == nil {
		return errors.New("is null")
	}
	if len(r.Hops) > path.MaxMaxHops {
		return fmt.Errorf("%d hops, at most %d", len(r.Hops), path.MaxMaxHops)
	}
	for _, h := range r.Hops {
		for _, f := range []*path.Figures{h.Idle, h.Loaded} {
			if f != nil && (f.Sent < 0 || f.Received < 0 || f.Received > f.Sent || !ordered(f.RTTMs)) {
				return fmt.Errorf("hop %d: %d of %d probes answered within %g to %g ms", h.Hop, f.Received, f.Sent, f.RTTMs.Min, f.RTTMs.Max)
			}
		}
	}
	return nil
}

func ordered(q verdict.Quantiles) bool { return q.Min <= q.P50 && q.P50 <= q.P95 && q.P95 <= q.Max }

// shortName shortens a word of the input for an error message, and makes it
// printable.
func shortName(s string) string {
	const most = 60
	if r := []rune(strings.ToValidUTF8(s, "\uFFFD")); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return strings.Trim(fmt.Sprintf("%q", s), `"`)
}
