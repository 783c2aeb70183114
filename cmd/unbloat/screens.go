//go:build !router

package main

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"unbloat/internal/keep/daemon"
	"unbloat/internal/measure/path"
	"unbloat/internal/show/cli"
	"unbloat/internal/show/terminal"
	"unbloat/reason"
)

// A drawn view is shown on a screen. The measurement feeds it while the screen
// draws it.
type drawn struct {
	mu     sync.Mutex
	began  time.Time
	screen *terminal.Screen // nil: none
	stop   func() bool      // stops the watch on the command's context
}

// open shows a view on the terminal that is standard error, until close. It
// returns false if that is no terminal. An interrupt from the keyboard ends the
// command's context, and ending is called.
func (d *drawn) open(c *cobra.Command, draw func(time.Duration, terminal.Options) string, ending func(string)) bool {
	out, ok := c.ErrOrStderr().(*cli.Outlet)
	if !ok || !terminal.SuitableScreen(os.Stdin, out.File(), os.Getenv) {
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
	d.screen = terminal.OpenScreen(terminal.ScreenConfig{
		In: os.Stdin, Out: out.File(), Options: terminal.OptionsOf(os.Getenv), Interrupt: interrupt,
		Draw: func(now time.Duration, o terminal.Options) string {
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

// A drawnLine is the view of a test or a tuning.
type drawnLine struct {
	drawn
	line *terminal.Line
}

// drawLineOf shows it on the terminal; nil: there is none.
func drawLineOf(c *cobra.Command, l measuredLine) progress {
	v := &drawnLine{line: terminal.NewTest(l.server, l.idle, l.load, l.runs)}
	if l.most > 0 {
		v.line = terminal.NewTune(l.server, l.most)
	}
	if !v.open(c, v.line.Draw, v.line.End) {
		return nil
	}
	return v
}

func (v *drawnLine) see(e daemon.RunEvent) {
	v.feed(func(now time.Duration) {
		switch {
		case e.Phase != nil:
			v.line.Observe(now, *e.Phase)
		case e.Stage != nil:
			v.line.Tuning(*e.Stage)
		}
	})
}

// A drawnPath is the view of a trace.
type drawnPath struct {
	drawn
	path *terminal.Path
}

// drawPathTo shows it on the terminal; nil: there is none.
func drawPathTo(c *cobra.Command, host string) pathDrawing {
	v := &drawnPath{path: terminal.NewPath(host)}
	if !v.open(c, v.path.Draw, v.path.End) {
		return nil
	}
	return v
}

func (v *drawnPath) observe(p path.WalkProgress) {
	v.feed(func(now time.Duration) { v.path.Observe(now, p) })
}

// viewKept starts to show what a daemon says: a view on a terminal, otherwise lines.
func viewKept(c *cobra.Command, words *reason.Language) keptView {
	v := &drawnKept{view: terminal.NewWANs(words)}
	if cli.IsTerminal(c.OutOrStdout()) && v.open(c, v.view.Draw, v.view.End) {
		return v
	}
	return newKeptLines(c, words)
}

// drawnKept is the view on a terminal.
type drawnKept struct {
	drawn
	view *terminal.WANs
}

func (v *drawnKept) show(now keptNow) {
	v.feed(func(at time.Duration) { v.view.Observe(at, now.status.WANs, now.decisions, now.gone) })
}
