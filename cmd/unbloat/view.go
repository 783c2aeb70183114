//go:build !omit_measure

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unbloat/internal/live"
	"unbloat/internal/measure"
	"unbloat/internal/path/walk"
	"unbloat/internal/screen"
	"unbloat/internal/tune"
)

// plainFlag adds the flag for lines instead of a view.
func plainFlag(f *pflag.FlagSet, plain *bool) {
	f.BoolVar(plain, "plain", false, "show progress as lines, also on a terminal (as TERM=dumb does)")
}

// A drawn view is shown on a screen. The measurement feeds it while the screen
// draws it.
type drawn struct {
	mu     sync.Mutex
	began  time.Time
	screen *screen.Screen // nil: none
	stop   func() bool    // stops the watch on the command's context
}

// open shows a view on the terminal that is standard error, until close. It
// returns false if that is no terminal. An interrupt from the keyboard ends the
// command's context, and ending is called.
func (d *drawn) open(c *cobra.Command, draw func(time.Duration, live.Options) string, ending func(string)) bool {
	out, ok := c.ErrOrStderr().(*outlet)
	if !ok || !screen.Suitable(os.Stdin, out.file, os.Getenv) {
		return false
	}
	ctx, interrupt := context.WithCancel(c.Context())
	c.SetContext(ctx)
	d.began = time.Now()
	d.stop = context.AfterFunc(ctx, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		ending("interrupted: putting everything back as it was")
	})
	d.screen = screen.Open(screen.Config{
		In: os.Stdin, Out: out.file, Options: screen.OptionsOf(os.Getenv), Interrupt: interrupt,
		Draw: func(now time.Duration, o live.Options) string {
			d.mu.Lock()
			defer d.mu.Unlock()
			return draw(now, o)
		},
	})
	return true
}

// feed calls use with the time since the view began; it does nothing without a
// view.
func (d *drawn) feed(use func(now time.Duration)) {
	if d.screen == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	use(time.Since(d.began))
}

// close restores the terminal.
func (d *drawn) close() {
	if d.screen != nil {
		d.stop()
		d.screen.Close()
		d.screen = nil
	}
}

// A lineView shows the progress of a test or a tuning: as a view on a terminal,
// otherwise as lines.
type lineView struct {
	drawn
	line  *live.Line
	lines *progressLine
	errs  io.Writer // nil: quiet
	said  []string  // lines held back while the view is shown
}

// viewLine starts to show l. The caller closes it before it prints anything.
func viewLine(c *cobra.Command, l *live.Line, quiet, plain bool) *lineView {
	v := &lineView{line: l, lines: progressTo(c.ErrOrStderr(), quiet)}
	if quiet {
		return v
	}
	v.errs = c.ErrOrStderr()
	if !plain {
		v.open(c, l.Draw, l.End)
	}
	return v
}

func (v *lineView) observe(e measure.Event) {
	v.feed(func(now time.Duration) { v.line.Observe(now, e) })
	if v.screen == nil {
		v.lines.show(e)
	}
}

func (v *lineView) watch(s tune.Stage) {
	v.feed(func(time.Duration) { v.line.Tuning(s) })
}

// say prints a line, after the view has ended.
func (v *lineView) say(line string) {
	switch {
	case v.screen != nil:
		v.said = append(v.said, line)
	case v.errs != nil:
		v.lines.clear()
		fmt.Fprintln(v.errs, line)
	}
}

func (v *lineView) close() {
	v.drawn.close()
	v.lines.clear()
	for _, line := range v.said {
		fmt.Fprintln(v.errs, line)
	}
	v.said = nil
}

// A pathView shows the progress of a trace: a live table on a terminal,
// otherwise a line every two seconds.
type pathView struct {
	drawn
	path  *live.Path
	plain io.Writer // nil: quiet
	phase string
	last  time.Duration
}

// viewPath starts to show a trace to host.
func viewPath(c *cobra.Command, host string, quiet, plain bool) *pathView {
	v := &pathView{path: live.NewPath(host), last: -plainEvery}
	if quiet {
		return v
	}
	v.plain = c.ErrOrStderr()
	if !plain {
		v.open(c, v.path.Draw, v.path.End)
	}
	return v
}

func (v *pathView) observe(p walk.Progress) {
	v.feed(func(now time.Duration) { v.path.Observe(now, p) })
	if v.screen != nil || v.plain == nil || p.Phase == v.phase && p.Elapsed-v.last < plainEvery {
		return
	}
	v.phase, v.last = p.Phase, p.Elapsed
	fmt.Fprintf(v.plain, "%-9s %4.1f / %.0f s   %d hops\n", p.Phase, p.Elapsed.Seconds(), p.Duration.Seconds(), len(p.Result.Hops))
}
