//go:build !router

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/tune"
	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/incident"
	"unbloat/internal/measure/path"
	"unbloat/internal/measure/verdict"
	"unbloat/internal/show/cli"
	"unbloat/internal/show/report"
	"unbloat/reason"
	"unbloat/unit"
)

// newReportCommand returns `unbloat report`.
func newReportCommand() *cobra.Command {
	var opt reportOptions
	c := &cobra.Command{
		Use:     "report RESULT…",
		GroupID: "main",
		Short:   "Make a page, a picture or a table of one or more results",
		Long: `Reads results of "test", "tune", "path", "lab run" and "history --line", each with
--json, and shows them. RESULT is a file, - for standard input, or the ID of a kept result
(see "unbloat history"). Of several tests, the first is the before and the last
the after; traces of "path" are shown beside them, hop by hop. The file's
extension chooses what is made: .html, .svg, .png, .csv, .json or .flent.gz (one
test). Without -o, a table is printed.

With --incidents it makes a dossier of what went wrong on a line (see "unbloat
incidents"): what was promised, what was measured, each incident with its picture, how
it was measured and what that can't show, and a checksum of the raw data, which
-o FILE.csv writes.`,
		Example: `  unbloat report before.json after.json -o report.html
  unbloat report result.json -o result.flent.gz
  unbloat report 3fa9c1 88b2 path.json -o report.html
  unbloat history --line --json | unbloat report - -o line.svg
  unbloat report --incidents --from 30d -o dossier.html`,
		Args: func(c *cobra.Command, args []string) error {
			switch {
			case opt.incidents && len(args) > 0:
				return cli.UsageError("report: --incidents takes no result; it asks the daemon, or reads its file")
			case len(args) == 0 && !opt.incidents:
				return cli.UsageError("%s: takes one or more results, as files of `unbloat test --json` (see `%s --help`)", cli.NameOf(c), c.CommandPath())
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if opt.incidents {
				return opt.dossier(c, time.Now())
			}
			return opt.run(c, args)
		},
	}
	f := c.Flags()
	opt.storeFlag.register(f)
	c.ValidArgsFunction = opt.complete
	f.StringVarP(&opt.output, "output", "o", "", "write to `FILE`: .html, .svg, .png, .csv, .json or .flent.gz")
	f.StringVar(&opt.title, "title", "", "heading of the report")
	f.StringVar(&opt.chart, "chart", "", "draw this picture alone: range, latency, distribution, throughput, framing, hops or line")
	f.StringVar(&opt.plan, "plan", "", "`PLAN` that was applied, from \"unbloat plan --json\", to show with its reasons")
	f.BoolVar(&opt.json, "json", false, "print the report as JSON")
	f.BoolVar(&opt.incidents, "incidents", false, "make a dossier of what went wrong on a line; -o is .html, .csv or .json")
	opt.incidentsOf.register(f)
	cli.DurationFlag(f, &opt.goal, "goal", 0, "p95 increase over idle that was aimed at, like 5ms")
	return c
}

type reportOptions struct {
	storeFlag
	output, title, plan string
	chart               string
	goal                time.Duration
	json                bool
	incidents           bool
	incidentsOf         incidentFlags
}

func (o *reportOptions) run(c *cobra.Command, names []string) error {
	out := c.OutOrStdout()
	if o.output != "" {
		if err := checkReport("report: -o", o.output); err != nil {
			return err
		}
	}
	if o.chart != "" && !slices.Contains([]string{"range", "latency", "distribution", "throughput", "framing", "hops", "line"}, o.chart) {
		return cli.UsageError("report: --chart %s is no picture: range, latency, distribution, throughput, framing, hops or line", o.chart)
	}
	page, err := o.page(c, names)
	if err != nil {
		return err
	}
	page.Chart = o.chart
	if o.output != "" {
		err := report.WriteFile(o.output, page)
		if errors.Is(err, report.ErrUnsuitable) {
			return cli.Exit(cli.Usage, err)
		}
		if err != nil || !o.json {
			return err
		}
	}
	if o.json {
		return report.Write(report.FormatJSON, out, page)
	}
	if page.After != nil {
		if err := report.TableOf(out, reason.English(), page.Before, page.After, cli.TerminalWidth(out)); err != nil {
			return err
		}
	}
	for _, l := range page.Lines {
		if err := printLine(out, l); err != nil {
			return err
		}
	}
	for i, r := range page.Paths {
		if i > 0 || page.After != nil || len(page.Lines) > 0 {
			fmt.Fprintln(out)
		}
		if err := path.Write(out, r, cli.TerminalWidth(out)); err != nil {
			return err
		}
	}
	return nil
}

// page reads the results: the first test is the before, the last the after.
func (o *reportOptions) page(c *cobra.Command, names []string) (report.Page, error) {
	page := report.Page{Title: o.title, Goal: o.goal}
	var tests []*verdict.Test
	for _, name := range names {
		kept, err := o.load(c, "report", name)
		if err != nil {
			return page, err
		}
		if t, err := readTuning(kept.Result); err != nil {
			return page, cli.UsageError("report: result %s: %w", name, err)
		} else if t != nil {
			if p := report.TuningPage(t); len(names) == 1 {
				p.Title = o.title
				page = p
			}
			tests = append(tests, t.Before)
			if t.After != nil {
				tests = append(tests, t.After)
			}
			continue
		}
		if l, err := readLine(kept.Result); err != nil {
			return page, cli.UsageError("report: result %s: %w", name, err)
		} else if l != nil {
			page.Lines = append(page.Lines, l)
			continue
		}
		got, paths, err := report.ReadResults(kept.Result)
		if err != nil {
			return page, cli.UsageError("report: result %s: %w", name, err)
		}
		tests, page.Paths = append(tests, got...), append(page.Paths, paths...)
	}
	if n := len(tests); n > 0 {
		page.Before, page.After = nil, tests[n-1]
		if n > 1 {
			page.Before, page.Others = tests[0], tests[1:n-1]
		}
	}
	if o.plan != "" {
		data, err := readFile(c.InOrStdin(), o.plan, maxResultBytes)
		if err != nil {
			return page, cli.UsageError("report: read plan: %w", err)
		}
		page.Plan = new(plan.Plan)
		if err := json.Unmarshal(data, page.Plan); err != nil {
			return page, cli.UsageError("report: plan %s: %w", o.plan, err)
		}
		if page.Plan.Schema != plan.Schema {
			return page, cli.UsageError("report: plan %s: schema %q, not %s", o.plan, page.Plan.Schema, plan.Schema)
		}
	}
	return page, nil
}

// readTuning reads the result of a tuning; nil if it is another result.
func readTuning(data []byte) (*tune.Result, error) {
	var head struct {
		Schema string `json:"schema"`
	}
	if json.Unmarshal(data, &head) != nil || head.Schema != tune.Schema {
		return nil, nil // the next reader reports the error
	}
	t := new(tune.Result)
	if err := json.Unmarshal(data, t); err != nil {
		return nil, err
	}
	if t.Before == nil {
		return nil, errors.New("this tuning measured nothing")
	}
	return t, nil
}

// readLine reads what a line did; nil if it is another result.
func readLine(data []byte) (*report.Line, error) {
	var head struct {
		Schema string `json:"schema"`
	}
	if json.Unmarshal(data, &head) != nil || head.Schema != report.LineSchema {
		return nil, nil // the next reader reports the error
	}
	l := new(report.Line)
	if err := json.Unmarshal(data, l); err != nil {
		return nil, err
	}
	return l, l.Check()
}

// checkReport refuses a file that can't be a report; flag names where it was given.
func checkReport(flag, file string) error {
	if _, err := report.FormatOf(file); err != nil {
		return cli.UsageError("%s %w", flag, err)
	}
	return nil
}

// writeTuneReport writes the report of a tuning to a file.
func writeTuneReport(file string, r *tune.Result) error {
	return report.WriteFile(file, report.TuningPage(r))
}

// incidentsOfFile reads incidents from a file: the one that is named, or else that of the
// daemon's configuration.
func incidentsOfFile(ctx context.Context, file, id string, from, to time.Time) ([]incident.Incident, error) {
	if file == "" {
		c, err := daemon.Load(ctx, daemonConfig, nil)
		if err != nil || c.History == "" {
			return nil, noDaemon()
		}
		file = c.History
	}
	all, err := lineArchive{}.Incidents(ctx, file, id, from, to)
	return all, storeError(err)
}

// dossier writes the report of incidents.
func (o *reportOptions) dossier(c *cobra.Command, now time.Time) error {
	f := &o.incidentsOf
	words, err := language("report", f.lang)
	if err != nil {
		return err
	}
	if o.output == "" {
		return cli.UsageError("report: --incidents needs -o FILE: a .html, .csv or .json")
	}
	if err := checkReport("report: -o", o.output); err != nil {
		return err
	}
	from, to, err := f.span("report", now)
	if err != nil {
		return err
	}
	f.file = o.file
	all, err := f.read(c.Context(), "", from, to)
	if err != nil {
		return changeError(err)
	}
	wan, router, err := o.onlyWatched(all)
	if err != nil {
		return err
	}
	d := report.Dossier{WAN: wan, Router: router, From: from, To: to, Made: now, Version: cli.Version(version), Language: words, Incidents: []report.DossierItem{}}
	for _, w := range all.Watched {
		if w.WAN == wan && w.Router == router {
			d.Promised = [2]unit.Rate{w.Down, w.Up}
		}
	}
	f.wan, f.router = wan, router
	for _, x := range all.Incidents {
		if x.WAN != wan || x.Router != router {
			continue
		}
		if d.Promised == [2]unit.Rate{} {
			d.Promised = x.Figures.Promised
		}
		one, err := f.read(c.Context(), x.ID, from, to)
		if err != nil {
			return changeError(err)
		}
		d.Incidents = append(d.Incidents, report.DossierItem{Incident: x, Text: one.Samples})
	}
	for _, w := range all.Watched { // nothing is known of the time before
		if w.WAN == wan && w.Router == router && (len(d.Incidents) == 0 || d.Incidents[0].Begin.After(w.Since)) && w.Since.After(d.From) && w.Since.Before(to) {
			d.From = w.Since
		}
	}
	d.Line = o.lineOf(c.Context(), from, to)
	if err = report.WriteDossierFile(o.output, d); errors.Is(err, report.ErrUnsuitable) {
		return cli.Exit(cli.Usage, err)
	}
	return err
}

// lineOf is what the line did meanwhile; nil if that is not known.
func (o *reportOptions) lineOf(ctx context.Context, from, to time.Time) *report.Line {
	f := &o.incidentsOf
	h, err := (&lineFlags{router: f.router, stateDir: f.stateDir}).read(ctx, f.wan, f.file, from, to)
	if err != nil || len(h.At) == 0 {
		return nil
	}
	text, err := json.Marshal(h)
	if err != nil {
		return nil
	}
	l, err := readLine(text)
	if err != nil {
		return nil
	}
	return l
}

// onlyWatched is the line that is meant.
func (o *reportOptions) onlyWatched(all daemon.Incidents) (wan, router string, err error) {
	if o.incidentsOf.wan != "" {
		return o.incidentsOf.wan, o.incidentsOf.router, nil
	}
	names := map[daemon.Name]bool{}
	for _, x := range all.Incidents {
		names[daemon.Name{WAN: x.WAN, Router: x.Router}] = true
	}
	for _, w := range all.Watched {
		names[w.Name] = true
	}
	switch len(names) {
	case 0:
		return "", "", changeError(noDaemon())
	case 1:
		for n := range names {
			wan, router = n.WAN, n.Router
		}
		return wan, router, nil
	}
	return "", "", cli.UsageError("report: --incidents: there are several lines; say which with --wan")
}
