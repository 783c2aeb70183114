//go:build !router

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unbloat/internal/cure/platform"
	"unbloat/internal/keep/daemon"
	"unbloat/internal/show/cli"
	"unbloat/internal/show/report"
	"unbloat/internal/show/store"
	"unbloat/internal/show/terminal"
	"unbloat/reason"
)

// lineFlags say which line's history is meant.
type lineFlags struct {
	line                   bool
	router, stateDir, lang string
}

func (f *lineFlags) register(fs *pflag.FlagSet) {
	fs.BoolVar(&f.line, "line", false, "show what the line did: rates, what it is believed to carry, and delay, over hours")
	fs.StringVar(&f.router, "router", "", "with --line: `ADDRESS` of the router, as in the daemon's configuration (default: this machine)")
	fs.StringVar(&f.stateDir, "state-dir", stateDirOf(os.Getenv), "with --line: where the daemon's socket is")
	langFlag(fs, &f.lang)
}

// usualLine is how far back a line is shown.
const usualLine = 24 * time.Hour

// read returns what a line did since a time: from the daemon, or from its file if it
// does not run.
func (f *lineFlags) read(ctx context.Context, wan, store string, from, to time.Time) (h daemon.History, err error) {
	at := routerFlags{targetFlags: targetFlags{router: f.router}, stateDir: f.stateDir}
	c, err := at.dialDaemon(ctx)
	if err != nil {
		return h, err
	}
	if c != nil {
		defer c.Close()
		p := daemon.HistoryParams{From: from.UTC().Format(time.RFC3339), To: to.UTC().Format(time.RFC3339)}
		return h, c.Call(ctx, daemon.MethodHistory, f.router, wan, p, &h)
	}
	return f.readFile(ctx, wan, store, from, to)
}

// readFile reads what a line did from a file: the one that is named, or else the
// daemon's own.
func (f *lineFlags) readFile(ctx context.Context, wan, file string, from, to time.Time) (h daemon.History, err error) {
	if file == "" {
		c, err := daemon.Load(ctx, daemonConfig, nil)
		if err != nil || c.History == "" {
			return h, &platform.PreconditionError{Doing: "history: show the line", What: "no daemon runs here, which knows it", Remedy: "start it (docs/daemon.md), or name its file with --store"}
		}
		file = c.History
	}
	if wan, err = f.onlyLine(ctx, wan, file); err != nil {
		return h, err
	}
	return daemon.ReadHistory(ctx, lineArchive{}, file, wan, f.router, from, to, 0)
}

// onlyLine returns the line that is meant: the only one, if none is named.
func (f *lineFlags) onlyLine(ctx context.Context, wan, file string) (string, error) {
	if wan != "" {
		return wan, nil
	}
	s, err := store.OpenExisting(ctx, file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", &platform.PreconditionError{Doing: "history: show the line", What: "nothing was written to " + file + " yet", Remedy: "wait five minutes: the daemon writes that often"}
	}
	if err != nil {
		return "", storeError(err)
	}
	wans, err := s.LineWANs(ctx)
	switch err = errors.Join(err, s.Close()); {
	case err != nil:
		return "", storeError(err)
	case len(wans) == 1:
		return wans[0], nil
	case len(wans) > 1:
		return "", cli.UsageError("history: --line: there are several lines (%q); say which with --wan", wans)
	}
	return "", nil
}

// showLine draws what a line did.
func (f *historyFlags) showLine(c *cobra.Command, now time.Time) error {
	words, err := language("history", f.lang)
	if err != nil {
		return err
	}
	from := now.Add(-usualLine)
	if f.since != "" {
		if from, err = parseSince(f.since, now); err != nil {
			return cli.UsageError("history: --since %w", err)
		}
	}
	h, err := f.read(c.Context(), f.wan, f.file, from, now)
	if err != nil {
		return changeError(err)
	}
	if f.json {
		return json.NewEncoder(c.OutOrStdout()).Encode(h)
	}
	if len(h.At) == 0 {
		return changeError(&platform.PreconditionError{Doing: "history: show the line", What: "nothing is known of " + h.WAN + " in that time", Remedy: "wait until the daemon has kept it for a while, or ask for a longer time with --since"})
	}
	return drawLine(c.OutOrStdout(), words, pastOf(h, from, now))
}

// drawLine draws what a line did, as wide as the terminal.
func drawLine(out io.Writer, words *reason.Language, p terminal.Past) error {
	const wide, most = 80, 160
	o := terminal.OptionsOf(os.Getenv)
	o.Width = wide
	w := cli.TerminalWidth(out)
	if w > 0 {
		o.Width = min(w, most)
	}
	_, err := fmt.Fprintln(cli.Raw(out), terminal.DrawPast(words, p, o, w > 0)) // with colours; the canvas lets no other sequence through
	return err
}

// printLine draws what a line did that was read from a file.
func printLine(out io.Writer, l *report.Line) error {
	h := daemon.History{WAN: l.WAN, Router: l.Router, Step: l.Step, At: l.At, Down: daemon.HistoryWay(l.Down), Up: daemon.HistoryWay(l.Up)}
	step := time.Duration(l.Step) * time.Second
	return drawLine(out, reason.FromEnvironment(os.Getenv), pastOf(h, time.UnixMilli(l.At[0]), time.UnixMilli(l.At[len(l.At)-1]).Add(step)))
}

// pastOf returns a history as the view takes it.
func pastOf(h daemon.History, from, to time.Time) terminal.Past {
	p := terminal.Past{Name: daemon.WANStatus{WAN: h.WAN, Router: h.Router}.Name(), From: from.Local(), To: to.Local(), Step: time.Duration(h.Step) * time.Second}
	for i, ms := range h.At {
		at := terminal.PastStep{At: time.UnixMilli(ms)}
		for d, w := range [2]daemon.HistoryWay{h.Down, h.Up} {
			at.Way[d] = terminal.PastWay{Rate: w.Rate[i], Capacity: w.Capacity[i], Carried: w.Carried[i], DelayMs: pastDelay(w.Delay[i]), MostMs: pastDelay(w.DelayMax[i])}
		}
		p.Steps = append(p.Steps, at)
	}
	return p
}

// pastDelay is a delay as the view takes it: below 0 if it is not known.
func pastDelay(ms *float64) float64 {
	if ms == nil {
		return -1
	}
	return *ms
}
