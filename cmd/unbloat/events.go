package main

import (
	"encoding/json"
	"errors"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unbloat/internal/keep/daemon"
	"unbloat/internal/show/cli"
)

// eventFlags are those of commands that a program may follow, as the daemon does.
type eventFlags struct {
	events bool
	turn   string // the WAN that is this command's, since a daemon runs it; "": none does

	lines *eventLines // nil: people follow it
}

func (f *eventFlags) register(fs *pflag.FlagSet) {
	fs.BoolVar(&f.events, "events", false, "print a line of JSON for each event, as the daemon's method run does, and the result as the last")
	fs.StringVar(&f.turn, "turn-is-held", "", "the daemon runs it, and waits already on this `WAN`")
	_ = fs.MarkHidden("turn-is-held")
}

// tell does a command's work. With --events all that it says, and what comes of it, are
// lines of standard output.
func (f *eventFlags) tell(c *cobra.Command, work func() (result any, err error)) error {
	if f.turn != "" {
		endWithDaemon()
	}
	if f.events {
		f.lines = &eventLines{out: json.NewEncoder(cli.Raw(c.OutOrStdout()))}
		c.SetErr(&daemon.Lines{Each: func(line []byte) { f.lines.see(daemon.RunEvent{Say: string(line)}) }})
	}
	result, err := work()
	if f.lines == nil {
		return err
	}
	var last daemon.RunEnd
	if result != nil {
		b, e := json.Marshal(result)
		last.Result, err = b, errors.Join(err, e)
	}
	if err != nil && !errors.As(err, &last.Error) {
		last.Error = &daemon.Error{Code: codeOf(err), Text: err.Error()}
	}
	f.lines.end(last)
	return err
}

// view starts to show how a measurement goes.
func (f *eventFlags) view(c *cobra.Command, l measuredLine, quiet, plain bool) progress {
	if f.lines != nil {
		return f.lines
	}
	return viewLine(c, l, quiet, plain)
}

// A progress is shown how a test or a tuning goes.
type progress interface {
	see(daemon.RunEvent)
	close()
}

// eventLines print events.
type eventLines struct {
	mu  sync.Mutex
	n   int // of the newest
	out *json.Encoder
}

func (l *eventLines) see(e daemon.RunEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	e.N = l.n
	_ = l.out.Encode(e) // the command's end tells what could not be printed
}

// end prints the last line.
func (l *eventLines) end(e daemon.RunEnd) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.out.Encode(e)
}

func (l *eventLines) close() {}

// endWithDaemon makes this process die when the daemon does, even where the kernel does
// not see to that: what nobody reads ends it, and its watchdog undoes what it has changed.
func endWithDaemon() {
	debug.SetGCPercent(daemonGC)
	go func() {
		for range time.Tick(time.Second) {
			if _, err := os.Stdout.WriteString("\n"); err != nil { // where it does not end the process already
				os.Exit(cli.Failed)
			}
		}
	}()
}
