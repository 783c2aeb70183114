//go:build !omit_measure && !omit_tui

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unbloat/internal/daemon"
	"unbloat/internal/live"
	"unbloat/internal/platform"
	"unbloat/internal/screen"
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

// showLine draws what a line did.
func (f *historyFlags) showLine(c *cobra.Command, now time.Time) error {
	words, err := language("history", f.lang)
	if err != nil {
		return err
	}
	from := now.Add(-usualLine)
	if f.since != "" {
		if from, err = parseSince(f.since, now); err != nil {
			return usageError("history: --since %w", err)
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
		return changeError(&platform.PreconditionError{Doing: "history: show the line", What: "nothing is known of " + h.WAN + " in that time", Remedy: "wait until the daemon has followed it for a while, or ask for a longer time with --since"})
	}
	const wide, most = 80, 160
	o := screen.OptionsOf(os.Getenv)
	o.Width = wide
	w := terminalWidth(c.OutOrStdout())
	if w > 0 {
		o.Width = min(w, most)
	}
	_, err = fmt.Fprintln(c.OutOrStdout(), live.DrawPast(words, pastOf(h, from, now), o, w > 0))
	return err
}

// pastOf returns a history as the view takes it.
func pastOf(h daemon.History, from, to time.Time) live.Past {
	p := live.Past{Name: nameOfWAN(daemon.WANStatus{WAN: h.WAN, Router: h.Router}), From: from.Local(), To: to.Local(), Step: time.Duration(h.Step) * time.Second}
	for i, ms := range h.At {
		at := live.PastStep{At: time.UnixMilli(ms)}
		for d, w := range [2]daemon.HistoryWay{h.Down, h.Up} {
			at.Way[d] = live.PastWay{Rate: w.Rate[i], Capacity: w.Capacity[i], Carried: w.Carried[i], DelayMs: w.Delay[i], MostMs: w.DelayMax[i]}
		}
		p.Steps = append(p.Steps, at)
	}
	return p
}
