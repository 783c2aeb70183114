//go:build !omit_measure

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"unbloat/internal/apply"
	"unbloat/internal/live"
	"unbloat/internal/measure"
	"unbloat/internal/netio"
	"unbloat/internal/plan"
	"unbloat/internal/platform"
	"unbloat/internal/reason"
	"unbloat/internal/report"
	"unbloat/internal/store"
	"unbloat/internal/tune"
	"unbloat/unit"
)

type tuneFlags struct {
	routerFlags
	classFlags
	keepFlags
	serverFlags
	wan, lan, aqm, side string
	linkLayer           string
	overhead            int
	goal                time.Duration
	flowsDown, flowsUp  int
	cc                  string
	persist, plain      bool
	hasTurn             bool // it works for the daemon, which waits
	reportFile, lang    string
}

func newTuneCommand() *cobra.Command {
	var f tuneFlags
	c := &cobra.Command{
		Use:     "tune --server HOST --wan IF",
		GroupID: "main",
		Short:   "Find the shaping that holds the latency goal, and keep it if it is better",
		Long: `Measures the line as it is, searches the highest rates whose latency under load
stays within the goal, checks them against the start, and keeps them only if
they are better. It occupies the line for at most two minutes, or three and a
half with 32 downloads or more at once (--flows-down). If you interrupt it, or
this process dies, everything is as before.

Any server for ` + "`unbloat test --server`" + ` that can be loaded may be used. The best is
` + "`unbloat serve`" + ` at the other end, as its probes show the two directions apart. With
other servers, after a trial with too much delay each direction is loaded alone,
to find out which one has it. If a server's own probes are requests over TCP,
its host is pinged instead, if it answers.`,
		Example: `  unbloat tune --server test.example.net --wan eth0
  unbloat tune --server 192.0.2.1 --wan ppp0 --lan br-lan --persist --report before-after.html
  unbloat tune --server 192.0.2.1 --wan eth0 --goal 10ms --json`,
		Args: exactArgs(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error { return runTune(c, &f) },
	}
	f.routerFlags.register(c)
	f.classFlags.register(c.Flags())
	f.targetFlags.register(c)
	f.keepFlags.register(c)
	fs := c.Flags()
	f.serverFlags.register(fs, "server", serverUsage())
	f.serverFlags.registerPing(fs)
	fs.StringVar(&f.wan, "wan", "", "`IF`, the interface towards the internet (default: that of the default route)")
	fs.StringVar(&f.lan, "lan", "", "`IF`, the interface towards the home")
	fs.StringVar(&f.aqm, "aqm", "", "cake, fq_codel or fifo (default: the best that the kernel has)")
	fs.StringVar(&f.side, "side", "", "where the download is shaped: ifb (the WAN's ingress) or lan (the LAN's egress)")
	fs.StringVar(&f.linkLayer, "link-layer", "", "ethernet, docsis, atm or ptm")
	fs.IntVar(&f.overhead, "overhead", 0, "bytes the line adds to each IP packet (default: the link layer's usual)")
	durationFlag(fs, &f.goal, "goal", 0, "p95 increase to hold (default: the larger of 5ms and 1.5 packet times each way)")
	fs.IntVar(&f.flowsDown, "flows-down", measure.DefaultFlows, "TCP flows that load the download")
	fs.IntVar(&f.flowsUp, "flows-up", measure.DefaultFlows, "TCP flows that load the upload")
	fs.StringVar(&f.cc, "cc", "", "congestion control of the senders")
	plainFlag(fs, &f.plain)
	langFlag(fs, &f.lang)
	fs.BoolVar(&f.hasTurn, "turn-is-held", false, "the daemon runs it, and waits already")
	_ = fs.MarkHidden("turn-is-held")
	fs.BoolVar(&f.persist, "persist", false, "if it is kept, apply it at every boot")
	fs.BoolVar(&f.replace, "replace", false, "take over from a shaper that unbloat did not make; revert puts it back")
	fs.StringVar(&f.reportFile, "report", "", "write the before/after report to `FILE` (.html, .svg, .png, .csv, .json, .flent.gz)")
	return c
}

func (f *tuneFlags) check(ctx context.Context) error {
	if err := f.serverFlags.check(ctx, "tune"); err != nil {
		return err
	}
	for name, n := range map[string]int{"--flows-down": f.flowsDown, "--flows-up": f.flowsUp} {
		if n < 1 || n > maxFlows {
			return usageError("tune: %s %d: must be 1 to %d", name, n, maxFlows)
		}
	}
	if f.reportFile != "" {
		if _, err := report.FormatOf(f.reportFile); err != nil {
			return usageError("tune: --report %w", err)
		}
		if err := checkWritable(f.reportFile); err != nil {
			return usageError("tune: --report: %w", err)
		}
	}
	if _, err := language("tune", f.lang); err != nil {
		return err
	}
	if err := netio.CheckCC(f.cc); err != nil {
		return &exitError{exitPrecondition, fmt.Errorf("tune: --cc: %w", err)}
	}
	return nil
}

func runTune(c *cobra.Command, f *tuneFlags) error {
	if err := f.check(c.Context()); err != nil {
		return err
	}
	if done, err := f.tuneThere(c); done || err != nil {
		return err
	}
	result, at, err := f.tune(c, func(server string) tuneView {
		return viewLine(c, live.NewTune(server, f.mostTime()), f.quiet, f.plain)
	})
	if result == nil {
		return err
	}
	f.save(c, result, at)
	return f.finish(c, result, err)
}

func (f *tuneFlags) mostTime() time.Duration { return tune.MostTime(f.flowsDown, f.flowsUp) }

// A tuneView is shown how a tuning goes.
type tuneView interface {
	observe(measure.Event)
	watch(tune.Stage)
	say(string)
	close()
}

// tune tunes the router of the flags, with c's streams and context. An error
// without a result has its exit code; one with a result is for outcome.
func (f *tuneFlags) tune(c *cobra.Command, show func(server string) tuneView) (*tune.Result, conditions, error) {
	var at conditions
	ctx := c.Context()
	where, err := f.open(ctx)
	if err != nil {
		return nil, at, changeError(err)
	}
	defer where.Close()
	facts, err := where.facts(ctx, f.wan, f.lan)
	if err != nil {
		return nil, at, changeError(err)
	}
	if !f.hasTurn {
		release, err := f.takeTurn(ctx, "tune", facts.WAN, false)
		if err != nil {
			return nil, at, changeError(err)
		}
		defer release()
	}
	router := &tunedRouter{engine: where.engine}
	if f.persist {
		router.keeper = where.keeper
	}
	classes, err := f.classFlags.preferences()
	if err != nil {
		return nil, at, err
	}
	where.names(ctx, classes, &facts)
	prefs := plan.Preferences{AQM: plan.AQM(f.aqm), Side: plan.Side(f.side), Classes: classes}
	wide, err := plan.WideOpen(facts, prefs)
	if err == nil {
		err = where.engine.Rehearse(ctx, wide)
	}
	if err != nil { // before the line is loaded
		return nil, at, changeError(fmt.Errorf("tune: %w", where.lacking(ctx, facts.WAN, err)))
	}
	f.warn(c, wide)
	var client measure.Tester
	var server chosenServer
	err = f.each(use{c: c, command: "tune", often: true, quiet: f.quiet}, func(s chosenServer) (err error) {
		server = s
		client, err = f.dialSteady(ctx, s, "unbloat tune", f.cc)
		return err
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil, at, endedBySignal("tune", err)
		}
		return nil, at, testError("tune", err)
	}
	defer client.Close()
	if err := router.open(ctx, facts, prefs); err != nil {
		return nil, at, changeError(err)
	}
	view := show(server.server)
	result, err := tune.Run(c.Context(), tune.Config{
		Goal: f.goal, Capabilities: facts, Preferences: prefs,
		Line:      plan.Line{LinkLayer: plan.LinkLayer(f.linkLayer), Overhead: f.overhead},
		FlowsDown: f.flowsDown, FlowsUp: f.flowsUp, CC: f.cc, Progress: view.observe, Say: view.say, Watch: view.watch,
	}, client, router)
	view.close()
	at.iface = facts.WAN
	if result.Kept {
		at.plan = result.Plan
	}
	return result, at, err
}

// save keeps the result for `unbloat history`.
func (f *tuneFlags) save(c *cobra.Command, r *tune.Result, at conditions) {
	if r.After != nil {
		f.keep(c, store.KindTune, r, at)
	}
}

// finish prints the result, and returns the error for its exit code.
func (f *tuneFlags) finish(c *cobra.Command, r *tune.Result, err error) error {
	return errors.Join(f.print(c, r), tuneOutcome(c.Context(), r, err))
}

// print prints the result, and writes the report.
func (f *tuneFlags) print(c *cobra.Command, r *tune.Result) (err error) {
	if f.reportFile != "" && r.Before != nil {
		if e := report.WriteFile(f.reportFile, tunePage(r)); e != nil {
			err = errors.Join(err, e)
		} else if !f.quiet {
			fmt.Fprintln(c.ErrOrStderr(), "report:", f.reportFile)
		}
	}
	if f.json {
		if e := json.NewEncoder(c.OutOrStdout()).Encode(r); e != nil {
			err = errors.Join(err, e)
		}
	} else if l, e := language("tune", f.lang); e != nil {
		err = errors.Join(err, e)
	} else if e := printTune(c.OutOrStdout(), l, r); e != nil {
		err = errors.Join(err, e)
	}
	return err
}

// tuneOutcome returns the error for a tuning's exit code.
func tuneOutcome(ctx context.Context, r *tune.Result, err error) error {
	switch {
	case errors.Is(err, tune.ErrInvalid) && undone(err):
		return &exitError{exitInvalid, fmt.Errorf("tune: %w; nothing was kept", err)}
	case err != nil && ctx.Err() != nil:
		return endedBySignal("tune", err)
	case err != nil:
		return changeError(fmt.Errorf("tune: %w", err))
	case !r.Kept:
		return &exitError{exitNoBetter, fmt.Errorf("tune: nothing was kept: %s", r.Reason)}
	}
	return nil
}

// tunePage is the report of a tuning.
func tunePage(r *tune.Result) report.Page {
	p := report.Page{Before: r.Before, After: r.After, Plan: r.Plan, Goal: unit.FromMs(r.GoalMs)}
	for i, t := range r.Trials {
		outcome := fmt.Sprintf("p95 rises by %.1f ms: too much", t.IncreaseMs)
		if t.Held {
			outcome = fmt.Sprintf("p95 rises by %.1f ms: holds the goal", t.IncreaseMs)
		}
		p.Steps = append(p.Steps, report.Step{Name: fmt.Sprintf("trial %d", i+1), Down: t.Down, Up: t.Up, Outcome: outcome})
	}
	if r.Reason != "" {
		verb := "Kept"
		if !r.Kept {
			verb = "Undone"
		}
		p.Notes = append(p.Notes, verb+": "+r.Reason+".")
	}
	return p
}

// printTune prints the before → after table and the outcome.
func printTune(w io.Writer, l *reason.Language, r *tune.Result) error {
	switch {
	case r.Before == nil:
		return nil
	case r.After == nil:
		return report.TestTableIn(w, l, r.Before)
	}
	if err := report.TableIn(w, l, r.Before, r.After); err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString("\n" + l.Say(reason.LineCarries, "down_bps", float64(r.LineDownBps), "up_bps", float64(r.LineUpBps)))
	if p := r.Plan; p != nil {
		b.WriteString(l.Say(reason.ShapedTo, "aqm", string(p.AQM), "down_bps", float64(p.DownBps), "up_bps", float64(p.UpBps)) + "\n")
	}
	if r.Kept {
		b.WriteString(l.Say(reason.KeptLine, "why", r.Why(l)) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// tuneHold limits a tuning: if this process hangs, the watchdog undoes the
// change after that time. If the process dies, the watchdog undoes it at once.
const tuneHold = 10 * time.Minute

// tunedRouter is the router for the tuner: one transaction, open until the end.
type tunedRouter struct {
	engine *apply.Engine
	keeper platform.Keeper // nil: the shaping need not be persistent
	held   *apply.Transaction
}

// open raises the rates of a shaper that unbloat has committed before far above
// the line's, so that the line itself is measured.
func (r *tunedRouter) open(ctx context.Context, facts plan.Capabilities, w plan.Preferences) error {
	rec, err := r.engine.Record(facts.WAN)
	if err != nil || rec == nil {
		return err
	}
	p, err := plan.WideOpen(facts, w)
	if err != nil {
		return err
	}
	return r.Shape(ctx, p)
}

// Shape applies the plan. From the second time on it changes the shaper in
// place.
func (r *tunedRouter) Shape(ctx context.Context, p plan.Plan) error {
	if r.held != nil {
		err := r.held.Retune(ctx, p)
		if err != nil {
			r.held = nil // it was reverted completely
		}
		return err
	}
	t, err := r.engine.Begin(ctx, p, apply.Options{Confirm: tuneHold, Hold: true})
	if err == nil {
		r.held = t
	}
	return err
}

// Commit keeps the applied plan. If that fails, Revert undoes it.
func (r *tunedRouter) Commit(ctx context.Context, p plan.Plan) error {
	if r.keeper != nil {
		if err := r.keeper.Keep(ctx, p); err != nil {
			return err
		}
	}
	if err := r.held.Commit(); err != nil {
		return err
	}
	r.held.Close()
	r.held = nil
	return nil
}

// Revert undoes everything since the start, if anything was changed.
func (r *tunedRouter) Revert(ctx context.Context) error {
	if r.held == nil {
		return nil
	}
	t := r.held
	r.held = nil
	err := t.Revert(ctx)
	t.Close()
	return err
}
