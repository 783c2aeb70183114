package main

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
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/verdict"
	"unbloat/internal/show/cli"
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
	l := &leader{leadFlags: f, ctx: c.Context(), in: c.InOrStdin(), out: fit(c.OutOrStdout(), cli.TerminalWidth(c.OutOrStdout())), exe: exe, dir: dir}
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
	plan := append([]string{"plan", "--result", l.file("before"), "--wan", l.wan}, l.where()...)
	if l.router == "" {
		plan = append(plan, "--here")
	}
	if l.lan != "" {
		plan = append(plan, "--lan", l.lan)
	}
	if err := l.must(plan...); err != nil {
		return err
	}
	if obstacle != nil {
		l.say("To do it: %v.", obstacle)
		return nil
	}
	if err := l.goOn("Do it now? It is undone by itself after ten minutes unless you keep it.", true); err != nil {
		return err
	}
	text, err := l.output(append(plan, "--json")...)
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

// keepIfBetter measures the applied change and keeps it if the user says so. It
// returns whether it is applied at boot too.
func (l *leader) keepIfBetter(before *verdict.Test) (boot bool, err error) {
	after, err := l.measure("after", "Is it better? Measured again, the same way.")
	if err != nil {
		return false, err
	}
	code, err := l.run("compare", l.file("before"), l.file("after"))
	if err != nil {
		return false, err
	}
	better := code == cli.Done && worstRise(after) < worstRise(before)
	if keep, err := l.ask("Keep it?", better); err != nil {
		return false, err
	} else if !keep {
		return false, errStopped
	}
	confirm := append([]string{"confirm", "--wan", l.wan}, l.where()...)
	if boot, err = l.ask("Apply it again at every boot?", true); err != nil {
		return false, err
	}
	if boot {
		confirm = append(confirm, "--persist")
	}
	return boot, l.reach(changeKept, confirm...)
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
	l.say("\nDone. `unbloat status` shows what it does, `unbloat revert` takes it back.")
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
	defer r.Close()
	if l.wan == "" {
		if l.wan, err = r.defaultWAN(l.ctx); err != nil {
			return nil, changeError(err)
		}
	}
	l.wan = r.named(l.ctx)(l.wan)
	if err := r.checkWAN(l.ctx, l.wan); err != nil {
		return nil, changeError(err)
	}
	at := "This machine"
	if l.router != "" {
		at = l.router
	}
	l.say("%s runs %s, and %s leads to the internet.", at, r.driver.Name(), l.wan)
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
	if l.router == "" {
		return nil
	}
	return []string{"--router", l.router}
}

func (l *leader) file(name string) string { return filepath.Join(l.dir, name+".json") }

// measure runs a test and returns its result. An invalid one ends the guide,
// since nothing can be decided by it.
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
	if err := l.must(args...); err != nil {
		return nil, err
	}
	return l.result(label)
}

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
