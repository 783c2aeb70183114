package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"unbloat/internal/keep/daemon"
	"unbloat/internal/show/cli"
)

// runThere has a running daemon test or tune, shows how it goes, and reads the result
// into result, if there is one. The status is nil if no daemon runs.
func (f *routerFlags) runThere(ctx context.Context, method, wan string, params any, show func() progress, result any) (*daemon.RunStatus, error) {
	client, err := f.dialDaemon(ctx)
	if client == nil || err != nil {
		return nil, err
	}
	defer client.Close()
	var run daemon.Started
	if err := client.Call(ctx, method, f.router, wan, params, &run); err != nil {
		return nil, err
	}
	view := show()
	is, err := f.follow(ctx, client, run.Run, view)
	view.close()
	if err == nil && is.Result != nil {
		err = json.Unmarshal(is.Result, result)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: read what the daemon has found: %w", method, err)
	}
	return is, nil
}

// runError gives what came of a daemon's run the exit code of the command.
func runError(is *daemon.RunStatus) error {
	if is.Error == nil {
		return nil
	}
	return cli.Exit(is.ExitCode, is.Error)
}

// mostUndo is how long the daemon may take to undo what an interrupted run has
// changed.
const mostUndo = time.Minute

// follow shows the events of a daemon's run until it ends. If ctx ends before, it
// stops the run and waits until all is undone.
func (f *routerFlags) follow(ctx context.Context, client *daemon.Client, run string, view progress) (*daemon.RunStatus, error) {
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
			view.see(e)
		}
		after = is.Last
		if is.State != daemon.RunGoing {
			return &is, nil
		}
	}
}
