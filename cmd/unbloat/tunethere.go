//go:build !omit_measure && !omit_daemon

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"unbloat/internal/daemon"
	"unbloat/internal/live"
	"unbloat/internal/plan"
	"unbloat/internal/tune"
	"unbloat/unit"
)

// tuneThere tunes through a running daemon; done is false if none keeps the WAN, or
// if it can't: then it waits while this program tunes.
func (f *tuneFlags) tuneThere(c *cobra.Command) (done bool, err error) {
	ctx := c.Context()
	s, err := f.kept(ctx)
	if err != nil || s == nil {
		return false, err
	}
	wan := f.wan
	if wan == "" && len(s.WANs) == 1 {
		wan = s.WANs[0].WAN
	}
	p := daemon.TuneParams{
		Server: f.server, Ping: f.ping, Pin: f.pin, Key: f.key, Insecure: f.insecure, GoalMs: unit.Ms(f.goal),
		AQM: f.aqm, Side: f.side, LAN: f.lan, Classes: f.classes, Classifier: f.classifier, Rules: f.rules, LinkLayer: f.linkLayer, Overhead: f.overhead,
		FlowsDown: f.flowsDown, FlowsUp: f.flowsUp, CC: f.cc, Replace: f.replace,
	}
	switch p.Classes {
	case "", plan.ClassesOn, plan.ClassesOff:
	default: // a file: the daemon works elsewhere
		if p.Classes, err = filepath.Abs(p.Classes); err != nil {
			return true, err
		}
	}
	if is, err := f.keeps(ctx, wan); err != nil || !is {
		return false, err
	}
	client, err := f.dialDaemon(ctx)
	if client == nil || err != nil {
		return false, err
	}
	defer client.Close()
	var run daemon.Started
	err = client.Call(ctx, daemon.MethodTune, f.router, wan, p, &run)
	var refused *daemon.Error
	if errors.As(err, &refused) && (refused.Code == daemon.CodeLeftOut || refused.Code == daemon.CodeMethod) {
		return false, nil
	}
	if err != nil {
		return true, changeError(err)
	}
	view := viewLine(c, live.NewTune(f.server, f.mostTime()), f.quiet, f.plain)
	is, err := f.follow(c.Context(), client, run.Run, func(e daemon.RunEvent) {
		switch {
		case e.Phase != nil:
			view.observe(eventOf(*e.Phase))
		case e.Stage != nil:
			view.watch(stageOf(*e.Stage))
		case e.Say != "":
			view.say(e.Say)
		}
	})
	view.close()
	if err != nil {
		return true, changeError(fmt.Errorf("tune: %w", err))
	}
	result := new(tune.Result)
	if is.Result == nil {
		return true, runError(is)
	}
	if err := json.Unmarshal(is.Result, result); err != nil {
		return true, fmt.Errorf("tune: read the daemon's result: %w", err)
	}
	f.save(c, result, conditions{iface: wan, plan: keptPlan(result)})
	return true, errors.Join(f.print(c, result), runError(is))
}

// keptPlan returns the plan that a tuning has kept; nil: none.
func keptPlan(r *tune.Result) *plan.Plan {
	if !r.Kept {
		return nil
	}
	return r.Plan
}

// runError gives what came of a daemon's run the exit code of the command.
func runError(is *daemon.RunStatus) error {
	if is.Error == nil {
		return nil
	}
	return &exitError{is.ExitCode, is.Error}
}

// mostUndo is how long the daemon may take to undo what an interrupted run has
// changed.
const mostUndo = time.Minute

// follow passes on the events of a daemon's run until it ends. If ctx ends before, it
// stops the run and waits until all is undone.
func (f *routerFlags) follow(ctx context.Context, client *daemon.Client, run string, event func(daemon.RunEvent)) (*daemon.RunStatus, error) {
	const wait = 5 // seconds
	after, stop := 0, false
	for {
		var is daemon.RunStatus
		err := client.Call(ctx, daemon.MethodRun, "", "", daemon.RunParams{Run: run, After: after, Wait: wait, Stop: stop}, &is)
		if err != nil && ctx.Err() != nil && !stop { // the interrupt has closed the connection, and so the run ends
			stop = true
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), mostUndo)
			defer cancel()
			if client, err = f.dialDaemon(ctx); client == nil {
				return nil, errors.Join(err, errors.New("interrupted; the daemon has gone, and the watchdog undoes what was changed"))
			}
			defer client.Close()
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, e := range is.Events {
			event(e)
		}
		after = is.Last
		if is.State != daemon.RunGoing {
			return &is, nil
		}
	}
}
