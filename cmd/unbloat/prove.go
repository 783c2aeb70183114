package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/prove"
	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/verdict"
	"unbloat/internal/show/cli"
)

// proveFlags are the flags of `unbloat prove`.
type proveFlags struct {
	routerFlags
	keepFlags
	serverFlags
	wan, lan, aqm        string
	between, plan, label string
	phase, cc            string
	rateFlags
	pairs              int
	load, idle         time.Duration
	flowsDown, flowsUp int
	seed               uint64
}

func newProveCommand() *cobra.Command {
	var f proveFlags
	c := &cobra.Command{
		Use:     "prove --server HOST --wan IF",
		GroupID: "main",
		Short:   "Prove with interleaved pairs that the shaping is better, and show its price",
		Long: `Measures the line in pairs, without and with the shaping, in an order that
favours neither, and says with a 95 % interval how the p95 round trip under
load changed, and what it costs in throughput. It says "improved" only if the
whole interval is better. Everything is undone at the end, also if it is
interrupted or this process dies; what was committed before is restored.

The shaping is that of --plan FILE, of --down and --up, or what is committed on
the interface. --between names the two sides: none, plan, cake, fq_codel, fifo,
ecn, noecn. ECN shows only if the machines at both ends use it.`,
		Example: `  unbloat prove --server test.example.net --wan eth0
  unbloat prove --server 192.0.2.1 --wan eth0 --shape-down 28mbit --shape-up 4.6mbit --pairs 8
  unbloat prove --server 192.0.2.1 --router ssh://root@192.168.1.1 --wan eth0
  unbloat prove --server 192.0.2.1 --wan eth0 --between cake,fq_codel --json`,
		Args: cli.ExactArgs(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error { return runProve(c, &f) },
	}
	f.routerFlags.register(c)
	f.targetFlags.register(c)
	f.keepFlags.register(c)
	fs := c.Flags()
	f.serverFlags.register(fs, "server", serverUsage())
	f.serverFlags.registerPing(fs)
	fs.StringVar(&f.wan, "wan", "", "`IF`, the interface towards the internet (default: that of the default route)")
	fs.StringVar(&f.lan, "lan", "", "`IF`, the interface towards the home")
	fs.StringVar(&f.between, "between", prove.DefaultBetween, "the two `SIDES`; the second is judged against the first")
	fs.StringVar(&f.plan, "plan", "", "`PLAN`, from \"unbloat plan --json\", or - for standard input")
	f.rateFlags.register(fs)
	fs.StringVar(&f.aqm, "aqm", "", "cake, fq_codel or fifo, with --down and --up (default: the best that the kernel has)")
	fs.IntVar(&f.pairs, "pairs", verdict.MinPairs, "pairs to measure")
	secondsFlag(fs, &f.load, "seconds", prove.DefaultLoad, "how long each of the two legs of a pair lasts")
	secondsFlag(fs, &f.idle, "idle", prove.DefaultIdle, "how long the idle line is measured, once")
	fs.StringVar(&f.phase, "load", verdict.PhaseBoth, "what loads the line: download, upload or both")
	fs.IntVar(&f.flowsDown, "flows-down", phases.DefaultFlows, "TCP flows that load the download")
	fs.IntVar(&f.flowsUp, "flows-up", phases.DefaultFlows, "TCP flows that load the upload")
	fs.StringVar(&f.cc, "cc", "", "congestion control of the senders")
	fs.StringVar(&f.label, "label", "", "what to call this proof")
	fs.Uint64Var(&f.seed, "seed", 0, "seed of the random order of the legs (default: a new one each time)")
	fs.BoolVar(&f.replace, "replace", false, "take over from a shaper that unbloat did not make; it is put back")
	return c
}

// maxPairs is the largest number of pairs.
const maxPairs = 100

func (f *proveFlags) check(ctx context.Context) (names [2]string, err error) {
	names, err = prove.SideNames(f.between)
	switch {
	case err != nil:
		return names, cli.UsageError("prove: --between: %w", err)
	case f.pairs < verdict.MinPairs || f.pairs > maxPairs:
		return names, cli.UsageError("prove: --pairs %d: must be %d to %d; fewer prove nothing", f.pairs, verdict.MinPairs, maxPairs)
	case f.load < 2*time.Second || f.load > maxLoad:
		return names, cli.UsageError("prove: --seconds %v: must be 2s to %v", f.load, maxLoad)
	case f.idle < time.Second || f.idle > maxLoad:
		return names, cli.UsageError("prove: --idle %v: must be 1s to %v", f.idle, maxLoad)
	case f.phase != verdict.PhaseBoth && f.phase != verdict.PhaseDownload && f.phase != verdict.PhaseUpload:
		return names, cli.UsageError("prove: --load %q: must be download, upload or both", f.phase)
	case f.plan != "" && (f.rateFlags.given() || f.aqm != ""):
		return names, cli.UsageError("prove: give --plan, or --down, --up and --aqm, not both")
	case f.aqm != "" && !f.rateFlags.given():
		return names, cli.UsageError("prove: --aqm goes with --down and --up")
	}
	for name, n := range map[string]int{"--flows-down": f.flowsDown, "--flows-up": f.flowsUp} {
		if n < 1 || n > maxFlows {
			return names, cli.UsageError("prove: %s %d: must be 1 to %d", name, n, maxFlows)
		}
	}
	if err := f.serverFlags.check(ctx, "prove"); err != nil {
		return names, err
	}
	if err := netio.CheckCC(f.cc); err != nil {
		return names, cli.Exit(cli.Precondition, fmt.Errorf("prove: --cc: %w", err))
	}
	return names, nil
}

func runProve(c *cobra.Command, f *proveFlags) error {
	names, err := f.check(c.Context())
	if err != nil {
		return err
	}
	ctx := c.Context()
	router, err := f.open(ctx)
	if err != nil {
		return changeError(err)
	}
	defer router.Close()
	engine := router.engine
	caps, err := router.capabilities(ctx, f.wan, f.lan)
	if err != nil {
		return changeError(err)
	}
	release, err := f.takeTurn(ctx, "prove", caps.WAN, false)
	if err != nil {
		return changeError(err)
	}
	defer release()
	sides, err := f.sides(ctx, c.InOrStdin(), names, caps, router)
	for _, s := range sides { // before the line is loaded
		if err == nil && s.Plan != nil {
			err = engine.Rehearse(ctx, *s.Plan)
			f.warn(c, *s.Plan)
		}
	}
	if err != nil {
		return changeError(router.lacking(ctx, caps.WAN, err))
	}
	var client phases.Tester
	err = f.each(use{c: c, command: "prove", often: true, quiet: f.quiet}, func(s chosenServer) (err error) {
		client, err = f.dialSteady(ctx, s, "unbloat prove", f.cc)
		return err
	})
	if err != nil {
		return testError("prove", err)
	}
	defer client.Close()
	if f.seed == 0 {
		f.seed = uint64(time.Now().UnixNano())
	}
	progress := progressTo(c.ErrOrStderr(), f.quiet)
	result, err := prove.Run(ctx, prove.Config{
		Sides: sides, WAN: caps.WAN, Label: f.label, Pairs: f.pairs, Load: f.load, Idle: f.idle, Phase: f.phase,
		FlowsDown: f.flowsDown, FlowsUp: f.flowsUp, CC: f.cc, Seed: f.seed, Progress: progress.show,
		Say: func(line string) {
			progress.clear()
			if !f.quiet {
				fmt.Fprintln(c.ErrOrStderr(), line)
			}
		},
	}, client, prove.NewHeld(engine, caps.WAN, sides, f.load))
	progress.clear()
	return f.finish(c, result, err)
}

// sides makes the two sides from the plan of the flags.
func (f *proveFlags) sides(ctx context.Context, stdin io.Reader, names [2]string, caps plan.Capabilities, r *router) ([2]prove.Side, error) {
	var base plan.Plan
	if prove.NeedPlan(names) {
		var err error
		if base, err = f.base(ctx, stdin, caps, r); err != nil {
			return [2]prove.Side{}, err
		}
		if base.WAN != caps.WAN {
			return [2]prove.Side{}, cli.UsageError("prove: the plan is for %s, and --wan is %s", base.WAN, caps.WAN)
		}
	}
	sides, err := prove.Sides(names, base)
	var side *prove.SideError
	if errors.As(err, &side) {
		return sides, cli.UsageError("prove: %w", err)
	}
	return sides, err
}

// base returns the plan of --plan, of --down and --up, or the committed one.
func (f *proveFlags) base(ctx context.Context, stdin io.Reader, caps plan.Capabilities, r *router) (plan.Plan, error) {
	switch {
	case f.plan != "":
		p, err := readPlan(stdin, f.plan)
		return p.WithInterfaces(r.named(ctx)), err
	case f.rateFlags.given():
		return plan.Make(f.rateFlags.line, caps, plan.Preferences{AQM: plan.AQM(f.aqm), Down: f.shapeDown, Up: f.shapeUp})
	}
	rec, err := r.engine.Record(caps.WAN)
	if err != nil {
		return plan.Plan{}, err
	}
	if rec == nil {
		return plan.Plan{}, &platform.PreconditionError{Doing: "prove the shaping of " + caps.WAN, What: "no plan is committed there",
			Remedy: "find one with `unbloat tune`, or give --down and --up, or --plan FILE"}
	}
	return rec.Plan, nil
}

// finish prints and saves the result, and returns the error for its exit code.
func (f *proveFlags) finish(c *cobra.Command, r *prove.Result, err error) error {
	switch {
	case err != nil && c.Context().Err() != nil:
		return endedBySignal("prove", err)
	case errors.Is(err, prove.ErrInvalid) && undone(err):
		return cli.Exit(cli.Invalid, fmt.Errorf("prove: %w; everything is as it was", err))
	case err != nil:
		return changeError(fmt.Errorf("prove: %w", err))
	}
	if f.json {
		err = cli.PrintJSON(c.OutOrStdout(), r)
	} else {
		err = printProof(c.OutOrStdout(), r)
	}
	if err != nil {
		return err
	}
	f.keep(c, r, conditions{iface: r.WAN, plan: r.Sides[1].Plan})
	switch r.Outcome {
	case verdict.Improved:
		return nil
	case verdict.Unproved:
		return cli.Exit(cli.Invalid, errors.New("prove: "+r.Sentence))
	}
	return cli.Exit(cli.NoBetter, fmt.Errorf("prove: %s", r.Outcome))
}

// undone reports whether what a command tried out was undone when it ended with err.
func undone(err error) bool {
	var undo *apply.UndoError
	return !errors.As(err, &undo)
}

// endedBySignal is how a command ends that a signal ended.
func endedBySignal(command string, err error) error {
	if !undone(err) {
		return cli.Exit(cli.Failed, fmt.Errorf("%s: %w: %w", command, cli.ErrInterrupted, err))
	}
	return cli.Exit(cli.Failed, fmt.Errorf("%s: %w; everything is as it was", command, cli.ErrInterrupted))
}

// printProof prints the proof for a terminal.
func printProof(out io.Writer, r *prove.Result) error {
	w := cli.Fit(out)
	fmt.Fprintln(w, r.Sentence)
	if r.PairsUsed == 0 { // there is no figure
		return w.Flush()
	}
	rows := [][]string{{""}, {"p95"}, {"over idle"}, {"download"}, {"upload"}, {"lost"}}
	for _, s := range r.Sides {
		for i, cell := range []string{s.Name, fmt.Sprintf("%.1f ms", s.P95Ms), fmt.Sprintf("%.1f ms", s.IncreaseMs),
			prove.Rate(s.GoodputDownBps), prove.Rate(s.GoodputUpBps), fmt.Sprintf("%.1f %%", 100*s.Loss)} {
			rows[i] = append(rows[i], cell)
		}
	}
	fmt.Fprintln(w)
	cli.Columns(w, w.Width, rows)
	fmt.Fprintln(w)
	change := func(name, unit string, scale float64, c *verdict.Change) {
		if c != nil {
			fmt.Fprintf(w, "%s: %s %s (95 %% interval %s to %s %s)\n", name, signed(scale*c.Median), unit, signed(scale*c.Lo), signed(scale*c.Hi), unit)
		}
	}
	change("change of p95", "ms", 1, r.P95Ms)
	change("change of the download", "%", 100, r.GoodputDown)
	change("change of the upload", "%", 100, r.GoodputUp)
	fmt.Fprintf(w, "\nMedians of %d pairs, %s load, %.0f s in all; order by seed %d.\n", r.PairsUsed, r.Phase, r.LineSeconds, r.Seed)
	return w.Flush()
}
