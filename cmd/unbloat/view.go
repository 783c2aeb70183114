package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unbloat/internal/keep/daemon"
	"unbloat/internal/measure/path"
	"unbloat/internal/show/cli"
)

// plainFlag adds the flag for lines instead of a view.
func plainFlag(f *pflag.FlagSet, plain *bool) {
	f.BoolVar(plain, "plain", false, "show progress as lines, also on a terminal (as TERM=dumb does)")
}

// A measuredLine is what a test or a tuning is about.
type measuredLine struct {
	server     string
	idle, load time.Duration // phases of a test
	runs       int           // of a test
	most       time.Duration // that a tuning takes; 0: it is a test
}

// A lineView shows the progress of a test or a tuning: drawn on a terminal, otherwise as
// lines.
type lineView struct {
	screen progress // drawn on a terminal; nil: none
	lines  *progressLine
	errs   io.Writer // nil: quiet
	said   []string  // lines held back while the screen is shown
}

// viewLine starts to show l. The caller closes it before it prints anything.
func viewLine(c *cobra.Command, l measuredLine, quiet, plain bool) *lineView {
	v := &lineView{lines: progressTo(c.ErrOrStderr(), quiet)}
	if quiet {
		return v
	}
	v.errs = c.ErrOrStderr()
	if !plain {
		v.screen = drawLineOf(c, l)
	}
	return v
}

func (v *lineView) see(e daemon.RunEvent) {
	switch {
	case v.screen != nil && e.Say != "": // after the view has ended
		v.said = append(v.said, e.Say)
	case v.screen != nil:
		v.screen.see(e)
	case e.Phase != nil:
		v.lines.show(*e.Phase)
	case e.Say != "" && v.errs != nil:
		v.lines.clear()
		cli.Say(v.errs, "%s", e.Say)
	}
}

func (v *lineView) close() {
	if v.screen != nil {
		v.screen.close()
		v.screen = nil
	}
	v.lines.clear()
	for _, line := range v.said {
		cli.Say(v.errs, "%s", line)
	}
	v.said = nil
}

// A pathDrawing draws on a terminal how a trace goes.
type pathDrawing interface {
	observe(path.WalkProgress)
	close()
}

// A pathView shows the progress of a trace: a live table on a terminal,
// otherwise a line every two seconds.
type pathView struct {
	screen pathDrawing // nil: none
	plain  io.Writer   // nil: quiet
	phase  string
	last   time.Duration
}

// viewPath starts to show a trace to host.
func viewPath(c *cobra.Command, host string, quiet, plain bool) *pathView {
	v := &pathView{last: -plainEvery}
	if quiet {
		return v
	}
	v.plain = c.ErrOrStderr()
	if !plain {
		v.screen = drawPathTo(c, host)
	}
	return v
}

func (v *pathView) observe(p path.WalkProgress) {
	if v.screen != nil {
		v.screen.observe(p)
		return
	}
	if v.plain == nil || p.Phase == v.phase && p.Elapsed-v.last < plainEvery {
		return
	}
	v.phase, v.last = p.Phase, p.Elapsed
	fmt.Fprintf(v.plain, "%-9s %4.1f / %.0f s   %d hops\n", p.Phase, p.Elapsed.Seconds(), p.Duration.Seconds(), len(p.Result.Hops))
}

func (v *pathView) close() {
	if v.screen != nil {
		v.screen.close()
	}
}
