//go:build !router

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"unbloat/guard"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/tune"
	"unbloat/internal/measure/verdict"
	"unbloat/internal/show/cli"
	"unbloat/internal/show/report"
	"unbloat/internal/show/store"
	"unbloat/reason"
)

func newCompareCommand() *cobra.Command {
	var f storeFlag
	var asJSON bool
	c := &cobra.Command{
		Use:     "compare A B",
		GroupID: "main",
		Short:   "Set two results side by side, with the interval of what changed",
		Long: `Sets two results side by side: A is the before, B the after. Each is the ID of a
kept result, or a file of "unbloat test --json", "tune --json" or "lab run
--json". It takes the measurement after a tuning, and the last case of a
scenario.

Two single runs also differ because the line changes between them, which the
interval does not include; "unbloat prove" measures that too.`,
		Example: `  unbloat compare 3fa9c1 88b2
  unbloat compare before.json after.json --json`,
		Args: cli.ExactArgs(2, "two results, each an ID or a FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			var sides [2]compared
			for i, arg := range args {
				r, err := f.load(c, "compare", arg)
				if err != nil {
					return err
				}
				if sides[i], err = newCompared(arg, r); err != nil {
					return err
				}
			}
			return printComparison(c.OutOrStdout(), sides, asJSON)
		},
	}
	f.register(c.Flags())
	c.ValidArgsFunction = f.complete
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// load returns a result by file name or id. A result from a file has no
// conditions.
func (f *storeFlag) load(c *cobra.Command, command, arg string) (r store.Record, err error) {
	_, statErr := os.Stat(arg)
	if arg == "-" || statErr == nil || strings.ContainsAny(arg, `/\.`) {
		text, err := readFile(c.InOrStdin(), arg, maxResultBytes)
		if err != nil {
			return r, cli.UsageError("%s: read result: %w", command, err)
		}
		return store.Record{Result: text}, nil
	}
	err = f.with(c.Context(), false, func(s *store.Store) (err error) {
		if s == nil {
			return fmt.Errorf("find result %q: %w: it is no file, and nothing was kept yet", arg, store.ErrNotFound)
		}
		r, err = s.Get(c.Context(), arg)
		return err
	})
	return r, err
}

// A compared is one of the two results.
type compared struct {
	name   string
	record store.Record
	test   *verdict.Test
}

func newCompared(name string, r store.Record) (compared, error) {
	var h struct {
		Schema string        `json:"schema"`
		Before *verdict.Test `json:"before"`
		After  *verdict.Test `json:"after"`
	}
	if err := json.Unmarshal(r.Result, &h); err != nil {
		return compared{}, cli.UsageError("compare: result %s: not JSON: %w", name, err)
	}
	out := compared{name: name, record: r}
	switch {
	case h.Schema == tune.Schema:
		if out.test = h.After; out.test == nil {
			out.test = h.Before
		}
		if out.test == nil {
			return out, cli.UsageError("compare: result %s: this tuning measured nothing", name)
		}
	case strings.HasPrefix(h.Schema, "unbloat.prove/"):
		return out, cli.UsageError("compare: result %s: a proof is a comparison already; see `unbloat history %s`", name, name)
	default:
		tests, err := report.ParseResults(r.Result)
		if err != nil {
			return out, cli.UsageError("compare: result %s: %w", name, err)
		}
		out.test = tests[len(tests)-1]
	}
	return out, nil
}

// A comparedJSON is one result in the output of `compare --json`.
type comparedJSON struct {
	ID        string        `json:"id"` // "": from a file
	Time      string        `json:"time"`
	Label     string        `json:"label"`
	Server    string        `json:"server"`
	Interface string        `json:"interface"`
	Link      string        `json:"link"`
	Tool      string        `json:"tool"`
	System    string        `json:"system"`
	Plan      *plan.Plan    `json:"plan"`
	Test      *verdict.Test `json:"test"`
}

// A comparisonJSON is what `compare --json` prints.
type comparisonJSON struct {
	Schema        string             `json:"schema"`
	A             comparedJSON       `json:"a"`
	B             comparedJSON       `json:"b"`
	Phase         string             `json:"phase"`          // the worst of A, which the interval is of
	ImprovementMs *verdict.Interval  `json:"improvement_ms"` // of its p95; null: no series to draw from
	Comparison    verdict.Comparison `json:"comparison"`
	Differences   []string           `json:"differences"` // of the conditions
}

func (s compared) json() comparedJSON {
	r, t := s.record, s.test
	out := comparedJSON{ID: r.ID, Time: t.Time, Label: t.Label, Server: t.Server, Interface: r.Interface, Link: r.Link, Tool: r.Tool, System: r.System, Test: t}
	if len(r.Plan) > 0 {
		out.Plan = new(plan.Plan)
		if json.Unmarshal(r.Plan, out.Plan) != nil {
			out.Plan = nil
		}
	}
	return out
}

func printComparison(w io.Writer, s [2]compared, asJSON bool) error {
	phase, interval := changeOf(s[0].test, s[1].test)
	differ := differences(s[0], s[1])
	var invalid []string
	for i, x := range s {
		if !x.test.Valid {
			invalid = append(invalid, fmt.Sprintf("%s is not valid: %s", []string{"the first", "the second"}[i], strings.Join(x.test.InvalidReasons, "; ")))
			interval = nil
		}
	}
	var cannot error
	if len(invalid) > 0 {
		cannot = cli.Exit(cli.Invalid, fmt.Errorf("compare: nothing can be said of a change: %s; measure again", strings.Join(invalid, "; ")))
	}
	if asJSON {
		err := cli.PrintJSON(w, comparisonJSON{"unbloat.compare/1", s[0].json(), s[1].json(), phase, interval, verdict.Compare(s[0].test, s[1].test), differ})
		return errors.Join(err, cannot)
	}
	for i, x := range s {
		fmt.Fprintf(w, "%-7s %s\n", []string{"before:", "after:"}[i], strings.Join(x.words(), ", "))
	}
	fmt.Fprintln(w)
	if err := report.TableOf(w, reason.English(), s[0].test, s[1].test, cli.TerminalWidth(w)); err != nil {
		return err
	}
	fmt.Fprintln(w)
	switch {
	case cannot != nil:
		fmt.Fprintln(w, "No comparison: a measurement that is not valid says nothing of a change.")
	case interval == nil:
		fmt.Fprintln(w, "No interval: one of the results has too few single probes, or none.")
	case interval.Lo > 0:
		fmt.Fprintf(w, "%s: p95 fell by %.1f to %.1f ms (95 %% interval within the two runs).\n", phase, interval.Lo, interval.Hi)
	case interval.Hi < 0:
		fmt.Fprintf(w, "%s: p95 rose by %.1f to %.1f ms (95 %% interval within the two runs).\n", phase, -interval.Hi, -interval.Lo)
	default:
		fmt.Fprintf(w, "%s: no difference of the p95 is shown (95 %% interval %s to %s ms).\n", phase, signed(-interval.Hi), signed(-interval.Lo))
	}
	for _, d := range differ {
		fmt.Fprintln(w, "  · not the same conditions:", d)
	}
	return cannot
}

// changeOf returns the interval of the change of the p95 in A's worst loaded
// phase.
func changeOf(a, b *verdict.Test) (phase string, _ *verdict.Interval) {
	var before, after *verdict.Phase
	for _, p := range a.Phases() {
		if p.Name != verdict.PhaseIdle && (before == nil || p.Latency.IncreaseMs.P95 > before.Latency.IncreaseMs.P95) {
			phase, before = p.Name, p.Phase
		}
	}
	for _, p := range b.Phases() {
		if p.Name == phase {
			after = p.Phase
		}
	}
	return phase, verdict.ImprovementP95(before, after)
}

// words describes the conditions of a result.
func (s compared) words() []string {
	r := s.record
	if r.ID == "" {
		r.Time, r.Label, r.Server = r.Time.UTC(), s.test.Label, s.test.Server
		return slices.Concat([]string{guard.VisibleLine(s.name, mostWords)}, conditionWords(r))
	}
	return slices.Concat([]string{r.ID[:8]}, conditionWords(r))
}

// conditionWords describes the known conditions of a result.
func conditionWords(r store.Record) []string {
	e := store.Entry{Label: r.Label, Server: r.Server, Interface: r.Interface, Link: r.Link}
	var out []string
	if !r.Time.IsZero() {
		out = append(out, localMinute(r.Time))
	}
	if s := entryWords(e); s != "" {
		out = append(out, s)
	}
	var p plan.Plan
	if len(r.Plan) > 0 && json.Unmarshal(r.Plan, &p) == nil {
		out = append(out, fmt.Sprintf("shaped by %s to %s and %s", guard.VisibleLine(string(p.AQM), mostWords), p.DownBps.Short(), p.UpBps.Short()))
	}
	if s := guard.VisibleLine(r.System, mostWords); s != "" {
		out = append(out, s)
	}
	if s := guard.VisibleLine(r.Tool, mostWords); s != "" {
		out = append(out, "unbloat "+s)
	}
	return out
}

// differences returns the conditions in which the two results differ, as far as
// both are known. The plan is not among them, since it is what a comparison is
// about.
func differences(a, b compared) []string {
	out := []string{}
	for _, c := range []struct{ name, a, b string }{
		{"the server", a.test.Server, b.test.Server}, {"the interface", a.record.Interface, b.record.Interface},
		{"the link", a.record.Link, b.record.Link}, {"the system", a.record.System, b.record.System},
		{"unbloat", a.record.Tool, b.record.Tool},
	} {
		if c.a != "" && c.b != "" && c.a != c.b {
			out = append(out, fmt.Sprintf("%s was %s, and then %s", c.name, guard.VisibleLine(c.a, mostWords), guard.VisibleLine(c.b, mostWords)))
		}
	}
	return out
}
