package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"unbloat/internal/show/cli"
	"unbloat/internal/show/report"
	"unbloat/lab"
	"unbloat/lab/scenario"
	"unbloat/scenarios"
)

type labCompareFlags struct {
	engine   string
	cases    []string
	output   string
	markdown string
	resume   string
	subject  string
	seeds    int
	json     bool
	quiet    bool
}

// seedCases are the cases of the articles' lines: unshaped, with the author's
// own fix, and tuned.
func seedCases() []string { return []string{"before", "seed", "tuned"} }

// A comparedTable is one table of a run: its title, columns and scenarios.
type comparedTable struct {
	title string
	cases []string
	rows  []lab.Row
	left  []string // what could not be run here, a sentence each
}

func newLabCompareCommand() *cobra.Command {
	var f labCompareFlags
	c := &cobra.Command{
		Use:   "compare [SCENARIO|FILE…]",
		Short: "Run scenarios, and print their cases side by side as one table",
		Long: `Runs the cases before, fq_codel, cake and ours of each scenario, and prints one
Markdown table: a row a scenario, a column a case. The figures of a cell are the
p95 increase and the loss of the probe, the worst call's MOS, and what every
other load got through. Without an argument it takes every scenario that has
the last of the cases, and those that these are compared with (NAME-…); without
--case too, a second table has lines that articles describe: before, with the
article's own fix (case seed), tuned. With -o the same goes into a page, with a
picture of each table.

With --seeds N each case runs N times, with other random numbers, and a figure is
"median (least to most)". --markdown writes that as files, one for each subject
(docs/evidence). That takes long: --resume keeps each result in a file, and takes
what is there instead of running it again.`,
		Example: `  unbloat lab compare -o compare.html
  unbloat lab compare flood bulk-200
  unbloat lab compare --case before,seed,tuned
  unbloat lab compare --seeds 5 --markdown evidence --resume results.jsonl`,
		RunE: func(c *cobra.Command, args []string) error { return runLabCompare(c, args, f) },
	}
	c.ValidArgsFunction = completeScenarios
	c.Flags().StringVar(&f.engine, "engine", "", "virtual, realtime or sim (default: the best that is installed)")
	c.Flags().StringSliceVar(&f.cases, "case", lab.CompareCases(), "the table's columns")
	c.Flags().IntVar(&f.seeds, "seeds", 1, "run each case with the seeds 1 to `N`")
	c.Flags().StringVarP(&f.output, "output", "o", "", "also write the tables as a page to this .html `FILE`")
	c.Flags().StringVar(&f.markdown, "markdown", "", "also write the tables of each subject as .md files into `DIR`")
	c.Flags().StringVar(&f.subject, "subject", "", "run the scenarios and cases of this `FILE` of docs/evidence alone, such as following")
	c.Flags().StringVar(&f.resume, "resume", "", "keep the results in `FILE`, and run only what is not in it")
	c.Flags().BoolVar(&f.json, "json", false, "print the results as JSON, one a line (unbloat.lab/1)")
	c.Flags().BoolVar(&f.quiet, "quiet", false, "no progress")
	return c
}

func runLabCompare(c *cobra.Command, names []string, f labCompareFlags) error {
	engine, err := lab.ParseEngine(f.engine)
	if err != nil {
		return cli.Exit(cli.Usage, err)
	}
	whole := len(names) == 0 && !c.Flags().Changed("case")
	i := slices.IndexFunc(subjects(), func(s subject) bool { return s.file == f.subject })
	switch {
	case f.subject != "" && !whole:
		return cli.UsageError("--subject says which scenarios and cases to run; name no scenario and no --case with it")
	case f.subject != "" && i < 0:
		return cli.UsageError("--subject %s is not one of docs/evidence: %s", f.subject, strings.Join(subjectNames(), ", "))
	case len(f.cases) == 0:
		return cli.UsageError("--case names no case; write for example --case fq_codel,cake,ours")
	case f.seeds < 1:
		return cli.UsageError("--seeds %d: it takes one seed at least", f.seeds)
	case f.markdown != "" && !whole:
		return cli.UsageError("--markdown writes the tables of every subject; name no scenario and no --case with it")
	}
	if f.output != "" {
		if format, err := report.FormatOf(f.output); err != nil || format != report.FormatHTML {
			return cli.UsageError("-o %s: a comparison is written as a page; end its name in .html", f.output)
		}
	}
	tables := []comparedTable{{title: "Cases side by side", cases: f.cases}}
	if whole {
		tables = []comparedTable{{title: "Households", cases: f.cases}, {title: "Lines that people wrote about", cases: seedCases()}}
	}
	if f.subject != "" {
		sub := subjects()[i]
		names = sub.scenarios
		tables = []comparedTable{{title: sub.title, cases: sub.cases}}
		if sub.cases == nil {
			tables = []comparedTable{{title: sub.title, cases: append(lab.CompareCases(), "seed", "tuned")}}
		}
	}
	runs := labRuns{engine: engine}
	if !f.quiet {
		runs.progress = c.ErrOrStderr()
	}
	if err := runs.resume(f.resume); err != nil {
		return err
	}
	for i := range tables {
		there, left := available(names, f.subject != "")
		tables[i].left = left
		compared, err := toCompare(there, tables[i].cases)
		if err != nil {
			return err
		}
		for _, s := range compared {
			tables[i].rows = append(tables[i].rows, lab.Row{Scenario: s})
		}
	}
	// The outer loop is over seeds, so that a run that is stopped has some
	// results for every figure.
	for seed := range uint64(f.seeds) {
		for _, t := range tables {
			for k := range t.rows {
				row := &t.rows[k]
				r, err := runs.result(c.Context(), row.Scenario, runs.runnable(row.Scenario, t.cases), seed+1)
				if err != nil {
					return labError(err)
				}
				row.Results = append(row.Results, r)
				if !f.json {
					continue
				}
				if err := json.NewEncoder(c.OutOrStdout()).Encode(r); err != nil {
					return err
				}
			}
		}
	}
	if f.output != "" {
		if err := report.WriteComparisonFile(f.output, comparison(tables)); err != nil {
			return err
		}
	}
	if f.markdown != "" {
		if err := writeEvidence(f.markdown, tables, f.subject); err != nil {
			return err
		}
	}
	if f.json {
		return nil
	}
	for i, t := range tables {
		if i > 0 {
			fmt.Fprintln(c.OutOrStdout())
		}
		if err := lab.WriteTable(c.OutOrStdout(), t.rows, t.cases); err != nil {
			return err
		}
	}
	return nil
}

// comparison returns the page of the tables.
func comparison(tables []comparedTable) report.Comparison {
	page := report.Comparison{Title: "Latency under load: ours beside what others do"}
	for _, t := range tables {
		out := report.ComparisonTable{Title: t.title}
		for _, r := range t.rows {
			row := report.ComparisonRow{Name: r.Scenario.Name, Setting: r.Setting()}
			first := r.Results[0] // the one in the charts
			for _, name := range lab.Chosen(r.Scenario, t.cases) {
				for _, c := range first.Cases {
					if c.Name == name {
						row.Cases = append(row.Cases, report.ComparisonCase{Name: name, Test: c.Test, Words: r.Cell(name), Ours: name == t.cases[len(t.cases)-1]})
					}
				}
			}
			out.Rows = append(out.Rows, row)
			if len(page.Notes) == 0 {
				page.Notes = []string{"Measured by `unbloat lab compare`, " + under(first) + "."}
				if n := len(r.Results); n > 1 {
					page.Notes = append(page.Notes, fmt.Sprintf("The pictures show one run of each case. A figure in the tables is the median of %d runs with other random numbers, with the least and the most in brackets.", n))
				}
			}
		}
		page.Tables = append(page.Tables, out)
	}
	return page
}

// under describes what a result was measured on.
func under(r *lab.Result) string {
	if r.Engine == lab.Sim {
		return "in the simulator"
	}
	return fmt.Sprintf("on Linux %s in %s time", r.Kernel, r.Engine)
}

// available returns the scenarios whose traces are there, and says why the others are
// left out. Where somebody named them, nothing is left out: toCompare says what is
// missing.
func available(names []string, leave bool) (there, left []string) {
	for _, name := range names {
		var missing *scenarios.MissingTraceError
		if _, err := loadScenario(name); leave && errors.As(err, &missing) {
			left = append(left, err.Error())
			continue
		}
		there = append(there, name)
	}
	return there, left
}

func subjectNames() (names []string) {
	for _, s := range subjects() {
		names = append(names, s.file)
	}
	return names
}

// toCompare returns the named scenarios. Without names it returns the embedded
// ones that have the last of the cases, each followed by those it is compared
// with: their names begin with its name and a dash.
func toCompare(names, cases []string) ([]*scenario.Scenario, error) {
	all := len(names) == 0
	if all {
		names = slices.Sorted(slices.Values(scenarios.Names())) // NAME sorts before NAME-…
	}
	var out []*scenario.Scenario
	for _, name := range names {
		read := loadScenario
		if all {
			read = embedded // not every trace is there
		}
		s, err := read(name)
		if err != nil {
			return nil, err
		}
		has := lab.Chosen(s, cases)
		switch {
		case len(has) == 0 && !all:
			return nil, cli.UsageError("scenario %s has none of the cases %s", name, strings.Join(cases, ", "))
		case len(has) == 0, all && s.Line.Trace != "":
		case !all || has[len(has)-1] == cases[len(cases)-1] || slices.ContainsFunc(out, func(o *scenario.Scenario) bool {
			return strings.HasPrefix(name, o.Name+"-")
		}):
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return nil, cli.UsageError("no scenario has the case %s", cases[len(cases)-1])
	}
	return out, nil
}
