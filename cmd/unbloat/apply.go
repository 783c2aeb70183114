package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/keep/daemon"
	"unbloat/internal/show/cli"
	"unbloat/reason"
	"unbloat/unit"
)

// defaultStateDir is emptied by a reboot, as the kernel's queues are.
const defaultStateDir = platform.VolatileDir

// routerFlags are the flags of commands that change the router.
type routerFlags struct {
	targetFlags
	stateDir string
	finalDir bool // stateDir is final: the watchdog gets it as it is
	root     string
	json     bool
	quiet    bool
	replace  bool
	preview  bool // do not change anything
	short    bool // status without what queues, classes and machines have counted
	flags    *pflag.FlagSet
}

func (f *routerFlags) register(c *cobra.Command) {
	fs := c.Flags()
	f.flags = fs
	fs.StringVar(&f.stateDir, "state-dir", stateDirOf(os.Getenv), "where changes are recorded for their undo; a reboot must empty it")
	fs.StringVar(&f.root, "root", os.Getenv("UNBLOAT_ROOT"), "prefix of /etc for --persist")
	_ = fs.MarkHidden("root")
	fs.BoolVar(&f.json, "json", false, "print one JSON object")
	fs.BoolVar(&f.quiet, "quiet", false, "print nothing but errors")
}

// stateDirOf returns the default directory of the journal.
func stateDirOf(getenv func(string) string) string {
	if dir := getenv("UNBLOAT_STATE_DIR"); dir != "" {
		return dir
	}
	return defaultStateDir
}

// engine returns the transaction engine of a router.
func (f *routerFlags) engine(d *platform.Driver, r platform.Runner, api bool) (*apply.Engine, error) {
	o := f.options(r, api)
	if o.Exe == "" {
		return nil, errors.New("find this program's own path, for its watchdog: the system does not tell it; is /proc there?")
	}
	b, err := d.Backend(o)
	if err != nil {
		return nil, err
	}
	return &apply.Engine{Backend: b, Runner: r, Dir: f.stateDir, WatchdogArgv: []string{o.Exe, "watchdog", "--state-dir", f.stateDir}}, nil
}

// warn says what a plan that was just made leaves out or can't do.
func (f *routerFlags) warn(c *cobra.Command, p plan.Plan) {
	var notes []string
	for _, text := range reason.Texts(p.Warnings) {
		notes = append(notes, strings.TrimSuffix(text, "."))
	}
	f.sayNotes(c, notes)
}

// options returns what a driver needs to know to change a router.
func (f *routerFlags) options(r platform.Runner, api bool) platform.Options {
	exe, _ := os.Executable() // "": the engine refuses to start
	return platform.Options{Runner: r, API: api, Replace: f.replace, Preview: f.preview, Remote: f.router != "", Exe: exe, Root: f.root}
}

// changeError gives an error of a change its exit code.
func changeError(err error) error {
	var (
		pre     *platform.PreconditionError
		tool    *platform.MissingToolError
		foreign *tc.ForeignError
		busy    *apply.BusyError
		stopped *apply.StoppedError
		noAQM   *plan.UnsupportedAQMError
		none    *plan.NoAQMError
		noIn    *plan.NoIngressError
		input   *platform.InputError
		field   *plan.FieldError
		there   *daemon.Error
		swapped *plan.SwappedError
		above   *plan.AboveLineError
		coded   *cli.Error
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &coded):
		return err
	case errors.As(err, &there):
		return thereError(there)
	case errors.As(err, &stopped):
		return cli.Exit(cli.NoBetter, err)
	case errors.As(err, &pre), errors.As(err, &tool), errors.As(err, &foreign), errors.As(err, &busy), errors.As(err, &noAQM), errors.As(err, &none), errors.As(err, &noIn):
		return cli.Exit(cli.Precondition, err)
	case errors.As(err, &input), errors.As(err, &field), errors.As(err, &swapped), errors.As(err, &above), errors.Is(err, plan.ErrNothingToShape), badAddress(err):
		return cli.Exit(cli.Usage, err)
	}
	return cli.Exit(cli.Failed, err)
}

// applyFlags are the flags of `unbloat apply`.
type applyFlags struct {
	routerFlags
	classFlags
	wan, lan, aqm string
	rateFlags
	confirm      time.Duration
	yes, persist bool
	dryRun       bool
	again        bool
}

func newApplyCommand() *cobra.Command {
	var f applyFlags
	c := &cobra.Command{
		Use:     "apply [PLAN]",
		Short:   "Change the router as one transaction that undoes itself unless confirmed",
		GroupID: "main",
		Long: "Applies a plan, read from the file PLAN or from standard input (-), or made from --down and --up.\n" +
			"A watchdog process undoes it after the time of --confirm, unless you run `unbloat confirm`;\n" +
			"--yes keeps it at once.",
		Example: `  unbloat apply --down 30mbit --up 5mbit
  unbloat plan --down 30mbit --up 5mbit --json | unbloat apply - --dry-run
  unbloat apply --shape-down 28mbit --shape-up 4.6mbit --yes --persist
  unbloat apply --down 30mbit --up 5mbit --router ssh://root@192.168.1.1`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return cli.UsageError("%s: takes one PLAN, not %d", cli.NameOf(c), len(args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return runApply(c, &f, args) },
	}
	f.routerFlags.register(c)
	f.targetFlags.register(c)
	fs := c.Flags()
	f.classFlags.register(fs)
	f.rateFlags.register(fs)
	fs.StringVar(&f.wan, "wan", "", "interface towards the internet (default: that of the default route)")
	fs.StringVar(&f.lan, "lan", "", "interface towards the home")
	fs.StringVar(&f.aqm, "aqm", "", "cake, fq_codel or fifo (default: the best that the kernel has)")
	cli.DurationFlag(fs, &f.confirm, "confirm", 60*time.Second, "undo after this time unless confirmed")
	fs.BoolVar(&f.yes, "yes", false, "keep it at once")
	fs.BoolVar(&f.persist, "persist", false, "with --yes: apply it at every boot")
	fs.BoolVar(&f.dryRun, "dry-run", false, "print the commands that would run now, and change nothing")
	fs.BoolVar(&f.replace, "replace", false, "take over from a shaper that unbloat did not make; revert puts it back")
	fs.BoolVar(&f.again, "again", false, "apply the last plan again, if \"status\" says that it is no longer in force")
	return c
}

func runApply(c *cobra.Command, f *applyFlags, args []string) error {
	if f.persist && !f.yes {
		return cli.UsageError("apply: --persist goes with --yes; otherwise give it to `unbloat confirm`")
	}
	if f.confirm < time.Second && !f.yes {
		return cli.UsageError("apply: --confirm %s is too short to confirm anything; give at least 1s, or --yes", f.confirm)
	}
	ctx := c.Context()
	f.preview = f.dryRun
	if err := f.checkSource(args); err != nil {
		return err
	}
	r, err := f.open(ctx)
	if err != nil {
		return changeError(err)
	}
	defer r.Close()
	if f.again && !f.dryRun {
		if done, err := f.onThere(c); done || err != nil {
			return changeError(err)
		}
	}
	if err := f.lasts(r, f.persist); err != nil {
		return err
	}
	p, err := f.plan(ctx, r, c.InOrStdin(), args)
	if err != nil {
		return changeError(err)
	}
	f.warn(c, p)
	if err := f.doubt(c, p, len(args) == 0); err != nil {
		return err
	}
	engine := r.engine
	if f.dryRun {
		steps, err := engine.Preview(ctx, p)
		if err != nil {
			return changeError(err)
		}
		return f.report(c, "dry-run", p, typed(steps), r.guess(ctx, p))
	}
	if done, err := f.applyThere(c, p); done || err != nil {
		return changeError(err)
	}
	t, err := engine.Begin(ctx, p, apply.Options{Confirm: max(f.confirm, time.Second), Hold: f.yes})
	if err != nil {
		return changeError(err)
	}
	defer t.Close()
	state := "armed"
	switch {
	case f.yes || t.Unchanged:
		if err := f.keep(ctx, r.persister, t, p); err != nil {
			return changeError(err)
		}
		state = "committed"
	}
	if len(t.Ran) == 0 {
		state = "unchanged"
	}
	if state == "armed" && r.far && !f.quiet {
		cli.Say(c.ErrOrStderr(), "The watchdog that undoes it runs on this machine, since the router's API can't hold one: leave this machine on until you confirm.")
	}
	return f.report(c, state, p, typed(t.Ran), "")
}

// lasts refuses --persist where nothing can apply a plan at boot, before anything is done.
func (f *routerFlags) lasts(r *router, persist bool) error {
	if k, is := r.persister.(platform.Absent); is && persist {
		return changeError(k.Persist(context.Background(), plan.Plan{}))
	}
	return nil
}

// doubt says what a plan leaves unshaped. Where rates that were typed are hardly those of a
// line, a person is asked; without one they are noted.
func (f *applyFlags) doubt(c *cobra.Command, p plan.Plan, typed bool) error {
	var notes []string
	for _, d := range []struct {
		s          *plan.Shaper
		name, flag string
	}{{p.Down, "download", "--down"}, {p.Up, "upload", "--up"}} {
		if d.s == nil {
			notes = append(notes, fmt.Sprintf("the %s of %s is not shaped; %s RATE says what it carries", d.name, p.WAN, d.flag))
		}
	}
	unshaped := len(notes)
	if p.Down != nil && p.Up != nil && p.Up.Rate > 2*p.Down.Rate {
		notes = append(notes, fmt.Sprintf("%s up and %s down may be swapped: most lines carry more down than up", p.Up.Rate.Short(), p.Down.Rate.Short()))
	}
	for _, s := range []*plan.Shaper{p.Down, p.Up} {
		if s != nil && s.Rate > mostHome {
			notes = append(notes, fmt.Sprintf("%s may have the wrong unit: it is more than the line of a home carries", s.Rate.Short()))
		}
	}
	if !typed {
		notes = notes[:unshaped]
	}
	f.sayNotes(c, notes)
	if len(notes) == unshaped || f.yes || f.dryRun || f.json || f.quiet || !cli.IsKeyboard(c.InOrStdin()) {
		return nil
	}
	yes, err := ask(c.InOrStdin(), c.ErrOrStderr(), "Apply it all the same?", false)
	if err != nil || !yes {
		return cli.UsageError("apply: nothing was changed")
	}
	return nil
}

// there is a command as it is typed for the same router.
func (f *routerFlags) there(command string) string {
	return strings.Join(append([]string{"unbloat", command}, f.targetFlags.argv()...), " ")
}

// inWords says for people how long something lasts.
func inWords(d time.Duration) string {
	switch {
	case d == time.Minute:
		return "a minute"
	case d%time.Minute == 0:
		return fmt.Sprintf("%d minutes", d/time.Minute)
	}
	return fmt.Sprintf("%.0f seconds", d.Seconds())
}

// mostHome is more than lines of homes carry.
const mostHome = 10 * unit.GbitPerSecond

// guess returns why a preview may differ from the plan that a privileged user
// would get, or "".
func (r *router) guess(ctx context.Context, p plan.Plan) string {
	if p.Basis != nil && p.Basis.Capabilities.Untried != "" {
		return fmt.Sprintf("what the kernel has could not be tried, so the plan assumes what a current %s router has (%s)", p.Platform, p.Basis.Capabilities.Untried)
	}
	if r.driver.Unsure == nil {
		return ""
	}
	return r.driver.Unsure(ctx, r.runner)
}

// checkSource requires a plan, or rates to make one from.
func (f *applyFlags) checkSource(args []string) error {
	switch {
	case f.again && (len(args) == 1 || f.rateFlags.given() || f.aqm != "" || f.lan != ""):
		return cli.UsageError("apply: --again takes the plan that was applied last: give no other with it")
	case f.again:
	case len(args) == 1 && f.rateFlags.given():
		return cli.UsageError("apply: give a PLAN or --down and --up, not both")
	case len(args) == 0 && !f.rateFlags.given():
		return cli.UsageError("apply: give a PLAN (from `unbloat plan --json`), or --down RATE and --up RATE, or --again")
	}
	return nil
}

// keep makes the change persistent if asked to, and commits the transaction. If
// making it persistent fails, the change can still be undone.
func (f *applyFlags) keep(ctx context.Context, k platform.Persister, t *apply.Transaction, p plan.Plan) error {
	if f.persist {
		if err := k.Persist(ctx, p); err != nil {
			return errors.Join(err, t.Revert(context.WithoutCancel(ctx)))
		}
	}
	return t.Commit()
}

// plan reads the plan, or makes one for the router.
func (f *applyFlags) plan(ctx context.Context, r *router, stdin io.Reader, args []string) (plan.Plan, error) {
	if len(args) == 1 {
		p, err := readPlan(stdin, args[0])
		if err == nil { // before it is asked of a WAN that it only names
			err = platform.CheckPlan(p, r.driver.Language)
		}
		return p.WithInterfaces(r.named(ctx)), err
	}
	if f.again {
		return f.lastPlan(r)
	}
	if f.router == "" {
		if err := rivalRuns("/", "apply a plan"); err != nil {
			return plan.Plan{}, err
		}
	}
	classes, err := f.classFlags.preferences()
	if err != nil {
		return plan.Plan{}, err
	}
	return r.planFor(ctx, f.wan, f.lan, plan.Capabilities{}, f.rateFlags.line, plan.Preferences{AQM: plan.AQM(f.aqm), Classes: classes, Down: f.shapeDown, Up: f.shapeUp})
}

// lastPlan returns the plan that was committed last.
func (f *applyFlags) lastPlan(r *router) (plan.Plan, error) {
	var known []string
	for _, wan := range r.wans() {
		rec, err := r.engine.Record(wan)
		if err != nil {
			return plan.Plan{}, err
		}
		if rec != nil && (f.wan == "" || f.wan == wan) {
			known = append(known, wan)
		}
	}
	switch len(known) {
	case 0:
		return plan.Plan{}, &platform.PreconditionError{Doing: "apply again what was applied last", What: "nothing was kept here", Remedy: "give a PLAN, or --down and --up"}
	case 1:
		rec, err := r.engine.Record(known[0])
		if err != nil || rec == nil {
			return plan.Plan{}, errors.Join(errors.New("apply again what was applied last: its record went away"), err)
		}
		return rec.Plan.In(r.driver.Language), nil
	}
	return plan.Plan{}, cli.UsageError("apply: --again: plans of %s were kept; say which with --wan", strings.Join(known, ", "))
}

// mostPlan is the largest plan that is read: one with a whole file of rules.
const mostPlan = 4 * mostClassFile

func readPlan(stdin io.Reader, path string) (plan.Plan, error) {
	var p plan.Plan
	b, err := readFile(stdin, path, mostPlan)
	if err != nil {
		return p, cli.UsageError("read plan: %w", err)
	}
	if err := json.Unmarshal(b, &p); err != nil {
		return p, cli.UsageError("read plan %s: %w; it must be what `unbloat plan --json` prints", path, err)
	}
	return p, nil
}

// An applied object is what `apply --json` prints.
type applied struct {
	Schema   string    `json:"schema"`
	State    string    `json:"state"` // dry-run, armed, committed, unchanged
	WAN      string    `json:"wan"`
	Confirm  float64   `json:"confirm_seconds,omitempty"` // armed: until it is undone
	Commands []string  `json:"commands"`
	Guess    string    `json:"guess,omitempty"` // dry-run: why other commands may run in truth
	Plan     plan.Plan `json:"plan"`
}

// typed returns steps as typed in a shell.
func typed(steps []platform.Step) []string {
	out := []string{}
	for _, s := range steps {
		out = append(out, s.String())
	}
	return out
}

func (f *applyFlags) report(c *cobra.Command, state string, p plan.Plan, commands []string, guess string) error {
	w := c.OutOrStdout()
	out := applied{Schema: "unbloat.apply/1", State: state, WAN: p.WAN, Commands: commands, Guess: guess, Plan: p}
	if state == "armed" {
		out.Confirm = f.confirm.Seconds()
	}
	if f.json {
		return json.NewEncoder(w).Encode(out)
	}
	if f.quiet {
		return nil
	}
	said := cli.Fit(w)
	defer said.Flush() // w keeps its errors
	if state == "armed" || state == "committed" {
		var limits []string
		for _, d := range []struct {
			name string
			s    *plan.Shaper
		}{{"download", p.Down}, {"upload", p.Up}} {
			if d.s != nil {
				limits = append(limits, "the "+d.name+" is limited to "+d.s.Rate.Short())
			}
		}
		fmt.Fprintf(said, "On %s %s: packets wait in the router now, and no longer in the modem.\n", p.WAN, strings.Join(limits, ", "))
	}
	if state == "dry-run" || !cli.IsTerminal(w) { // hundreds of lines are of no use to a person
		for _, c := range out.Commands {
			fmt.Fprintln(w, c)
		}
	}
	switch state {
	case "dry-run":
		if len(commands) == 0 {
			fmt.Fprintf(w, "%s is as the plan wants it: there is nothing to run.\n", p.WAN)
		}
		if guess != "" { // not among the commands, which may be saved in a file
			cli.Say(c.ErrOrStderr(), "This is a guess: %s. Run it as root to see what would be done.", guess)
		}
	case "armed":
		fmt.Fprintf(said, "Applied to %s and read back. It is undone in %s unless you run: %s\n", p.WAN, inWords(f.confirm), f.there("confirm"))
	case "committed":
		fmt.Fprintf(said, "Applied to %s, read back and kept. To take it back: %s\n", p.WAN, f.there("revert"))
	case "unchanged":
		fmt.Fprintf(said, "%s is as the plan wants it already: nothing was run.\n", p.WAN)
		if f.persist {
			fmt.Fprintln(said, "It is applied at every boot.")
		}
	}
	return nil
}
