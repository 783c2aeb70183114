//go:build !omit_measure && !omit_daemon

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"unbloat/internal/daemon"
	kept "unbloat/internal/daemon/config"
	"unbloat/internal/measure"
	"unbloat/internal/probe"
	"unbloat/internal/store"
	"unbloat/internal/tune"
	"unbloat/unit"
)

// offerWork gives the daemon what measures and tunes.
func offerWork(o *daemon.Options, f *daemonFlags) { o.Work = f.work }

// canWork reports whether the daemon can measure.
func canWork() bool { return true }

// checkWork refuses what this build can't do of the top level of a configuration.
func checkWork(ctx context.Context, c kept.Config, file string) error {
	if c.Server == "" {
		return nil
	}
	if err := checkServer(ctx, c.Server); err != nil {
		return c.At(file, "server", err)
	}
	return nil
}

// work does a job of the daemon.
func (f *daemonFlags) work(ctx context.Context, j daemon.Job) (result any, exitCode int, err error) {
	if j.Tune != nil {
		return f.workTune(ctx, j, *j.Tune)
	}
	return f.workTest(ctx, j, *j.Test)
}

// quietCommand is a command without a terminal, whose lines for people go to the run.
func quietCommand(ctx context.Context, j daemon.Job) *cobra.Command {
	c := &cobra.Command{}
	c.SetContext(ctx)
	c.SetIn(strings.NewReader(""))
	c.SetOut(io.Discard)
	c.SetErr(&sayer{say: func(line string) { j.Report(daemon.RunEvent{Say: line}) }})
	return c
}

// A sayer says whole lines.
type sayer struct {
	mu   sync.Mutex
	rest string
	say  func(line string)
}

func (s *sayer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest += string(b)
	for {
		line, rest, whole := strings.Cut(s.rest, "\n")
		if !whole {
			return len(b), nil
		}
		s.rest = rest
		if line != "" {
			s.say(line)
		}
	}
}

// aRun shows the daemon's clients how a test or a tuning goes.
type aRun struct{ report func(daemon.RunEvent) }

func (r aRun) observe(e measure.Event) {
	p := daemon.RunPhase{
		Phase: e.Phase, Elapsed: e.Elapsed.Seconds(), Duration: e.Duration.Seconds(), Head: e.Head.Seconds(), RTTMs: unit.Ms(e.RTT),
		FlowsDown: e.FlowsDown, FlowsUp: e.FlowsUp, Down: e.Down, Up: e.Up, Draining: e.Draining,
	}
	for _, a := range e.Answers {
		p.Answers = append(p.Answers, daemon.RunAnswer{Sent: a.Sent.Seconds(), RTTMs: unit.Ms(a.RTT)})
	}
	r.report(daemon.RunEvent{Phase: &p})
}

func (r aRun) say(line string) { r.report(daemon.RunEvent{Say: line}) }

func (r aRun) close() {}

// doings are what a tuning does, in the daemon's words.
func doings() map[tune.Doing]daemon.RunDoing {
	return map[tune.Doing]daemon.RunDoing{tune.AsItIs: daemon.RunAsItIs, tune.Trying: daemon.RunTrying, tune.Checking: daemon.RunChecking, tune.Deciding: daemon.RunDeciding}
}

func (r aRun) watch(s tune.Stage) {
	out := daemon.RunStage{
		Doing: doings()[s.Doing], Down: s.Rates.Down, Up: s.Rates.Up, GoalMs: unit.Ms(s.Goal), AsFoundMs: s.AsFound,
		LineDown: s.Line.Down, LineUp: s.Line.Up, Trials: []daemon.RunTrial{},
		DownFrom: s.Down.From, DownTo: s.Down.To, UpFrom: s.Up.From, UpTo: s.Up.To,
	}
	for _, t := range s.Trials {
		out.Trials = append(out.Trials, daemon.RunTrial{Down: t.Down, Up: t.Up, IncreaseMs: t.IncreaseMs, DownMs: t.DownMs, UpMs: t.UpMs, Held: t.Held, Unproven: t.Unproven})
	}
	r.report(daemon.RunEvent{Stage: &out})
}

// eventOf is the opposite of observe.
func eventOf(p daemon.RunPhase) measure.Event {
	e := measure.Event{
		Phase: p.Phase, Elapsed: seconds(p.Elapsed), Duration: seconds(p.Duration), Head: seconds(p.Head), RTT: unit.FromMs(p.RTTMs),
		FlowsDown: p.FlowsDown, FlowsUp: p.FlowsUp, Down: p.Down, Up: p.Up, Draining: p.Draining,
	}
	for _, a := range p.Answers {
		e.Answers = append(e.Answers, measure.Answer{Sent: seconds(a.Sent), RTT: unit.FromMs(a.RTTMs)})
	}
	return e
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// stageOf is the opposite of watch.
func stageOf(p daemon.RunStage) tune.Stage {
	s := tune.Stage{
		Rates: tune.Rates{Down: p.Down, Up: p.Up}, Goal: unit.FromMs(p.GoalMs), AsFound: p.AsFoundMs, Line: tune.Rates{Down: p.LineDown, Up: p.LineUp},
		Down: tune.Bounds{From: p.DownFrom, To: p.DownTo}, Up: tune.Bounds{From: p.UpFrom, To: p.UpTo},
	}
	for doing, is := range doings() {
		if is == p.Doing {
			s.Doing = doing
		}
	}
	for _, t := range p.Trials {
		s.Trials = append(s.Trials, tune.Trial{Rates: tune.Rates{Down: t.Down, Up: t.Up}, IncreaseMs: t.IncreaseMs, DownMs: t.DownMs, UpMs: t.UpMs, Held: t.Held, Unproven: t.Unproven})
	}
	return s
}

// workTune tunes a WAN.
func (f *daemonFlags) workTune(ctx context.Context, j daemon.Job, p daemon.TuneParams) (any, int, error) {
	w := j.WAN
	t := tuneFlags{
		routerFlags: routerFlags{targetFlags: targetFlags{router: w.Router, platform: w.Platform, ownTC: true}, stateDir: f.stateDir, replace: p.Replace},
		classFlags:  classFlags{classes: first(p.Classes, w.Classes), classifier: first(p.Classifier, string(w.Classifier)), rules: p.Rules},
		keepFlags:   keepFlags{storeFlag: storeFlag{file: j.Store}, noStore: j.Store == ""},
		serverFlags: serverFlags{flag: "server", server: first(p.Server, j.Server), ping: p.Ping, pin: p.Pin, key: p.Key, insecure: p.Insecure},
		wan:         w.Interface, lan: first(p.LAN, w.LAN), aqm: first(p.AQM, string(w.AQM)), side: first(p.Side, string(w.Side)),
		linkLayer: first(p.LinkLayer, string(w.LinkLayer)), overhead: first(p.Overhead, w.Overhead),
		goal: first(unit.FromMs(p.GoalMs), w.Goal), flowsDown: first(p.FlowsDown, measure.DefaultFlows), flowsUp: first(p.FlowsUp, measure.DefaultFlows),
		cc: p.CC, hasTurn: true,
	}
	if t.server == "" {
		t.server = defaultServer
	}
	c := quietCommand(ctx, j)
	if err := t.check(ctx); err != nil {
		return nil, codeOfExit(err), err
	}
	result, at, err := t.tune(c, func(string) tuneView { return aRun{j.Report} })
	if result == nil {
		return nil, codeOfExit(err), err
	}
	t.save(c, result, at)
	err = tuneOutcome(ctx, result, err)
	return result, codeOfExit(err), err
}

// codeOfExit returns the exit code that the program would have with an error.
func codeOfExit(err error) int {
	var e *exitError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &e):
		return e.code
	}
	return exitFailed
}

// workTest measures.
func (f *daemonFlags) workTest(ctx context.Context, j daemon.Job, p daemon.TestParams) (any, int, error) {
	o := testFlags{
		keepFlags:   keepFlags{storeFlag: storeFlag{file: j.Store}, noStore: j.Store == ""},
		serverFlags: serverFlags{flag: "server", server: first(p.Server, j.Server), ping: p.Ping, pin: p.Pin, key: p.Key, insecure: p.Insecure},
		label:       p.Label, cc: p.CC, flows: first(p.Flows, measure.DefaultFlows), size: first(p.ProbeBytes, int(probe.MinSize)), runs: first(p.Runs, 1),
		load: first(seconds(p.Seconds), measure.DefaultLoad), idle: first(seconds(p.Idle), measure.DefaultIdle), interval: first(unit.FromMs(p.IntervalMs), measure.DefaultInterval),
		profile: p.Profile, isolate: p.Isolate, ownInterval: p.IntervalMs != 0,
	}
	if err := o.check(ctx); err != nil {
		return nil, codeOfExit(err), err
	}
	c := quietCommand(ctx, j)
	test, interrupted, err := o.measure(c, func(string) testView { return aRun{j.Report} })
	if err != nil {
		err = testError("test", err)
		return nil, codeOfExit(err), err
	}
	if !interrupted { // half of one tells nobody anything
		o.keep(c, store.KindTest, test, conditions{iface: j.WAN.Interface, stateDir: f.stateDir})
	}
	switch {
	case interrupted:
		err = &exitError{exitFailed, fmt.Errorf("test against %s: interrupted", test.Server)}
	case !test.Valid:
		err = &exitError{exitInvalid, fmt.Errorf("test against %s: the measurement is not valid", test.Server)}
	}
	return test, codeOfExit(err), err
}
