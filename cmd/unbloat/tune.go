package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/tune"
	"unbloat/internal/keep/daemon"
	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/phases"
	"unbloat/internal/show/cli"
	"unbloat/internal/show/report"
	"unbloat/unit"
)

type tuneFlags struct {
	routerFlags
	classFlags
	keepFlags
	serverFlags
	eventFlags
	wan, lan, aqm, side string
	linkLayer           string
	overhead            int
	framing             string
	goal                time.Duration
	flowsDown, flowsUp  int
	cc                  string
	persist, plain      bool
	reportFile, lang    string
}

func newTuneCommand() *cobra.Command {
	var f tuneFlags
	c := &cobra.Command{
		Use:     "tune",
		GroupID: "main",
		Short:   "Find the shaping that holds the latency goal, and keep it if it is better",
		Long: `Measures the line as it is, searches the highest rates whose latency under load
stays within the goal, checks them against the start, and keeps them only if
they are better. It occupies the line for at most two minutes, or three and a
half with 32 downloads or more at once (--flows-down), and up to 25 s more to
measure what the line adds to each packet, if you have not said it and the server
runs ` + "`unbloat serve`" + `. If you interrupt it, or this process dies, everything
is as before.

Without --server it uses a public server, as ` + "`unbloat test`" + ` does, and says which.
Any server for ` + "`unbloat test --server`" + ` that can be loaded may be used. The best is
` + "`unbloat serve`" + ` at the other end, as its probes show the two directions apart. With
other servers, after a trial with too much delay each direction is loaded alone,
to find out which one has it. If a server's own probes are requests over TCP,
its host is pinged instead, if it answers.`,
		Example: `  unbloat tune
  unbloat tune --server test.example.net --wan eth0
  unbloat tune --server 192.0.2.1 --wan ppp0 --lan br-lan --persist --report before-after.html
  unbloat tune --server 192.0.2.1 --wan eth0 --goal 10ms --json`,
		Args: cli.ExactArgs(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			return f.tell(c, func() (any, error) { return runTune(c, &f) })
		},
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
	fs.StringVar(&f.framing, "framing", "", "what the line adds to each packet: `TEXT` that an earlier tuning printed (default: that of the plan in force); measured again if the line's rate has changed")
	cli.DurationFlag(fs, &f.goal, "goal", 0, "p95 increase to hold (default: the larger of 5ms and 1.5 packet times each way)")
	fs.IntVar(&f.flowsDown, "flows-down", phases.DefaultFlows, "TCP flows that load the download")
	fs.IntVar(&f.flowsUp, "flows-up", phases.DefaultFlows, "TCP flows that load the upload")
	fs.StringVar(&f.cc, "cc", "", "congestion control of the senders")
	f.eventFlags.register(fs)
	plainFlag(fs, &f.plain)
	langFlag(fs, &f.lang)
	fs.BoolVar(&f.persist, "persist", false, "if it is kept, apply it at every boot")
	fs.BoolVar(&f.replace, "replace", false, "take over from a shaper that unbloat did not make; revert puts it back")
	fs.StringVar(&f.reportFile, "report", "", "write the before/after report to `FILE` (.html, .svg, .png, .csv, .json, .flent.gz)")
	return c
}

func (f *tuneFlags) check(ctx context.Context) error {
	if f.server == "" {
		f.server = defaultServer
	}
	if err := f.serverFlags.check(ctx, "tune"); err != nil {
		return err
	}
	for name, n := range map[string]int{"--flows-down": f.flowsDown, "--flows-up": f.flowsUp} {
		if n < 1 || n > maxFlows {
			return cli.UsageError("tune: %s %d: must be 1 to %d", name, n, maxFlows)
		}
	}
	if f.reportFile != "" {
		if err := checkReport("tune: --report", f.reportFile); err != nil {
			return err
		}
		if err := cli.CheckWritable(f.reportFile); err != nil {
			return cli.UsageError("tune: --report: %w", err)
		}
	}
	if _, err := language("tune", f.lang); err != nil {
		return err
	}
	if err := netio.CheckCC(f.cc); err != nil {
		return cli.Exit(cli.Precondition, fmt.Errorf("tune: --cc: %w", err))
	}
	return nil
}

func runTune(c *cobra.Command, f *tuneFlags) (any, error) {
	if err := f.check(c.Context()); err != nil {
		return nil, err
	}
	result, wan, err := f.tuneThere(c)
	if result == nil && err == nil {
		if result, wan, err = f.tune(c); result != nil {
			err = tuneOutcome(c.Context(), result, err)
		}
	}
	if result == nil {
		return nil, err
	}
	if result.After != nil {
		at := conditions{iface: wan}
		if result.Kept {
			at.plan = result.Plan
		}
		f.keep(c, result, at)
	}
	return result, errors.Join(f.print(c, result), err)
}

// shown starts to show how the tuning goes.
func (f *tuneFlags) shown(c *cobra.Command, server string) progress {
	return f.view(c, measuredLine{server: server, most: tune.MostTime(f.flowsDown, f.flowsUp)}, f.quiet, f.plain)
}

// tuneThere tunes through a running daemon; without a result and an error none keeps the
// WAN.
func (f *tuneFlags) tuneThere(c *cobra.Command) (result *tune.Result, wan string, err error) {
	if f.turn != "" {
		return nil, "", nil
	}
	s, err := f.kept(c.Context())
	if err != nil || s == nil {
		return nil, "", err
	}
	if wan = f.wan; wan == "" && len(s.WANs) == 1 {
		wan = s.WANs[0].WAN
	}
	if !slices.ContainsFunc(s.WANs, func(w daemon.WANStatus) bool { return w.WAN == wan }) {
		return nil, "", nil
	}
	classes := f.classes
	switch classes {
	case "", plan.ClassesOn, plan.ClassesOff:
	default: // a file: the daemon works elsewhere
		if classes, err = filepath.Abs(classes); err != nil {
			return nil, "", err
		}
	}
	is, err := f.runThere(c.Context(), daemon.MethodTune, wan, daemon.TuneParams{
		Server: f.server, Ping: f.ping, Pin: f.pin, Key: f.key, Insecure: f.insecure, Goal: unit.Milliseconds(f.goal),
		AQM: f.aqm, Side: f.side, LAN: f.lan, Classes: classes, Classifier: f.classifier, Rules: f.rules, LinkLayer: f.linkLayer, Overhead: f.overhead, Framing: f.framing,
		FlowsDown: f.flowsDown, FlowsUp: f.flowsUp, CC: f.cc, Replace: f.replace,
	}, func() progress { return f.shown(c, f.server) }, &result)
	switch {
	case err != nil:
		return nil, "", changeError(err)
	case is == nil:
		return nil, "", nil
	}
	return result, wan, runError(is)
}

// tune tunes the router of the flags, with c's streams and context. An error
// without a result has its exit code; one with a result is for tuneOutcome.
func (f *tuneFlags) tune(c *cobra.Command) (result *tune.Result, wan string, err error) {
	ctx := c.Context()
	where, err := f.open(ctx)
	if err != nil {
		return nil, "", changeError(err)
	}
	defer where.Close()
	caps, err := where.capabilities(ctx, f.wan, f.lan)
	if err != nil {
		return nil, "", changeError(err)
	}
	if f.turn == "" {
		release, err := f.takeTurn(ctx, "tune", caps.WAN, false)
		if err != nil {
			return nil, "", changeError(err)
		}
		defer release()
	}
	if err := f.lasts(where, f.persist); err != nil {
		return nil, "", err
	}
	router := &tunedRouter{engine: where.engine}
	if f.persist {
		router.persister = where.persister
	}
	classes, err := f.classFlags.preferences()
	if err != nil {
		return nil, "", err
	}
	where.names(ctx, classes, &caps)
	prefs := plan.Preferences{AQM: plan.AQM(f.aqm), Side: plan.Side(f.side), Classes: classes}
	wide, err := plan.WideOpen(caps, prefs)
	if err == nil {
		err = where.engine.Rehearse(ctx, wide)
	}
	if err != nil { // before the line is loaded
		return nil, "", changeError(fmt.Errorf("tune: %w", where.lacking(ctx, caps.WAN, err)))
	}
	f.warn(c, wide)
	line, err := f.line(where.engine, caps.WAN)
	if err != nil {
		return nil, "", err
	}
	var client phases.Tester
	var server chosenServer
	err = f.each(use{c: c, command: "tune", often: true, quiet: f.quiet}, func(s chosenServer) (err error) {
		server = s
		client, err = f.dialSteady(ctx, s, "unbloat tune", f.cc)
		return err
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil, "", endedBySignal("tune", err)
		}
		return nil, "", testError("tune", err)
	}
	defer client.Close()
	if err := router.open(ctx, caps, prefs); err != nil {
		return nil, "", changeError(err)
	}
	view := f.shown(c, server.server)
	result, err = tune.Run(c.Context(), tune.Config{
		Goal: f.goal, Capabilities: caps, Preferences: prefs,
		Line:      line,
		FlowsDown: f.flowsDown, FlowsUp: f.flowsUp, CC: f.cc,
		Progress: func(e phases.Event) { view.see(daemon.RunEvent{Phase: &e}) },
		Watch:    func(s tune.Stage) { view.see(daemon.RunEvent{Stage: &s}) },
		Say:      func(line string) { view.see(daemon.RunEvent{Say: line}) },
	}, client, router)
	view.close()
	return result, caps.WAN, err
}

// line is what is known of the line: what was given, or the framing that the plan in force
// was made with, if it was measured.
func (f *tuneFlags) line(engine *apply.Engine, wan string) (plan.Line, error) {
	line := plan.Line{LinkLayer: plan.LinkLayer(f.linkLayer), Overhead: f.overhead}
	if f.linkLayer != "" || f.overhead != 0 {
		return line, nil
	}
	if f.framing != "" {
		line, err := line.WithFramingText(f.framing)
		if err != nil {
			return line, cli.UsageError("tune: --framing: %w", err)
		}
		return line, nil
	}
	rec, err := engine.Record(wan)
	if err != nil {
		return line, changeError(err)
	}
	if rec != nil && rec.Plan.Basis != nil && rec.Plan.Basis.Line.Measured {
		line = rec.Plan.Basis.Line
		line.Down, line.Up, line.RTT = 0, 0, 0
	}
	return line, nil
}

// print prints the result, and writes the report.
func (f *tuneFlags) print(c *cobra.Command, r *tune.Result) (err error) {
	if f.reportFile != "" && r.Before != nil {
		if e := writeTuneReport(f.reportFile, r); e != nil {
			err = errors.Join(err, e)
		} else if !f.quiet {
			fmt.Fprintln(c.ErrOrStderr(), "report:", f.reportFile)
		}
	}
	if f.events {
		return err // it is the last of them
	}
	if f.json {
		if e := json.NewEncoder(c.OutOrStdout()).Encode(r); e != nil {
			err = errors.Join(err, e)
		}
	} else if l, e := language("tune", f.lang); e != nil {
		err = errors.Join(err, e)
	} else if e := report.TuningIn(c.OutOrStdout(), l, r, cli.TerminalWidth(c.OutOrStdout())); e != nil {
		err = errors.Join(err, e)
	}
	return err
}

// tuneOutcome returns the error for a tuning's exit code.
func tuneOutcome(ctx context.Context, r *tune.Result, err error) error {
	switch {
	case errors.Is(err, tune.ErrInvalid) && undone(err):
		return cli.Exit(cli.Invalid, fmt.Errorf("tune: %w; nothing was kept", err))
	case err != nil && ctx.Err() != nil:
		return endedBySignal("tune", err)
	case err != nil:
		return changeError(fmt.Errorf("tune: %w", err))
	case !r.Kept:
		return cli.Exit(cli.NoBetter, fmt.Errorf("tune: nothing was kept: %s", r.Reason))
	}
	return nil
}

// tuneHold limits a tuning: if this process hangs, the watchdog undoes the
// change after that time. If the process dies, the watchdog undoes it at once.
const tuneHold = 10 * time.Minute

// tunedRouter is the router for the tuner: one transaction, open until the end.
type tunedRouter struct {
	engine    *apply.Engine
	persister platform.Persister // nil: the shaping need not be persistent
	held      *apply.Transaction
}

// open raises the rates of a shaper that unbloat has committed before far above
// the line's, so that the line itself is measured.
func (r *tunedRouter) open(ctx context.Context, caps plan.Capabilities, w plan.Preferences) error {
	rec, err := r.engine.Record(caps.WAN)
	if err != nil || rec == nil {
		return err
	}
	p, err := plan.WideOpen(caps, w)
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
	if r.persister != nil {
		if err := r.persister.Persist(ctx, p); err != nil {
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
