package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	kept "unbloat/internal/keep/config"
	"unbloat/internal/keep/daemon"
	"unbloat/internal/show/cli"
)

// daemonConfig is where the daemon's configuration is if no flag says where.
const daemonConfig = "/etc/unbloat/unbloat.toml"

// daemonGC is the garbage collector's percentage: memory is scarcer on a router than the
// time to collect it.
const daemonGC = 20

// daemonFlags are those of `unbloat daemon`.
type daemonFlags struct {
	config, stateDir string
	check, look      bool
	changed          string
	print            string // the configuration in this syntax
}

// newResidentCommands are those that stay.
func newResidentCommands() []*cobra.Command {
	return []*cobra.Command{newDaemonCommand(), newRpcdCommand()}
}

func newDaemonCommand() *cobra.Command {
	var f daemonFlags
	c := &cobra.Command{
		Use:     "daemon",
		GroupID: "main",
		Short:   "Keep the shaping in place",
		Long: `Applies what the configuration says, and puts it back whenever something takes it
away: a PPPoE line that reconnects, another program, a person. What is in place already
is not touched. It runs in the foreground, for systemd, procd or rc.d.

While it runs, apply, confirm, revert, tune and prove go through it. What apply or
tune keeps becomes the usual rates, in the configuration too. revert turns a WAN off,
over restarts too, until the next apply. SIGHUP reads the configuration again.
SIGTERM ends it; the shaping stays, or is taken back with on_stop = "revert".

The least configuration:

  [[wan]]
  interface = "eth0"
  down = "50 Mbit/s"
  up   = "10 Mbit/s"

On OpenWrt the configuration is /etc/config/unbloat, and it is written as OpenWrt
does: a section "config wan" for each line, with options of the same names.

All keys are explained in docs/daemon.md.`,
		Example: `  unbloat daemon
  unbloat daemon --config /etc/unbloat/unbloat.toml --check`,
		Args: cli.ExactArgs(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error { return runDaemon(c, &f) },
	}
	fl := c.Flags()
	fl.StringVar(&f.config, "config", daemonConfig, "read the configuration from this `FILE`")
	fl.BoolVar(&f.check, "check", false, "only check the configuration: report each mistake, and what the platform can't do")
	fl.BoolVar(&f.look, "look", false, "only tell the running daemon to check its WANs now, and do nothing if none runs: for the system's network hooks")
	fl.StringVar(&f.changed, "changed", "", "with --look: the `INTERFACE` that came, went or was replaced")
	fl.StringVar(&f.print, "print", "", "only print the configuration in this `FORMAT`: toml, or uci as in OpenWrt's /etc/config")
	fl.StringVar(&f.stateDir, "state-dir", stateDirOf(os.Getenv), "where the daemon's socket is, and where changes are recorded for their undo; a reboot must empty it")
	return c
}

func runDaemon(c *cobra.Command, f *daemonFlags) error {
	ctx := c.Context()
	switch {
	case f.changed != "" && !f.look:
		return cli.UsageError("daemon: --changed goes with --look")
	case f.look && f.check:
		return cli.UsageError("daemon: --look and --check are two things; give one")
	case f.look:
		return f.tellToLook(ctx)
	case f.print != "":
		return f.convert(c)
	}
	if f.check {
		return f.checkAll(c)
	}
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	reload := make(chan struct{})
	go func() {
		for {
			select {
			case <-hup:
				select {
				case reload <- struct{}{}:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	debug.SetGCPercent(daemonGC)
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("daemon: find this program's own path, to test and to tune with it: %w", err)
	}
	o := daemon.Options{
		File: f.config, Dir: f.stateDir, Memory: memoryOf(f.config), Version: version,
		Check: f.checker(), Open: f.open, Classify: codeOf,
		Log: c.OutOrStdout(), Trouble: c.ErrOrStderr(), Reload: reload, Getenv: os.Getenv, Watch: daemon.Watch,
	}
	o.Count = lineCounter()
	followLines(&o)
	offerArchive(&o)
	o.Program, o.UI, o.Go, o.Metrics = program, f.servePage, runtime.Version(), serveMetrics
	err = daemon.Run(ctx, o)
	var bad *kept.Error
	if errors.As(err, &bad) {
		return cli.UsageError("daemon: %w", meantKey(err))
	}
	return changeError(err)
}

// checkAll says all that is wrong with the configuration, or what it is to do. Where there
// is none, it gives one to begin with.
func (f *daemonFlags) checkAll(c *cobra.Command) error {
	text, err := os.ReadFile(f.config)
	if errors.Is(err, fs.ErrNotExist) {
		return cli.UsageError("daemon: there is no %s; write this into it, with your line's interface and rates:\n%s", f.config, f.firstConfig())
	}
	if err != nil {
		return cli.UsageError("daemon: read the configuration: %w", err)
	}
	var wrong []error
	for _, err := range kept.Mistakes(f.config, text) {
		wrong = append(wrong, meantKey(err))
	}
	if len(wrong) > 0 {
		return cli.UsageError("daemon: %w", errors.Join(wrong...))
	}
	conf, err := daemon.Load(c.Context(), f.config, f.checker())
	if err != nil {
		return cli.UsageError("daemon: %w", err)
	}
	here := platform.Detect(c.Context(), machine, driversOf(c.Context()))
	for _, w := range conf.WANs {
		fmt.Fprintf(c.OutOrStdout(), "%s: %s\n", f.config, w.Says())
		var missing *platform.PreconditionError
		if w.Router == "" && here.CheckWAN != nil && errors.As(here.CheckWAN(c.Context(), machine, w.Interface), &missing) {
			cli.Say(c.ErrOrStderr(), "Note: %v.", w.At(f.config, "interface", fmt.Errorf("there is no %s now; the daemon waits for it", w.Interface)))
		}
	}
	for _, e := range conf.Schedule {
		fmt.Fprintf(c.OutOrStdout(), "%s: %s\n", f.config, e.Says())
	}
	return nil
}

// firstConfig is the least configuration, as the file has to be written.
func (f *daemonFlags) firstConfig() string {
	const least = "[[wan]]\ninterface = \"eth0\"\ndown = \"50 Mbit/s\"\nup = \"10 Mbit/s\"\n"
	text := []byte(least)
	if to := kept.SyntaxOf(f.config, nil); to != kept.TOML {
		text, _ = kept.Convert("", text, to) // it is right
	}
	return strings.TrimSpace(string(text))
}

// meantKey adds to a mistake which key an unknown one most likely means.
func meantKey(err error) error {
	var unknown *kept.UnknownKeyError
	if !errors.As(err, &unknown) {
		return err
	}
	near := cli.Nearest(unknown.Key, unknown.Known)
	if near == "" {
		return err
	}
	return fmt.Errorf("%w; do you mean %s?", err, near)
}

// tellToLook tells a running daemon to look at its WANs. Where none runs there is
// nothing to look at: a hook of the system must not fail for that.
func (f *daemonFlags) tellToLook(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, daemonStatusTime)
	defer cancel()
	at := routerFlags{stateDir: f.stateDir}
	c, err := at.dialDaemon(ctx)
	if c == nil || err != nil {
		return err
	}
	defer c.Close()
	return c.Call(ctx, daemon.MethodLook, "", f.changed, nil, nil)
}

// memoryOf is the file of what the daemon remembers: beside the configuration, but
// not in OpenWrt's directory of configurations, where every file is one.
func memoryOf(file string) string {
	dir, name := filepath.Split(strings.TrimSuffix(file, filepath.Ext(file)) + ".state.json")
	if kept.SyntaxOf(file, nil) == kept.UCI {
		dir = filepath.Join(filepath.Dir(filepath.Clean(dir)), "unbloat")
	}
	return filepath.Join(dir, name)
}

// convert prints the configuration in another syntax.
func (f *daemonFlags) convert(c *cobra.Command) error {
	to := kept.Syntax(f.print)
	if to != kept.TOML && to != kept.UCI {
		return cli.UsageError("daemon: --print %q: must be toml or uci", f.print)
	}
	text, err := os.ReadFile(f.config)
	if err == nil {
		text, err = kept.Convert(f.config, text, to)
	}
	if err != nil {
		return cli.UsageError("daemon: print the configuration: %w", err)
	}
	_, err = c.OutOrStdout().Write(text)
	return err
}

// checker refuses a configuration that a platform can't do.
func (f *daemonFlags) checker() func(context.Context, kept.Config) error {
	return func(ctx context.Context, c kept.Config) error {
		for _, w := range c.WANs {
			if key, err := f.checkWAN(ctx, w); err != nil {
				return w.At(f.config, key, err)
			}
		}
		for _, e := range c.Schedule {
			for _, w := range c.WANs {
				if !e.Lasts() || w.Interface != e.WAN || w.Router != e.Router {
					continue
				}
				if _, err := f.checkWAN(ctx, w.During([]kept.Entry{e})); err != nil {
					return e.At(f.config, err)
				}
			}
		}
		if err := checkArchive(c, f.config); err != nil {
			return err
		}
		if c.Server != "" {
			if err := checkServer(ctx, c.Server); err != nil {
				return c.At(f.config, "server", err)
			}
		}
		return nil
	}
}

// checkWAN returns what is wrong with a WAN, and the key that is to blame.
func (f *daemonFlags) checkWAN(ctx context.Context, w kept.WAN) (key string, err error) {
	var d *platform.Driver
	switch {
	case w.Router != "" && noRemote() != nil:
		return "router", noRemote()
	case w.Platform != "":
		if d, err = driversOf(ctx).Find(w.Platform); err != nil {
			return "platform", err
		}
	case w.Router != "":
		d = byScheme(driversOf(ctx), w.Router) // over SSH the router is asked when it is reached
	default:
		d = platform.Detect(ctx, machine, driversOf(ctx))
	}
	classes, err := classesOf(w)
	if err != nil {
		return "classes", err
	}
	if d == nil {
		return "", nil
	}
	if d.OwnTC != nil {
		d = d.OwnTC()
	}
	preferences := w.Preferences()
	preferences.Classes = classes
	p, err := plan.Make(w.PlanLine(), d.Language.Assume(w.Interface, w.LAN), preferences)
	if err == nil && w.Follow {
		if err := canFollow(d, p); err != nil {
			return "follow", err
		}
	}
	for _, r := range w.Rules { // of the schedule
		if err == nil && (p.Classes == nil || !slices.ContainsFunc(p.Classes.Rules, func(x plan.Rule) bool { return x.String() == r.String() })) {
			return "", fmt.Errorf("on %s a machine can't go first or last (%s)", d.Name(), r)
		}
	}
	var aqm *plan.UnsupportedAQMError
	var field *plan.FieldError
	switch {
	case errors.As(err, &aqm):
		return "aqm", err
	case errors.As(err, &field):
		return field.Field[strings.LastIndexByte(field.Field, '.')+1:], err
	}
	return "", err
}

// classesOf reads the classes of a WAN, from a file if it names one.
func classesOf(w kept.WAN) (plan.ClassPreferences, error) {
	classes := classFlags{classes: w.Classes, classifier: string(w.Classifier)}
	p, err := classes.preferences()
	p.Rules = slices.Concat(w.MachineRules(), p.Rules)
	return p, err
}

// open reaches the router of a WAN.
func (f *daemonFlags) open(ctx context.Context, w kept.WAN) (*daemon.Router, error) {
	at := routerFlags{targetFlags: targetFlags{router: w.Router, platform: w.Platform, ownTC: true}, stateDir: f.stateDir}
	r, err := at.open(ctx)
	if err != nil {
		return nil, err
	}
	taking := at
	taking.replace = true
	b, err := r.driver.Backend(taking.options(r.runner, byScheme(driversOf(ctx), w.Router) != nil))
	if err != nil {
		r.Close()
		return nil, err
	}
	engine := *r.engine
	engine.Backend = b
	return &daemon.Router{Driver: r.driver, Here: machine, Engine: r.engine, Taking: &engine, Persister: r.persister, OwnTC: r.owned, Close: r.Close,
		Why:  func(ctx context.Context, p plan.Plan, w daemon.WhyParams) (any, error) { return whyThere(ctx, r, p, w) },
		Plan: func(ctx context.Context, w kept.WAN) (plan.Plan, error) { return planOf(ctx, r, w) }}, nil
}

// planOf makes the plan of a WAN for its router.
func planOf(ctx context.Context, r *router, w kept.WAN) (plan.Plan, error) {
	if w.Router == "" {
		if err := rivalRuns("/", "keep "+w.Interface); err != nil {
			return plan.Plan{}, err
		}
	}
	if r.driver.Contends != nil {
		if err := r.driver.Contends(ctx, r.runner, w.Interface); err != nil {
			return plan.Plan{}, err
		}
	}
	if is := r.named(ctx)(w.Interface); is != w.Interface {
		return plan.Plan{}, &platform.PreconditionError{Doing: "keep " + w.Interface, What: "it is another name of " + is, Remedy: "name " + is + " in the configuration"}
	}
	preferences := w.Preferences()
	var err error
	if preferences.Classes, err = classesOf(w); err != nil {
		return plan.Plan{}, err
	}
	return r.planFor(ctx, w.Interface, w.LAN, plan.Capabilities{}, w.PlanLine(), preferences)
}

// codeOf says for the daemon's clients what kind of error an error is.
func codeOf(err error) daemon.Code {
	var busy *apply.BusyError
	if errors.As(err, &busy) {
		return daemon.CodeBusy
	}
	var coded *cli.Error
	if errors.As(changeError(err), &coded) {
		switch coded.Code {
		case cli.Usage:
			return daemon.CodeUsage
		case cli.Precondition:
			return daemon.CodePrecondition
		}
	}
	return daemon.CodeFailed
}
