package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/verdict"
	"unbloat/internal/show/cli"
	"unbloat/reason"
	"unbloat/unit"
)

// leadFlags are the flags of `unbloat` without a command, which guides from a
// bad line to a good one.
type leadFlags struct {
	yes                      bool
	server, router, wan, lan string
}

// registerLead makes the root command guide the user if there is a terminal to
// ask on, or with --yes.
func registerLead(root *cobra.Command) {
	var f leadFlags
	fs := root.Flags()
	fs.BoolVar(&f.yes, "yes", false, "without a command: measure, apply and keep what is better, without a question")
	fs.StringVar(&f.server, "server", "", "without a command: test `SERVER`, as for \"unbloat test\"")
	fs.StringVar(&f.router, "router", "", "without a command: the router's `ADDRESS`, as ssh://root@192.168.1.1 (default: this machine)")
	fs.StringVar(&f.wan, "wan", "", "without a command: `IF`, the interface towards the internet (default: that of the default route)")
	fs.StringVar(&f.lan, "lan", "", "without a command: `IF`, the interface towards the home")
	listing := root.RunE
	root.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 0 || !f.yes && !(cli.IsTerminal(os.Stdin) && cli.IsTerminal(os.Stdout)) {
			return listing(c, args)
		}
		return runLead(c, f)
	}
}

// A leader guides step by step. Each step runs a command of this program, and
// shows it.
type leader struct {
	leadFlags
	ctx    context.Context
	in     io.Reader
	out    io.Writer
	exe    string
	dir    string // of the measurements
	change change
	ownTC  bool               // the platform's own service is not there
	boot   platform.Persister // how the router keeps what it has over a restart
}

// A change is how far the guide's change of the router has come.
type change int

const (
	changeNone  change = iota
	changeBegun        // apply ran, and did not end well; it says how it left the router
	changeWaits        // it is undone by itself unless it is kept
	changeKept
)

// errStopped ends the guide because the user answered no. It is not a failure.
var errStopped = errors.New("stopped")

func runLead(c *cobra.Command, f leadFlags) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program's own path: %w", err)
	}
	dir, err := os.MkdirTemp("", "unbloat-")
	if err != nil {
		return fmt.Errorf("make a folder for the results: %w", err)
	}
	defer os.RemoveAll(dir)
	l := &leader{leadFlags: f, ctx: c.Context(), in: c.InOrStdin(), out: cli.Fit(c.OutOrStdout()), exe: exe, dir: dir}
	obstacle, err := l.findRouter()
	if err != nil {
		return err
	}
	return l.end(l.guide(obstacle))
}

// end takes back at once what was applied and is not kept, and says how the router is
// left if the guide ended in its middle.
func (l *leader) end(err error) error {
	left, undo := map[change]string{
		changeNone:  "nothing was changed",
		changeBegun: "see above how apply left the router; `unbloat status` shows how it is",
		changeKept:  "what you kept stays",
	}[l.change], error(nil)
	if l.change == changeWaits {
		left, undo = l.takeBack()
	}
	switch {
	case errors.Is(err, errStopped):
		err = nil
	case undo == nil && (errors.Is(err, cli.ErrInterrupted) || errors.Is(err, errNobody)):
		err = cli.Exit(cli.Failed, fmt.Errorf("%w; %s", err, left))
	}
	return errors.Join(err, undo)
}

// takeBack undoes the applied change, whatever signals come, and says what became of it.
func (l *leader) takeBack() (left string, err error) {
	l.ctx = context.WithoutCancel(l.ctx)
	waits, err := l.waits()
	if err == nil && !waits {
		l.say("\nNothing waits to be undone any more: the change's time has passed.")
		return "the change was undone at its deadline", nil
	}
	if err == nil {
		err = l.must(append([]string{"revert", "--wan", l.wan}, l.where()...)...)
	}
	if err != nil {
		later := errors.New("the change is not undone yet: the router undoes it by itself ten minutes after it was applied; `unbloat status` shows whether it has")
		return "", errors.Join(err, cli.Exit(cli.Failed, later))
	}
	return "the change was undone", nil
}

// waits reports whether a change of the router waits to be kept.
func (l *leader) waits() (bool, error) {
	text, err := l.output(append([]string{"status", "--json", "--wan", l.wan}, l.where()...)...)
	var s struct {
		Pending []struct {
			WAN string `json:"wan"`
		} `json:"pending"`
	}
	if l.ctx.Err() != nil {
		return false, cli.ErrInterrupted
	}
	if json.Unmarshal(text, &s) != nil { // status ends with 1 where something differs
		return false, errors.Join(fmt.Errorf("look whether the change of %s still waits: status does not tell", l.wan), err)
	}
	for _, p := range s.Pending {
		if p.WAN == l.wan {
			return true, nil
		}
	}
	return false, nil
}

// guide runs all steps. obstacle is why the router cannot be changed from here, or nil.
func (l *leader) guide(obstacle error) error {
	if obstacle != nil {
		l.say("This measures and plans, and changes nothing. To change something: %v.", obstacle)
	}
	before, err := l.measure(labelBefore, "How bad is it? Measuring takes about a minute and fills the line meanwhile.")
	if err != nil {
		return err
	}
	if before.Grade == verdict.GradeAPlus || before.Grade == verdict.GradeA {
		l.say("Your line is good as it is: grade %s.", before.Grade)
		if err := l.goOn("Go on all the same?", false); err != nil {
			return err
		}
	}
	l.say("\nWhat would be done:")
	planned := append([]string{"plan"}, l.measured(before)...)
	planned = append(append(planned, "--wan", l.wan), l.where()...)
	if l.router == "" {
		planned = append(planned, "--here")
	}
	if l.lan != "" {
		planned = append(planned, "--lan", l.lan)
	}
	if err := l.must(planned...); err != nil {
		return err
	}
	if obstacle != nil {
		l.say("To do it: %v.", obstacle)
		return nil
	}
	if err := l.goOn("Do it now? It is undone by itself after ten minutes unless you keep it.", true); err != nil {
		return err
	}
	text, err := l.output(append(planned, "--json")...)
	if err != nil {
		return err
	}
	if err := os.WriteFile(l.file("plan"), text, 0o600); err != nil {
		return fmt.Errorf("keep the plan: %w", err)
	}
	l.change = changeBegun
	if err := l.reach(changeWaits, append([]string{"apply", l.file("plan"), "--confirm", "10m"}, l.where()...)...); err != nil {
		return err
	}
	waits, err := l.waits()
	if err != nil {
		return err
	}
	boot := false
	if waits {
		if boot, err = l.keepIfBetter(before); err != nil {
			return err
		}
	} else { // apply found it there
		l.change = changeNone
	}
	return l.tune(boot)
}

// measured returns the flags by which a plan is made from a test. The rates of one that is
// not valid are good enough to begin with: what is applied is measured too.
func (l *leader) measured(t *verdict.Test) []string {
	if t.Valid {
		return []string{"--result", l.file("before")}
	}
	var out []string
	if p := t.Download; p != nil && p.GoodputDownBps > 0 {
		out = append(out, "--down", kbit(plan.Line{}.FromGoodput(p.GoodputDownBps)))
	}
	if p := t.Upload; p != nil && p.GoodputUpBps > 0 {
		out = append(out, "--up", kbit(plan.Line{}.FromGoodput(p.GoodputUpBps)))
	}
	return out
}

// kbit writes a rate as one word of a command.
func kbit(r unit.Rate) string { return fmt.Sprintf("%dkbit", int64(r)/1000) }

// keepIfBetter measures the applied change and keeps it if the user says so. It
// returns whether it is applied at boot too.
func (l *leader) keepIfBetter(before *verdict.Test) (boot bool, err error) {
	after, err := l.measure("after", "Is it better? Measured again, the same way.")
	if err != nil {
		return false, err
	}
	l.brief(before, after)
	if keep, err := l.ask("Keep it?", isBetter(before, after)); err != nil {
		return false, err
	} else if !keep {
		return false, errStopped
	}
	if err := l.reach(changeKept, append([]string{"confirm", "--wan", l.wan}, l.where()...)...); err != nil {
		return false, err
	}
	return l.lasts()
}

// lasts says how long what was kept stays, or asks whether it is to be applied at boot. No
// answer is no.
func (l *leader) lasts() (boot bool, err error) {
	switch l.boot.(type) {
	case platform.Lasting:
		l.say("It stays over a restart of the router.")
		return false, nil
	case platform.Absent:
		l.say("It stays until the router restarts. To have it at every start, install unbloat on the router too, and run there: unbloat")
		return false, nil
	}
	if boot, err = l.ask("Apply it again at every boot?", true); err != nil || !boot {
		return false, nil
	}
	code, err := l.run(append([]string{"apply", "--again", "--yes", "--persist", "--wan", l.wan}, l.where()...)...)
	if err == nil && code != cli.Done && l.ctx.Err() == nil {
		l.say("What you kept stays until the router restarts.")
		return false, nil
	}
	return err == nil && code == cli.Done, l.outcome(code, err)
}

// isBetter reports whether the line is better than before for certain, by more than chance
// makes two measurements differ.
func isBetter(before, after *verdict.Test) bool {
	if rise, known := before.CertainMs(); known {
		return after.Valid && worstRise(after) < rise/2
	}
	return verdict.Compare(before, after).Better
}

// brief says what was, what is, and what it costs, a line each.
func (l *leader) brief(before, after *verdict.Test) {
	l.say("\nBefore: %s", inShort(before))
	l.say("Now:    %s", inShort(after))
	var speeds []string
	for _, d := range []struct {
		name string
		of   func(t *verdict.Test) float64
	}{
		{"download", func(t *verdict.Test) float64 { return goodput(t.Download, t.Download != nil) }},
		{"upload", func(t *verdict.Test) float64 { return goodput(t.Upload, false) }},
	} {
		if was, is := d.of(before), d.of(after); was > 0 && is > 0 {
			speeds = append(speeds, d.name+" "+fromTo(was, is))
		}
	}
	if len(speeds) > 0 {
		l.say("Speed:  %s", strings.Join(speeds, ", "))
	}
}

// fromTo says how a speed changed.
func fromTo(was, is float64) string {
	from, to := unit.Rate(was).Short(), unit.Rate(is).Short()
	if number, of, _ := strings.Cut(from, " "); strings.HasSuffix(to, " "+of) {
		from = number
	}
	how := "as before"
	if percent := int(math.Round(100 * (is - was) / was)); percent < 0 {
		how = fmt.Sprintf("%d %% less", -percent)
	} else if percent > 0 {
		how = fmt.Sprintf("%d %% more", percent)
	}
	return fmt.Sprintf("%s → %s (%s)", from, to, how)
}

// goodput is what a phase carried down or up; 0 if there is none.
func goodput(p *verdict.Phase, down bool) float64 {
	switch {
	case p == nil:
		return 0
	case down:
		return p.GoodputDownBps
	}
	return p.GoodputUpBps
}

// inShort says what a test found, in a line.
func inShort(t *verdict.Test) string {
	if t.Valid {
		return fmt.Sprintf("grade %s; while the line is busy, packets wait up to %s longer", orNone(t.Grade), reason.English().Ms(worstRise(t)))
	}
	if c := t.Certain(); c != nil {
		return c.Text(reason.English(), reason.Terminal)
	}
	return "not known: the measurement is not valid"
}

// tune finds the best rates if the user says so. No answer is no: there is nothing to
// take back any more.
func (l *leader) tune(boot bool) error {
	if tune, err := l.ask("Find the best rates for this line? It takes two minutes more, and what is not better is not kept.", !l.yes); err == nil && tune {
		args := append([]string{"tune", "--wan", l.wan}, l.where()...)
		if l.server != "" {
			args = append(args, "--server", l.server)
		}
		if boot {
			args = append(args, "--persist")
		}
		if code, err := l.run(args...); err != nil || code != cli.Done && code != cli.NoBetter {
			return l.outcome(code, err)
		}
	}
	there := strings.Join(append([]string{""}, l.where()...), " ")
	l.say("\nDone. `unbloat status%s` shows what it does, `unbloat revert%s` takes it back.", there, there)
	return nil
}

// labelBefore is the label of the first measurement.
const labelBefore = "before"

// worstRise returns the largest p95 increase of a test's loads, in ms.
func worstRise(t *verdict.Test) float64 {
	worst := 0.0
	for _, p := range t.Phases() {
		if p.Name != verdict.PhaseIdle {
			worst = max(worst, p.Latency.IncreaseMs.P95)
		}
	}
	return worst
}

// findRouter finds the router and its interface. obstacle is the reason why it
// cannot be changed from here; nil: it can be.
func (l *leader) findRouter() (obstacle, err error) {
	f := routerFlags{targetFlags: targetFlags{router: l.router}, stateDir: stateDirOf(os.Getenv), preview: true}
	r, err := f.open(l.ctx)
	if err != nil {
		return nil, changeError(err)
	}
	defer func() { r.Close() }()
	if l.wan == "" {
		if l.wan, err = r.defaultWAN(l.ctx); err != nil {
			return nil, changeError(err)
		}
	}
	name := r.driver.Name()
	if r.driver.Service != "" && !platform.Has(l.ctx, r.runner, r.driver.Service) {
		l.ownTC, f.ownTC = true, true
		r.Close()
		if r, err = f.open(l.ctx); err != nil {
			return nil, changeError(err)
		}
	}
	l.wan, l.boot = r.named(l.ctx)(l.wan), r.persister
	if err := r.checkWAN(l.ctx, l.wan); err != nil {
		return nil, changeError(err)
	}
	at := "This machine"
	if l.router != "" {
		at = l.router
	}
	l.say("%s runs %s, and %s leads to the internet.", at, name, l.wan)
	if l.ownTC {
		l.say("It has no sqm-scripts, so the kernel's shaper is set with tc directly.")
	}
	if l.router == "" {
		l.say("If your router is another machine, stop here and run: unbloat --router ssh://root@ADDRESS")
		if os.Geteuid() != 0 {
			return errors.New("run `unbloat` again as root"), nil
		}
	}
	return nil, nil
}

// where returns the flags by which other commands reach the same router.
func (l *leader) where() []string {
	var out []string
	if l.router != "" {
		out = append(out, "--router", l.router)
	}
	if l.ownTC {
		out = append(out, "--own-tc")
	}
	return out
}

func (l *leader) file(name string) string { return filepath.Join(l.dir, name+".json") }

// measure runs a test and returns its result. With one that is not valid the user goes on
// if enough is certain, measures again, or stops.
func (l *leader) measure(label, why string) (*verdict.Test, error) {
	l.say("\n%s", why)
	if err := l.goOn("Measure now?", true); err != nil {
		return nil, err
	}
	args := []string{"test", "--label", label, "-o", l.file(label)}
	if l.server != "" {
		args = append(args, "--server", l.server)
		if _, err := phases.ParseServer(l.server); err == nil && label == labelBefore { // a server of ours can
			args = append(args, "--framing")
		}
	}
	for {
		code, err := l.run(args...)
		if err != nil || code != cli.Done && code != cli.Invalid || l.ctx.Err() != nil {
			return nil, l.outcome(code, err)
		}
		t, err := l.result(label)
		if err != nil || t.Valid {
			return t, err
		}
		question, usual := "Measure again [Enter], or stop [s]? ", choseAgain
		if _, known := t.CertainMs(); known {
			question, usual = "What is certain is bad enough to mend: go on [Enter], measure again [m], or stop [s]? ", choseOn
		}
		if l.yes && usual == choseAgain {
			return nil, cli.Exit(cli.Invalid, nil) // the test has said why
		}
		in := l.in
		if l.yes {
			in = strings.NewReader("\n")
		}
		chosen, err := choose(in, l.out, question, "Please press Enter, m or s: ", map[string]choice{
			"": usual, "y": usual, "m": choseAgain, "s": choseStop, "n": choseStop, "q": choseStop})
		switch {
		case err != nil:
			return nil, err
		case chosen == choseStop:
			l.say("Nothing more is done.")
			return nil, errStopped
		case chosen == choseOn:
			return t, nil
		}
	}
}

// A choice is what to do with a measurement that is not valid.
type choice int

const (
	choseOn choice = iota
	choseAgain
	choseStop
)

func (l *leader) result(label string) (*verdict.Test, error) {
	text, err := os.ReadFile(l.file(label))
	if err != nil {
		return nil, fmt.Errorf("read what was measured: %w", err)
	}
	t := new(verdict.Test)
	if err := json.Unmarshal(text, t); err != nil {
		return nil, fmt.Errorf("read what was measured: %w", err)
	}
	return t, nil
}

func (l *leader) say(format string, args ...any) { fmt.Fprintf(l.out, format+"\n", args...) }

// goOn asks a question, and ends the guide if the answer is no.
func (l *leader) goOn(question string, usual bool) error {
	yes, err := l.ask(question, usual)
	if err == nil && !yes {
		l.say("Nothing more is done.")
		return errStopped
	}
	return err
}

// ask returns the answer to a question; with --yes the usual one.
func (l *leader) ask(question string, usual bool) (bool, error) {
	if l.ctx.Err() != nil {
		return false, cli.ErrInterrupted
	}
	in := l.in
	if l.yes {
		in = strings.NewReader("\n")
	}
	answer, err := ask(in, l.out, question, usual)
	if l.yes {
		l.say("%s", map[bool]string{true: "yes", false: "no"}[answer])
	}
	return answer, err
}

// run shows a command and runs it, and returns its exit code.
func (l *leader) run(args ...string) (int, error) {
	l.say("\n$ unbloat %s", strings.Join(args, " "))
	return l.start(os.Stdout, args)
}

// must runs a command. If it fails the guide ends with its exit code; the
// command has printed why.
func (l *leader) must(args ...string) error { return l.outcome(l.run(args...)) }

// reach runs a command that brings the change of the router so far.
func (l *leader) reach(to change, args ...string) error {
	code, err := l.run(args...)
	if err == nil && code == cli.Done {
		l.change = to // also if a signal came meanwhile
	}
	return l.outcome(code, err)
}

// outcome is how a command ended that should have succeeded.
func (l *leader) outcome(code int, err error) error {
	switch {
	case l.ctx.Err() != nil:
		return cli.ErrInterrupted
	case err == nil && code != cli.Done:
		return cli.Exit(code, nil)
	}
	return err
}

// output runs a command and returns what it prints.
func (l *leader) output(args ...string) ([]byte, error) {
	var text bytes.Buffer
	code, err := l.start(&text, args)
	return text.Bytes(), l.outcome(code, err)
}

// start runs this program with arguments, and returns its exit code. When we are
// interrupted it ends cleanly by itself, since it gets the terminal's interrupt too.
func (l *leader) start(stdout io.Writer, args []string) (int, error) {
	cmd := exec.CommandContext(l.ctx, l.exe, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, stdout, os.Stderr
	cmd.Env = append(os.Environ(), "LC_ALL=C") // the guide speaks English
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.Exited():
		return exit.ExitCode(), nil
	case err != nil && !(l.ctx.Err() != nil && cmd.ProcessState != nil && cmd.ProcessState.Success()):
		return cli.Failed, fmt.Errorf("run unbloat %s: %w", args[0], err)
	}
	return cli.Done, nil
}
