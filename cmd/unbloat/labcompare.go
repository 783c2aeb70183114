package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"unbloat/internal/lab"
	"unbloat/internal/scenario"
	"unbloat/scenarios"
)

type labCompareFlags struct {
	engine string
	cases  []string
	json   bool
	quiet  bool
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
the last of the cases, and those that these are compared with (NAME-…).`,
		Example: `  unbloat lab compare
  unbloat lab compare flood bulk-200
  unbloat lab compare --case before,seed,tuned`,
		RunE: func(c *cobra.Command, args []string) error { return runLabCompare(c, args, f) },
	}
	c.Flags().StringVar(&f.engine, "engine", "", "virtual, realtime or sim (default: the best that is installed)")
	c.Flags().StringSliceVar(&f.cases, "case", lab.CompareCases(), "the table's columns")
	c.Flags().BoolVar(&f.json, "json", false, "print the results as JSON, one a line (unbloat.lab/1)")
	c.Flags().BoolVar(&f.quiet, "quiet", false, "no progress")
	return c
}

func runLabCompare(c *cobra.Command, names []string, f labCompareFlags) error {
	engine, err := lab.ParseEngine(f.engine)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	if len(f.cases) == 0 {
		return usageError("--case names no case; write for example --case fq_codel,cake,ours")
	}
	compared, err := toCompare(names, f.cases)
	if err != nil {
		return err
	}
	var rows []lab.Row
	for _, s := range compared {
		o := lab.Options{Engine: engine, Cases: lab.Chosen(s, f.cases)}
		if !f.quiet {
			o.Started = func(line string) { fmt.Fprintln(c.ErrOrStderr(), line) }
		}
		r, err := runScenario(c.Context(), s, o)
		if err != nil {
			return labError(err)
		}
		if f.json {
			if err := json.NewEncoder(c.OutOrStdout()).Encode(r); err != nil {
				return err
			}
		}
		rows = append(rows, lab.Row{Scenario: s, Result: r})
	}
	if f.json {
		return nil
	}
	return lab.WriteTable(c.OutOrStdout(), rows, f.cases)
}

// toCompare returns the named scenarios; without names, the embedded ones that
// have the last of the cases, and after each those whose names begin with its
// name and a dash: what it is compared with.
func toCompare(names, cases []string) ([]*scenario.Scenario, error) {
	all := len(names) == 0
	if all {
		names = slices.Sorted(slices.Values(scenarios.Names())) // NAME comes before NAME-…
	}
	var out []*scenario.Scenario
	for _, name := range names {
		s, err := loadScenario(name)
		if err != nil {
			return nil, err
		}
		has := lab.Chosen(s, cases)
		switch {
		case len(has) == 0 && !all:
			return nil, usageError("scenario %s has none of the cases %s", name, strings.Join(cases, ", "))
		case len(has) == 0:
		case !all || has[len(has)-1] == cases[len(cases)-1] || slices.ContainsFunc(out, func(o *scenario.Scenario) bool {
			return strings.HasPrefix(name, o.Name+"-")
		}):
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return nil, usageError("no scenario has the case %s", cases[len(cases)-1])
	}
	return out, nil
}
