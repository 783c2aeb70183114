package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"unbloat/internal/plan"
	"unbloat/internal/report"
	"unbloat/internal/verdict"
)

// maxResultBytes is the largest result file that is read.
const maxResultBytes = 256 << 20

// newReportCommand returns `unbloat report`.
func newReportCommand() *cobra.Command {
	var opt reportOptions
	c := &cobra.Command{
		Use:     "report RESULT…",
		GroupID: "main",
		Short:   "Make a page, a picture or a table of one or more results",
		Long: `Reads results of "unbloat test --json" and "unbloat lab run --json" and shows
them. Of several, the first is the before and the last the after; RESULT may be
- for standard input. The file's extension chooses what is made: .html, .svg,
.png, .csv, .json or .flent.gz (one result). Without -o, a table is printed.`,
		Example: `  unbloat report before.json after.json -o report.html
  unbloat report result.json -o result.flent.gz`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError("%s: takes one or more results, as files of `unbloat test --json` (see `%s --help`)", c.CommandPath(), c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return opt.run(c.InOrStdin(), c.OutOrStdout(), args) },
	}
	f := c.Flags()
	f.StringVarP(&opt.output, "output", "o", "", "write to `FILE`: .html, .svg, .png, .csv, .json or .flent.gz")
	f.StringVar(&opt.title, "title", "", "heading of the report")
	f.StringVar(&opt.plan, "plan", "", "`PLAN` that was applied, from \"unbloat plan --json\", to show with its reasons")
	f.BoolVar(&opt.json, "json", false, "print the report as JSON")
	durationFlag(f, &opt.goal, "goal", 0, "p95 increase over idle that was aimed at, like 5ms")
	return c
}

type reportOptions struct {
	output, title, plan string
	goal                time.Duration
	json                bool
}

func (o *reportOptions) run(in io.Reader, out io.Writer, files []string) error {
	if o.output != "" {
		if _, err := report.FormatOf(o.output); err != nil {
			return usageError("report: -o %w", err)
		}
	}
	page, err := o.page(in, files)
	if err != nil {
		return err
	}
	if o.output != "" {
		err := report.WriteFile(o.output, page)
		if errors.Is(err, report.ErrUnsuitable) {
			return &exitError{exitUsage, err}
		}
		if err != nil || !o.json {
			return err
		}
	}
	if o.json {
		return report.Write(report.FormatJSON, out, page)
	}
	return report.Table(out, page.Before, page.After)
}

// page reads the results: the first is the before, the last the after.
func (o *reportOptions) page(in io.Reader, files []string) (report.Page, error) {
	page := report.Page{Title: o.title, Goal: o.goal}
	var tests []*verdict.Test
	for _, name := range files {
		data, err := readResult(in, name)
		if err != nil {
			return page, usageError("report: read result: %w", err)
		}
		got, err := report.Parse(data)
		if err != nil {
			return page, usageError("report: result %s: %w", name, err)
		}
		tests = append(tests, got...)
	}
	if n := len(tests); n > 1 {
		page.Before, page.Others = tests[0], tests[1:n-1]
	}
	page.After = tests[len(tests)-1]
	if o.plan != "" {
		data, err := readResult(in, o.plan)
		if err != nil {
			return page, usageError("report: read plan: %w", err)
		}
		page.Plan = new(plan.Plan)
		if err := json.Unmarshal(data, page.Plan); err != nil {
			return page, usageError("report: plan %s: %w", o.plan, err)
		}
		if page.Plan.Schema != plan.Schema {
			return page, usageError("report: plan %s: schema %q, not %s", o.plan, page.Plan.Schema, plan.Schema)
		}
	}
	return page, nil
}

// readResult reads a file, or standard input for "-".
func readResult(in io.Reader, name string) ([]byte, error) {
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, maxResultBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxResultBytes {
		return nil, fmt.Errorf("%s: larger than %d MB", name, maxResultBytes>>20)
	}
	return data, nil
}
