package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/linux"
	"unbloat/internal/measure/phases"
	"unbloat/lab/scenario"
	"unbloat/unit"
)

// startServer starts `unbloat serve` on the far side of the line and waits
// until it listens.
func (a *agent) startServer(ctx context.Context) error {
	cmd := a.unbloat(ctx, NodeServer, "serve", "--listen", ":"+strconv.Itoa(ServerPort))
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	a.running = append(a.running, cmd)
	for range 200 {
		out, err := a.in(ctx, NodeServer, "ss", "-Hltn", "sport", "=", ":"+strconv.Itoa(ServerPort)).Output()
		if err == nil && len(bytes.TrimSpace(out)) > 0 {
			return nil
		}
		if err := phases.Sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("the server does not listen: %s", log.String())
}

// measure puts the router into the case's state and measures from home1.
func (a *agent) measure(ctx context.Context) (*CaseResult, error) {
	s := a.g.Scenario
	c, err := s.Case(a.g.Case)
	if err != nil {
		return nil, err
	}
	var router interface {
		fix(context.Context, *scenario.Fix) (*plan.Plan, error)
		tune(context.Context) (*plan.Plan, *TuneResult, error)
	} = a
	var foreign *foreignRouter
	if a.g.Router != nil {
		foreign = &foreignRouter{a: a, id: a.met, after: RouterCase{Left: []string{}}}
		if foreign.before, err = foreign.look(ctx); err != nil {
			return nil, err
		}
		router = foreign
	}
	var shaped *plan.Plan
	var tuned *TuneResult
	switch c.Router.Mode {
	case scenario.ModeFix:
		shaped, err = router.fix(ctx, c.Router.Fix)
	case scenario.ModeTune:
		shaped, tuned, err = router.tune(ctx)
	case scenario.ModeDaemon:
		err = a.daemon(ctx, c.Router.Daemon)
	case scenario.ModeAutorate:
		shaped, err = a.autorate(ctx, c.Router.Daemon)
	case scenario.ModeOracle:
		l := s.Line
		shaped, err = a.fix(ctx, &scenario.Fix{AQM: string(plan.CAKE), Down: l.Down.Scale(c.Router.Oracle), Up: l.Up.Scale(c.Router.Oracle)})
	}
	if err != nil {
		return nil, fmt.Errorf("router of case %s: %w", c.Name, err)
	}
	if foreign != nil {
		if foreign.after.Measured, err = foreign.status(ctx); err != nil {
			return nil, err
		}
	}
	if a.g.TuneOnly {
		return &CaseResult{Name: c.Name, Plan: shaped, Tune: tuned}, nil
	}
	began := unit.Instant(time.Now().UnixNano())
	stop, err := a.vary(ctx, c.Router.Oracle)
	if err != nil {
		return nil, err
	}
	watched := func() (*ShaperRates, error) { return nil, nil }
	if follows(c.Router.Mode) {
		if watched, err = a.watchShapers(ctx); err != nil {
			return nil, err
		}
	}
	out, err := output(a.self(ctx, Host(1), "lab-household", guestOut+"/"+specName))
	rates, watchErr := watched()
	if err := errors.Join(err, watchErr, stop()); err != nil {
		return nil, err
	}
	var r CaseResult
	if err := json.Unmarshal(out, &r); err != nil {
		return nil, fmt.Errorf("read the household's result: %w", err)
	}
	r.Plan, r.Tune, r.Shapers = shaped, tuned, rates
	for _, l := range r.Loads {
		if l.Call != nil {
			l.Call.LeaveOut(Outages(s.Line, began))
		}
	}
	if c.Router.Mode == scenario.ModeDaemon && c.Router.Daemon.Follow {
		said, err := askDaemon(ctx)
		if err != nil {
			return nil, fmt.Errorf("ask the daemon: %w", err)
		}
		r.ProbeBytes = said.Line.ProbeBytes
		if a.g.Log {
			text, err := os.ReadFile(followLog)
			if err != nil {
				return nil, fmt.Errorf("read what the daemon decided: %w", err)
			}
			r.Followed = &FollowLog{Began: began, Text: string(text)}
		}
	}
	if foreign != nil {
		if err := foreign.undo(ctx, shaped != nil && (tuned == nil || tuned.Kept)); err != nil {
			return nil, err
		}
		r.Router = &foreign.after
	}
	return &r, nil
}

// follows says whether the router's rates change while it is measured.
func follows(mode string) bool {
	return mode == scenario.ModeDaemon || mode == scenario.ModeAutorate || mode == scenario.ModeOracle
}

// fix has the router carry out a shaping by hand, planned and applied by the
// program itself as on any router.
func (a *agent) fix(ctx context.Context, f *scenario.Fix) (*plan.Plan, error) {
	l := a.g.Scenario.Line
	capabilities := plan.Capabilities{Language: linux.Language(), WAN: RouterWAN, LAN: RouterLAN, IFB: true}
	wanted, err := plan.Request(*f).Preferences()
	if err != nil {
		return nil, err
	}
	line, err := plan.Request(*f).Line(l.RTT, len(l.Vary) > 0)
	if err != nil {
		return nil, err
	}
	p, err := plan.Make(line, capabilities, wanted)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	file := filepath.Join("/run", "plan.json")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return nil, err
	}
	_, err = output(a.unbloat(ctx, NodeRouter, "apply", "--yes", file))
	return &p, err
}

// tune has the router find its shaping by itself.
func (a *agent) tune(ctx context.Context) (*plan.Plan, *TuneResult, error) {
	return runTune(a.unbloat(ctx, NodeRouter, append(a.tuneArguments(), "--wan", RouterWAN, "--lan", RouterLAN)...))
}

// tuneArguments are those of `unbloat tune` for the scenario, on any router.
func (a *agent) tuneArguments() []string {
	down, up := FlowsOf(a.g.Scenario)
	args := []string{"tune", "--server", Server(), "--json",
		"--flows-down", strconv.Itoa(down), "--flows-up", strconv.Itoa(up)}
	if goal := a.g.Scenario.Test.Goal; goal > 0 {
		args = append(args, "--goal", goal.String())
	}
	return args
}

// runTune runs a tuning to its end and reads what it found.
func runTune(cmd *exec.Cmd) (*plan.Plan, *TuneResult, error) {
	cmd.Stderr = io.MultiWriter(os.Stderr) // through a pipe: a console would be taken for a terminal
	var out bytes.Buffer
	cmd.Stdout = &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, nil, err
	}
	var t TuneResult
	if err := json.Unmarshal(out.Bytes(), &t); err != nil {
		return nil, nil, fmt.Errorf("unbloat tune ended with %d and without a result", cmd.ProcessState.ExitCode())
	}
	t.ExitCode = cmd.ProcessState.ExitCode()
	return t.Plan, &t, nil
}

// output runs a command and returns what it printed; errors carry what it
// said on standard error.
func output(cmd *exec.Cmd) ([]byte, error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args[3:], " "), err, bytes.TrimSpace(errs.Bytes()))
	}
	return out.Bytes(), nil
}
