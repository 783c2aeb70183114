package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/supervise"
	"unbloat/internal/show/cli"
)

// Where a daemon runs, commands that change a router go through it, so that two
// never change one at once.

// dialDaemon reaches the daemon of this machine; nil if none runs, or if this user
// may not reach it.
func (f *routerFlags) dialDaemon(ctx context.Context) (*daemon.Client, error) {
	c, err := daemon.Dial(ctx, daemon.Socket(f.stateDir))
	if errors.Is(err, daemon.ErrNoDaemon) {
		return nil, nil
	}
	return c, err
}

// daemonStatusTime bounds the question how a daemon is: it always answers at once.
const daemonStatusTime = 10 * time.Second

// kept are the WANs of the router that a daemon keeps; nil if none runs.
func (f *routerFlags) kept(ctx context.Context) (*daemon.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, daemonStatusTime)
	defer cancel()
	c, err := f.dialDaemon(ctx)
	if c == nil || err != nil {
		return nil, err
	}
	defer c.Close()
	var s daemon.Status
	if err := c.Call(ctx, daemon.MethodStatus, "", "", nil, &s); err != nil {
		return nil, err
	}
	s.WANs = slices.DeleteFunc(s.WANs, func(w daemon.WANStatus) bool { return w.Router != f.router })
	return &s, nil
}

// asDaemon chooses the way of shaping that a running daemon uses, where there are
// several: a command on another way would fight with it.
func (f *routerFlags) asDaemon(ctx context.Context) {
	if f.ownTC || f.finalDir { // chosen, or the watchdog, which is told
		return
	}
	s, err := f.kept(ctx)
	if err != nil || s == nil {
		return
	}
	f.ownTC = slices.ContainsFunc(s.WANs, func(w daemon.WANStatus) bool { return w.OwnTC })
}

// keeps reports whether a daemon keeps a WAN of the router.
func (f *routerFlags) keeps(ctx context.Context, wan string) (bool, error) {
	s, err := f.kept(ctx)
	if err != nil || s == nil {
		return false, err
	}
	return slices.ContainsFunc(s.WANs, func(w daemon.WANStatus) bool { return w.WAN == wan }), nil
}

// differs compares a WAN with what was applied to it. A line that the daemon follows
// has other rates on purpose, and the daemon compares all else itself.
func (f *routerFlags) differs(ctx context.Context, r *router, wan string) ([]string, error) {
	if s, err := f.kept(ctx); err != nil {
		return nil, err
	} else if s != nil && slices.ContainsFunc(s.WANs, func(w daemon.WANStatus) bool { return w.WAN == wan && w.State == supervise.InPlace && w.Line != nil }) {
		return nil, nil
	}
	return r.engine.Drift(ctx, wan)
}

// askDaemon calls a method of a running daemon that keeps the WAN. done is false
// if there is none.
func (f *routerFlags) askDaemon(ctx context.Context, method, wan string, params, result any) (done bool, err error) {
	if is, err := f.keeps(ctx, wan); err != nil || !is {
		return false, err
	}
	c, err := f.dialDaemon(ctx)
	if c == nil || err != nil {
		return false, err
	}
	defer c.Close()
	return true, c.Call(ctx, method, f.router, wan, params, result)
}

// thereError gives an error of the daemon its exit code.
func thereError(e *daemon.Error) error {
	switch e.Code {
	case daemon.CodeUsage:
		return cli.Exit(cli.Usage, e)
	case daemon.CodePrecondition, daemon.CodeBusy, daemon.CodeUnknownWAN:
		return cli.Exit(cli.Precondition, e)
	}
	return cli.Exit(cli.Failed, e)
}

// printDaemon says how a running daemon keeps the WANs.
func (s *routerStatus) printDaemon(w io.Writer) {
	if s.Daemon == nil {
		return
	}
	for _, x := range s.Daemon.WANs {
		fmt.Fprintf(w, "The daemon: %s.\n", x.Says())
		if x.Mends > 0 {
			by := ""
			if x.By != "" {
				by = " after " + x.By
			}
			fmt.Fprintf(w, "  It has put it back %d times, at %s the last time%s: %s\n", x.Mends, localText(x.Mended), by, strings.Join(x.Was, "; "))
		}
	}
	if s.Daemon.Careful != "" {
		fmt.Fprintf(w, "WARNING: %s\n", s.Daemon.Careful)
	}
	if s.Daemon.Failure != "" {
		fmt.Fprintf(w, "WARNING: the daemon could not read its configuration again: %s\n", s.Daemon.Failure)
	}
}

// examineDaemon adds to a report what keeps a running daemon from its work.
func (f *routerFlags) examineDaemon(ctx context.Context, r *platform.DoctorReport) error {
	s, err := f.kept(ctx)
	if err != nil || s == nil {
		return err
	}
	if s.Failure != "" {
		r.Findings = append(r.Findings, platform.Finding{ID: "daemon-config", What: "the daemon could not read its configuration again: " + s.Failure,
			Why: "it goes on with the old one, and would not start again", Remedy: "correct it; unbloat daemon --check --config " + s.Config + " checks it"})
	}
	if s.Careful != "" {
		r.Findings = append(r.Findings, platform.Finding{ID: "daemon-crashes", What: s.Careful, Why: "the rates are held, so a line that varies has queues again", Remedy: "see the daemon's log; then reload it (SIGHUP)"})
	}
	for _, w := range s.WANs {
		x := platform.Finding{ID: "daemon", Blocking: true, What: w.Says(), Why: "the daemon can't keep the shaping in place", Remedy: "remove that obstacle; the daemon tries again by itself"}
		switch w.State {
		case supervise.Contested:
			x.ID, x.Remedy = "daemon-contested", "stop the other program; then: unbloat apply --again --yes --wan "+w.WAN
		case supervise.Foreign:
			x.ID, x.Remedy = "daemon-foreign", "remove the other shaper, or take over from it: unbloat apply --again --yes --replace --wan "+w.WAN
		case supervise.Suspended:
			x.ID, x.Blocking, x.Why, x.Remedy = "daemon-off", false, "nothing shapes it", "unbloat apply --again --yes --wan "+w.WAN
		case supervise.Waiting, supervise.Failing:
		default:
			continue
		}
		r.Findings = append(r.Findings, x)
		r.OK = r.OK && !x.Blocking
	}
	return nil
}

// sayNotes prints what the daemon says besides.
func (f *routerFlags) sayNotes(c *cobra.Command, notes []string) {
	if f.quiet {
		return
	}
	for _, n := range notes {
		cli.Say(c.ErrOrStderr(), "Note: %s.", n)
	}
}

// applyThere applies a plan through a running daemon; done is false if none keeps
// the plan's WAN.
func (f *applyFlags) applyThere(c *cobra.Command, p plan.Plan) (done bool, err error) {
	var out daemon.Applied
	done, err = f.askDaemon(c.Context(), daemon.MethodApply, p.WAN, daemon.ApplyParams{Plan: p, Confirm: f.confirm.Seconds(), Yes: f.yes, Replace: f.replace}, &out)
	if err != nil || !done {
		return done, err
	}
	if f.persist {
		out.Notes = append(out.Notes, "the daemon applies it at every boot")
	}
	f.sayNotes(c, out.Notes)
	return true, f.report(c, out.State, out.Plan, out.Commands, "")
}

// onThere has a running daemon put its WAN in place again, and turn it on if it is
// off; done is false if none keeps it.
func (f *applyFlags) onThere(c *cobra.Command) (done bool, err error) {
	s, err := f.kept(c.Context())
	if err != nil || s == nil {
		return false, err
	}
	s.WANs = slices.DeleteFunc(s.WANs, func(w daemon.WANStatus) bool { return f.wan != "" && w.WAN != f.wan })
	switch len(s.WANs) {
	case 0:
		return false, nil
	case 1:
	default:
		return false, cli.UsageError("apply: --again: the daemon keeps several WANs; say which with --wan")
	}
	var out daemon.WANStatus
	if _, err := f.askDaemon(c.Context(), daemon.MethodOn, s.WANs[0].WAN, daemon.OnParams{Replace: f.replace}, &out); err != nil {
		return true, err
	}
	if f.json {
		return true, cli.PrintJSON(c.OutOrStdout(), out)
	}
	if !f.quiet {
		fmt.Fprintf(c.OutOrStdout(), "The daemon: %s.\n", out.Says())
	}
	return true, nil
}

// revertThere reverts through a running daemon what it keeps of the router: wan, or
// all.
func (f *routerFlags) revertThere(c *cobra.Command, wan string) (done []apply.Reverted, handled []string, forgot bool, err error) {
	s, err := f.kept(c.Context())
	if err != nil || s == nil {
		return nil, nil, false, err
	}
	for _, w := range s.WANs {
		if wan != "" && w.WAN != wan {
			continue
		}
		var out daemon.Reverted
		if _, err := f.askDaemon(c.Context(), daemon.MethodRevert, w.WAN, nil, &out); err != nil {
			return done, handled, forgot, err
		}
		done, handled, forgot = append(done, out.Reverted...), append(handled, w.WAN), forgot || out.Forgot
		f.sayNotes(c, out.Notes)
		if out.Suspended && !f.quiet && !f.json {
			fmt.Fprintf(c.OutOrStdout(), "%s is off: the daemon leaves it alone until the next apply.\n", w.WAN)
		}
	}
	return done, handled, forgot, nil
}

// takeTurn has a running daemon leave the router to this command until release is
// called, or this process ends. wan "" is all that it keeps there. keepOn: it keeps
// the shaping in place meanwhile, and lets nobody else change it.
func (f *routerFlags) takeTurn(ctx context.Context, command, wan string, keepOn bool) (release func(), err error) {
	release = func() {}
	if is, err := f.kept(ctx); err != nil || is == nil || !slices.ContainsFunc(is.WANs, func(w daemon.WANStatus) bool { return wan == "" || w.WAN == wan }) {
		return release, err
	}
	c, err := f.dialDaemon(ctx)
	if c == nil || err != nil {
		return release, err
	}
	if err := c.Call(ctx, daemon.MethodTurn, f.router, wan, daemon.TurnParams{For: command, KeepOn: keepOn}, nil); err != nil {
		c.Close()
		return release, err
	}
	return func() { c.Close() }, nil
}
