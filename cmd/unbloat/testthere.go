//go:build !omit_measure && !omit_daemon

package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"unbloat/internal/daemon"
	"unbloat/internal/live"
	"unbloat/internal/verdict"
	"unbloat/unit"
)

// testThere measures through a running daemon, which keeps the shaping meanwhile and
// lets nobody change it. done is false if none runs or it can't measure, and if it
// keeps several lines: which of them the test loads is up to the routes.
func (o *testFlags) testThere(c *cobra.Command) (test *verdict.Test, interrupted, done bool, err error) {
	ctx := c.Context()
	here := o.daemonHere()
	s, err := here.kept(ctx)
	if err != nil {
		return nil, false, true, changeError(err)
	}
	if s == nil || len(s.WANs) != 1 {
		return nil, false, false, nil
	}
	client, err := here.dialDaemon(ctx)
	if client == nil || err != nil {
		return nil, false, err != nil, err
	}
	defer client.Close()
	p := daemon.TestParams{
		Server: o.server, Ping: o.ping, Pin: o.pin, Key: o.key, Insecure: o.insecure, Label: o.label,
		Seconds: o.load.Seconds(), Idle: o.idle.Seconds(), Flows: o.flows, CC: o.cc,
		Runs: o.runs, Profile: o.profile, Isolate: o.isolate, ProbeBytes: o.size,
	}
	if o.ownInterval {
		p.IntervalMs = unit.Ms(o.interval)
	}
	var run daemon.Started
	err = client.Call(ctx, daemon.MethodTest, "", s.WANs[0].WAN, p, &run)
	var refused *daemon.Error
	switch {
	case errors.As(err, &refused) && (refused.Code == daemon.CodeLeftOut || refused.Code == daemon.CodeMethod):
		return nil, false, false, nil
	case err != nil:
		return nil, false, true, changeError(err)
	}
	view := viewLine(c, live.NewTest(o.server, o.idle, o.load, o.runs), o.quiet, o.plain)
	is, err := here.follow(ctx, client, run.Run, func(e daemon.RunEvent) {
		switch {
		case e.Phase != nil:
			view.observe(eventOf(*e.Phase))
		case e.Say != "" && !o.quiet:
			view.say(e.Say)
		}
	})
	view.close()
	if err != nil {
		return nil, false, true, changeError(fmt.Errorf("test: %w", err))
	}
	if is.Result == nil {
		return nil, false, true, runError(is)
	}
	test = new(verdict.Test)
	if err := json.Unmarshal(is.Result, test); err != nil {
		return nil, false, true, fmt.Errorf("test: read the daemon's result: %w", err)
	}
	return test, is.State == daemon.RunEnded, true, nil
}
