//go:build !omit_daemon

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"unbloat/internal/daemon"
	"unbloat/unit"
)

// workBeside does a job of the daemon by the program that measures.
func workBeside(ctx context.Context, program, stateDir string, j daemon.Job) (result any, exitCode int, err error) {
	argv := besideArgs(stateDir, j)
	c := exec.CommandContext(ctx, program, argv...)
	// It undoes what it tries when it is interrupted.
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = time.Minute
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err = c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, exitFailed, fmt.Errorf("run %s: %w", program, err)
	}
	if json.Valid(out.Bytes()) {
		result = json.RawMessage(bytes.TrimSpace(out.Bytes()))
	}
	if exit != nil {
		return result, exit.ExitCode(), &exitError{exit.ExitCode(), errors.New(strings.TrimSpace(errs.String()))}
	}
	if result == nil {
		return nil, exitFailed, fmt.Errorf("run %s: it prints no result", program)
	}
	return result, exitDone, nil
}

// besideArgs are the program's arguments for a job.
func besideArgs(stateDir string, j daemon.Job) []string {
	var argv []string
	add := func(flag, value string) {
		if value != "" {
			argv = append(argv, "--"+flag, value)
		}
	}
	number := func(flag string, value int) {
		if value != 0 {
			add(flag, strconv.Itoa(value))
		}
	}
	length := func(flag string, seconds float64) {
		if seconds != 0 {
			add(flag, strconv.FormatFloat(seconds, 'f', -1, 64))
		}
	}
	yes := func(flag string, set bool) {
		if set {
			argv = append(argv, "--"+flag)
		}
	}
	if p := j.Test; p != nil {
		argv = []string{"test", "--json", "--quiet"}
		add("server", first(p.Server, j.Server))
		add("ping", p.Ping)
		add("pin", p.Pin)
		add("key", p.Key)
		add("label", p.Label)
		add("cc", p.CC)
		number("flows", p.Flows)
		length("seconds", p.Seconds)
		length("idle", p.Idle)
		number("runs", p.Runs)
		add("profile", p.Profile)
		number("probe-bytes", p.ProbeBytes)
		if p.IntervalMs != 0 {
			add("interval", unit.FromMs(p.IntervalMs).String())
		}
		yes("insecure", p.Insecure)
		yes("isolate", p.Isolate)
		return argv
	}
	w, p := j.WAN, j.Tune
	argv = []string{"tune", "--json", "--quiet", "--turn-is-held", "--state-dir", stateDir, "--wan", w.Interface}
	add("lan", first(p.LAN, w.LAN))
	add("for", w.Platform)
	add("server", first(p.Server, j.Server))
	add("ping", p.Ping)
	add("pin", p.Pin)
	add("key", p.Key)
	add("aqm", first(p.AQM, string(w.AQM)))
	add("side", first(p.Side, string(w.Side)))
	add("classes", first(p.Classes, w.Classes))
	add("classifier", first(p.Classifier, string(w.Classifier)))
	add("link-layer", first(p.LinkLayer, string(w.LinkLayer)))
	number("overhead", first(p.Overhead, w.Overhead))
	add("cc", p.CC)
	for _, r := range p.Rules {
		add("rule", r)
	}
	if p.GoalMs != 0 {
		add("goal", unit.FromMs(p.GoalMs).String())
	} else if w.Goal != 0 {
		add("goal", w.Goal.String())
	}
	number("flows-down", p.FlowsDown)
	number("flows-up", p.FlowsUp)
	yes("insecure", p.Insecure)
	yes("replace", p.Replace)
	return argv
}

// first returns the first value that is given.
func first[T comparable](values ...T) T {
	var none T
	for _, v := range values {
		if v != none {
			return v
		}
	}
	return none
}
