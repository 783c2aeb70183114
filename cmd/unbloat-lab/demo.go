package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"unbloat/internal/show/cli"
	"unbloat/internal/show/report"
	"unbloat/lab"
	"unbloat/lab/scenario"
	"unbloat/lab/simlab"
	"unbloat/reason"
	"unbloat/unit"
)

type demoFlags struct {
	engine     string
	reportFile string
	quiet      bool
}

// demoScenario is the line of the demo.
const demoScenario = "seed-000"

func newDemoCommand() *cobra.Command {
	var f demoFlags
	c := &cobra.Command{
		Use:     "demo",
		GroupID: "lab",
		Short:   "See the whole story on an emulated home: measure, fix, measure again",
		Long: `Boots a home with a bloated 30/5 Mbit/s line on a real Linux kernel, inside one
process, and runs "unbloat tune" on its router. It needs no root and touches no
network of yours. Where no such kernel can run, or the machine does not keep up
with one in real time, the simulator takes its place, and the demo says so.`,
		Example: "  unbloat demo\n  unbloat demo --report before-after.html\n  unbloat demo --engine sim",
		Args:    cli.ExactArgs(0, "no argument"),
		RunE:    func(c *cobra.Command, _ []string) error { return runDemo(c, f) },
	}
	c.Flags().StringVar(&f.engine, "engine", "", "virtual, realtime or sim (default: the best that is installed)")
	c.Flags().StringVar(&f.reportFile, "report", "unbloat-report.html", "where to write the report (.html, .svg, .png, .csv, .json, .flent.gz)")
	c.Flags().BoolVar(&f.quiet, "quiet", false, "no progress")
	return c
}

func runDemo(c *cobra.Command, f demoFlags) error {
	engine, err := lab.ParseEngine(f.engine)
	if err != nil {
		return cli.Exit(cli.Usage, err)
	}
	if _, err := report.FormatOf(f.reportFile); err != nil {
		return cli.UsageError("demo: --report %w", err)
	}
	s, err := loadScenario(demoScenario)
	if err != nil {
		return err
	}
	out := c.OutOrStdout()
	var console io.Writer
	if !f.quiet {
		fmt.Fprintf(out, "An emulated home: %s down, %s up, %v away; its modem and provider queue %s and %s.\n",
			s.Line.Down, s.Line.Up, s.Line.RTT, s.Line.BufferDown, s.Line.BufferUp)
		console = newStoryWriter(c.ErrOrStderr())
	}
	t, err := tellTale(c.Context(), s, engine, console)
	if err != nil {
		return labError(fmt.Errorf("demo: %w", err))
	}
	page := report.TuningPage(&t.result.Result)
	page.Notes = append(page.Notes, t.notes...)
	for _, n := range t.notes {
		fmt.Fprintf(out, "\n%s\n", n)
	}
	if t.engine != lab.Sim {
		fmt.Fprintf(out, "\nMeasured on Linux %s, %s time:\n", t.kernel, t.engine)
	}
	fmt.Fprintln(out)
	if err := report.TuningIn(out, reason.English(), &t.result.Result, 0); err != nil {
		return err
	}
	if err := report.WriteFile(f.reportFile, page); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	fmt.Fprintf(out, "Report: %s\n", f.reportFile)
	if !t.result.Kept {
		return cli.Exit(cli.NoBetter, fmt.Errorf("demo: nothing was kept: %s", t.result.Reason))
	}
	return nil
}

// How long the demo checks whether this machine is fast enough for real time,
// and how late it may be: as late as a valid measurement
// (verdict.MaxLatenessMs), since a guest will be later still.
const (
	watchTime = 2 * time.Second
	mostLate  = time.Millisecond
)

// A tale is the tuner's result on the emulated router.
type tale struct {
	result *lab.TuneResult
	engine lab.Engine
	kernel string   // version
	notes  []string // remarks to show with the figures
}

// tellTale tunes the emulated router. If no engine was asked for, it uses the
// simulator when there is no kernel to run or the machine is too slow for real
// time, and says so, so that nobody takes the figures for measured ones.
func tellTale(ctx context.Context, s *scenario.Scenario, asked lab.Engine, console io.Writer) (tale, error) {
	if asked == lab.Sim {
		return simulatedTale(ctx, s, "")
	}
	if k, err := lab.FindKernel(asked); asked == "" && err == nil && k.Engine == lab.Realtime {
		if late := lab.KeepsTime(ctx, watchTime); late > mostLate {
			return simulatedTale(ctx, s, fmt.Sprintf("this machine is too busy for an emulated line in real time (it wakes %.1f ms late), and `unbloat lab kernel` has not built the kernel that does not depend on it", unit.Ms(late)))
		}
	}
	r, kernel, err := lab.Tune(ctx, s, lab.Options{Engine: asked, Console: console})
	var missing *lab.MissingError
	var unsupported *lab.UnsupportedError
	var crashed *lab.CrashedError
	switch {
	case asked == "" && (errors.As(err, &missing) || errors.As(err, &unsupported)):
		return simulatedTale(ctx, s, fmt.Sprintf("the emulated home cannot run here (%v)", err))
	case asked == "" && errors.As(err, &crashed):
		return simulatedTale(ctx, s, fmt.Sprintf("the kernel does not run on this machine (%v), and `unbloat lab kernel` has not built one that may", crashed.Err))
	case err != nil:
		return tale{}, err
	case r.Kept:
	case asked == "" && kernel.Engine == lab.Realtime:
		return simulatedTale(ctx, s, "this machine did not keep up with the emulated line in real time ("+r.Reason+"), and `unbloat lab kernel` has not built the kernel that does not depend on it")
	case r.Before == nil || r.After == nil:
		return tale{}, fmt.Errorf("the tuning on the emulated router ended early, with exit code %d: %s", r.ExitCode, r.Reason)
	}
	return tale{result: r, engine: kernel.Engine, kernel: kernel.Version}, nil
}

// simulatedTale runs the same tuner on a line in the simulator. why is the
// reason if the user did not ask for the simulator, else "".
func simulatedTale(ctx context.Context, s *scenario.Scenario, why string) (tale, error) {
	r, err := simlab.Tune(ctx, s, simlab.Options{Seed: 1})
	if err != nil {
		return tale{}, err
	}
	note := "Simulated, not measured"
	if why != "" {
		note += ": " + why
	}
	return tale{result: r, engine: lab.Sim, notes: []string{note + "."}}, nil
}

// A storyWriter prints what the guest prints: every step of the tuner, but its
// progress (indented lines) at most once a second.
type storyWriter struct {
	w        io.Writer
	terminal bool
	line     bytes.Buffer
	last     time.Time
	pending  bool // the current line is one that rewrites itself
}

func newStoryWriter(w io.Writer) *storyWriter {
	return &storyWriter{w: w, last: time.Now(), terminal: cli.IsTerminal(w)}
}

func (s *storyWriter) Write(b []byte) (int, error) {
	for _, c := range b {
		if c != '\n' {
			s.line.WriteByte(c)
			continue
		}
		s.tell(s.line.String())
		s.line.Reset()
	}
	return len(b), nil
}

func (s *storyWriter) tell(line string) {
	const clear = "\r\x1b[K"
	switch progress := strings.HasPrefix(line, "  "); {
	case line == "":
	case !progress:
		if s.pending {
			fmt.Fprint(cli.Raw(s.w), clear)
		}
		fmt.Fprintln(s.w, line)
		s.pending = false
	case time.Since(s.last) < time.Second:
	case s.terminal:
		fmt.Fprint(cli.Raw(s.w), clear)
		fmt.Fprint(s.w, line)
		s.last, s.pending = time.Now(), true
	default:
		fmt.Fprintln(s.w, line)
		s.last = time.Now()
	}
}
