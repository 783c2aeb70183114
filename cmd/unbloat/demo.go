package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"unbloat/internal/lab"
	"unbloat/internal/report"
)

type demoFlags struct {
	engine     string
	reportFile string
	quiet      bool
}

// demoScenario is the line whose story the demo tells.
const demoScenario = "seed-000"

func newDemoCommand() *cobra.Command {
	var f demoFlags
	c := &cobra.Command{
		Use:     "demo",
		GroupID: "lab",
		Short:   "See the whole story on an emulated home: measure, fix, measure again",
		Long: `Boots a home with a bloated 30/5 Mbit/s line on a real Linux kernel, inside one
process, and runs "unbloat tune" on its router. It needs no root and touches no
network of yours.`,
		Example: "  unbloat demo\n  unbloat demo --report before-after.html",
		Args:    exactArgs(0, "no argument"),
		RunE:    func(c *cobra.Command, _ []string) error { return runDemo(c, f) },
	}
	c.Flags().StringVar(&f.engine, "engine", "", "virtual or realtime (default: the best that is installed)")
	c.Flags().StringVar(&f.reportFile, "report", "unbloat-report.html", "where to write the report (.html, .svg, .png, .csv, .json, .flent.gz)")
	c.Flags().BoolVar(&f.quiet, "quiet", false, "no progress")
	return c
}

func runDemo(c *cobra.Command, f demoFlags) error {
	engine, err := lab.ParseEngine(f.engine)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	if _, err := report.FormatOf(f.reportFile); err != nil {
		return usageError("demo: --report %w", err)
	}
	s, err := loadScenario(demoScenario)
	if err != nil {
		return err
	}
	o := lab.Options{Engine: engine}
	out := c.OutOrStdout()
	if !f.quiet {
		fmt.Fprintf(out, "An emulated home: %s down, %s up, %v away; its modem and provider queue %s and %s.\n",
			s.Line.Down, s.Line.Up, s.Line.RTT, s.Line.BufferDown, s.Line.BufferUp)
		o.Console = newStoryWriter(c.ErrOrStderr())
	}
	r, kernel, err := lab.Tune(c.Context(), s, o)
	if err != nil {
		return labError(fmt.Errorf("demo: %w", err))
	}
	if r.Before == nil || r.After == nil {
		advice := ""
		if kernel.Engine == lab.Realtime {
			advice = "; in real time this machine has to keep up with the emulated line: `unbloat lab kernel` (`make kernel`) builds a kernel with a time of its own, once, on which the demo measures the same on any machine"
		}
		return fmt.Errorf("demo: the tuning on the emulated router ended early, with exit code %d: %s%s", r.ExitCode, r.Reason, advice)
	}
	fmt.Fprintf(out, "\nMeasured on Linux %s, %s time:\n\n", kernel.Version, kernel.Engine)
	if err := printTune(out, &r.Result); err != nil {
		return err
	}
	if err := report.WriteFile(f.reportFile, tunePage(&r.Result)); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	fmt.Fprintf(out, "Report: %s\n", f.reportFile)
	if !r.Kept {
		return &exitError{exitNoBetter, fmt.Errorf("demo: nothing was kept: %s", r.Reason)}
	}
	return nil
}

// A storyWriter passes on what the guest prints: every step of the tuner, and of
// its progress (indented lines) no more than one a second.
type storyWriter struct {
	w        io.Writer
	terminal bool
	line     bytes.Buffer
	last     time.Time
	pending  bool // a line that rewrites itself stands there
}

func newStoryWriter(w io.Writer) *storyWriter {
	s := &storyWriter{w: w, last: time.Now()}
	if f, ok := w.(interface{ Stat() (os.FileInfo, error) }); ok {
		if info, err := f.Stat(); err == nil {
			s.terminal = info.Mode()&os.ModeCharDevice != 0
		}
	}
	return s
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
	clear := ""
	if s.pending {
		clear = "\r\x1b[K"
	}
	switch progress := strings.HasPrefix(line, "  "); {
	case line == "":
	case !progress:
		fmt.Fprintf(s.w, "%s%s\n", clear, line)
		s.pending = false
	case time.Since(s.last) < time.Second:
	case s.terminal:
		fmt.Fprintf(s.w, "\r\x1b[K%s", line)
		s.last, s.pending = time.Now(), true
	default:
		fmt.Fprintln(s.w, line)
		s.last = time.Now()
	}
}
