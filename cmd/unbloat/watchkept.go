package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/supervise"
	"unbloat/internal/show/cli"
	"unbloat/reason"
	"unbloat/unit"
)

// A keptNow is what a daemon says at one time.
type keptNow struct {
	status    daemon.Status
	decisions []daemon.Decision
	gone      bool // it does not answer, and this is what it said last
}

// A keptWatch asks a daemon again and again.
type keptWatch struct {
	flags  *routerFlags
	wan    string // "": all of the router
	client *daemon.Client
	last   keptNow
}

// watchKept shows what a running daemon believes until it is interrupted; done is
// false if none keeps the WAN.
func (f *routerFlags) watchKept(c *cobra.Command, wan, tag string) (done bool, err error) {
	if f.json || f.quiet {
		return false, nil
	}
	words, err := watchLanguage(tag)
	if err != nil {
		return true, err
	}
	w := &keptWatch{flags: f, wan: wan}
	now, err := w.ask(c.Context(), daemon.MostDecisions)
	if err != nil || len(now.status.WANs) == 0 {
		return false, err
	}
	defer w.close()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	view := viewKept(c, words)
	defer view.close()
	for {
		view.show(now)
		ctx := c.Context() // the view may have set another
		select {
		case <-ctx.Done():
			return true, nil
		case <-tick.C:
		}
		if now, err = w.ask(ctx, daemon.MostDecisions); err != nil && ctx.Err() == nil {
			now = w.last
			now.gone = true
			w.close()
		}
	}
}

// watchLanguage returns the language of the flag, or else of the environment.
func watchLanguage(tag string) (*reason.Language, error) {
	if tag == "" {
		return reason.FromEnvironment(os.Getenv), nil
	}
	l, ok := reason.Find(tag)
	if !ok {
		return nil, cli.UsageError("status: --lang %q: must be en or de", tag)
	}
	return l, nil
}

func (w *keptWatch) close() {
	if w.client != nil {
		w.client.Close()
		w.client = nil
	}
}

// ask asks the daemon how it is; without a daemon there are no WANs.
func (w *keptWatch) ask(ctx context.Context, most int) (keptNow, error) {
	ctx, cancel := context.WithTimeout(ctx, daemonStatusTime)
	defer cancel()
	var now keptNow
	if w.client == nil {
		c, err := w.flags.dialDaemon(ctx)
		if c == nil || err != nil {
			if err == nil && len(w.last.status.WANs) > 0 {
				err = daemon.ErrNoDaemon
			}
			return now, err
		}
		w.client = c
	}
	if err := w.client.Call(ctx, daemon.MethodStatus, "", "", nil, &now.status); err != nil {
		return now, err
	}
	now.status.WANs = slices.DeleteFunc(now.status.WANs, func(x daemon.WANStatus) bool {
		return x.Router != w.flags.router || w.wan != "" && x.WAN != w.wan
	})
	var d daemon.Decisions
	if err := w.client.Call(ctx, daemon.MethodDecisions, "", "", daemon.DecisionsParams{Limit: most}, &d); err != nil {
		return now, err
	}
	now.decisions = slices.DeleteFunc(d.Decisions, func(x daemon.Decision) bool {
		return !slices.ContainsFunc(now.status.WANs, func(s daemon.WANStatus) bool { return s.WAN == x.WAN && s.Router == x.Router })
	})
	w.last = now
	return now, nil
}

// keptLines prints a line for each change.
type keptLines struct {
	w     io.Writer
	words *reason.Language
	said  map[string]string
	shown uint64 // newest decision that was printed
	gone  bool
	began bool
}

func (l *keptLines) show(now keptNow) {
	at := time.Now().Format("15:04:05")
	if now.gone != l.gone {
		if l.gone = now.gone; now.gone {
			fmt.Fprintln(l.w, at, l.words.Name("watch gone"))
		}
	}
	if now.gone {
		return
	}
	for _, s := range now.status.WANs {
		name := s.Name()
		says := name + ": " + l.words.Name("state "+string(s.State))
		switch {
		case s.State == supervise.InPlace && s.Line != nil && s.Line.Blind:
			says += ", " + l.words.Name("watch blind")
		case s.State == supervise.InPlace && s.Line != nil:
			says += ", " + l.words.Name("watch followed")
		case s.State == supervise.InPlace:
			says += fmt.Sprintf(", ↓ %s ↑ %s", rateOr(l.words, s.Down), rateOr(l.words, s.Up))
		case s.Why != "":
			says += ": " + s.Why
		}
		if l.said[name] != says {
			l.said[name] = says
			fmt.Fprintln(l.w, at, says)
		}
		if !l.began && s.Line != nil { // as it is when the watch begins
			for _, b := range s.Ways() {
				fmt.Fprintf(l.w, "%s %s %s\n", at, name, b.Why.Reason().Text(l.words, reason.Terminal))
			}
		}
	}
	for _, d := range now.decisions {
		if d.N > l.shown {
			l.shown = d.N
			if l.began {
				fmt.Fprintf(l.w, "%s %s %s\n", d.Clock(), d.WAN, d.Why.Text(l.words, reason.Terminal))
			}
		}
	}
	l.began = true
}

func (l *keptLines) close() {}

// A keptView is shown what a daemon says.
type keptView interface {
	show(keptNow)
	close()
}

func newKeptLines(c *cobra.Command, words *reason.Language) *keptLines {
	return &keptLines{w: c.OutOrStdout(), words: words, said: map[string]string{}}
}

func rateOr(l *reason.Language, r unit.Rate) string {
	if r == 0 {
		return "–"
	}
	return l.Rate(float64(r))
}
