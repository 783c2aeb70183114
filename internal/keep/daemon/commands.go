package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/keep/config"
	"unbloat/internal/keep/supervise"
)

// This file has what a caller may ask of one WAN. All of it runs in the loop.

// busy returns an error if somebody else has the turn.
func (w *wan) busy(asks *Caller) error {
	if w.holder != nil && w.holder != asks {
		return &Error{CodeBusy, fmt.Sprintf("change %s: `unbloat %s` is working on it; wait for it to end", w.config.Name(), w.holder.does)}
	}
	return nil
}

// apply applies a plan that a person gave.
func (w *wan) apply(ctx context.Context, from *Caller, a ApplyParams) (out Applied, err error) {
	if err := errors.Join(w.busy(from), w.changes.pending.busy()); err != nil {
		return out, err
	}
	unlock, err := w.reach(ctx)
	if err != nil {
		return out, err
	}
	defer unlock()
	p := a.Plan.In(w.router.Driver.Language)
	if err := platform.CheckPlan(p, w.router.Driver.Language); err != nil {
		return out, err
	}
	p = w.withMachines(p)
	w.abandon()
	engine := w.router.Engine
	if a.Replace {
		engine = w.router.Taking
	}
	t, err := engine.Begin(ctx, p, apply.Options{Confirm: max(time.Duration(a.Confirm*float64(time.Second)), time.Second), Hold: a.Yes})
	if err != nil {
		return out, err
	}
	defer t.Close()
	out = Applied{State: "armed", WAN: p.WAN, Commands: commands(t.Ran), Plan: p}
	if a.Yes || t.Unchanged {
		if err := t.Commit(); err != nil {
			return out, err
		}
		out.State = "committed"
		out.Notes = w.committed()
	}
	if len(t.Ran) == 0 {
		out.State = "unchanged"
	} else {
		w.happened(EventApplied, from.by(), UndoneNo, "", t.Differed...)
	}
	w.supervisor.Changed(time.Now())
	return out, nil
}

// withMachines adds to a plan that a person gave the rules and limits of machines that the
// configuration and the schedule have: who gives other rates does not mean to lose them.
func (w *wan) withMachines(p plan.Plan) plan.Plan {
	if p.Basis == nil {
		return p
	}
	b, own := *p.Basis, w.wanted().Preferences()
	given := b.Preferences
	if given.Classes.Use != plan.ClassesOff {
		b.Preferences.Classes.Rules = append(missing(own.Classes.Rules, given.Classes.Rules, plan.Rule.String), given.Classes.Rules...)
	}
	b.Preferences.Limits = append(missing(own.Limits, given.Limits, func(l plan.HardLimit) string { return l.Machine }), given.Limits...)
	if len(b.Preferences.Classes.Rules) == len(given.Classes.Rules) && len(b.Preferences.Limits) == len(given.Limits) {
		return p
	}
	made, err := plan.Make(b.Line, b.Capabilities, b.Preferences)
	if err != nil { // this line can't have them, and its configuration would have said so
		return p
	}
	return made
}

// missing returns those of own that given has not, by a key.
func missing[T any](own, given []T, key func(T) string) []T {
	return slices.DeleteFunc(own, func(x T) bool {
		return slices.ContainsFunc(given, func(y T) bool { return key(x) == key(y) })
	})
}

func commands(steps []platform.Step) []string {
	out := []string{}
	for _, s := range steps {
		out = append(out, s.String())
	}
	return out
}

// committed goes on with what a person has committed.
func (w *wan) committed() (notes []string) {
	_, notes = w.adopt()
	w.supervisor.Own()
	if err := w.d.memory.set(w.key, false); err != nil {
		notes = append(notes, err.Error())
	}
	w.supervisor.Resume(time.Now())
	if w.plan != nil { // with all that a tuning has found, not the rates alone
		w.supervisor.Planned()
	}
	return append(notes, w.differs()...)
}

// differs says if the configuration makes another plan than the one that is kept:
// the next start would change it.
func (w *wan) differs() []string {
	if w.plan == nil || w.plan.Basis == nil {
		return nil
	}
	b := *w.plan.Basis
	c := w.wanted()
	want, err := plan.Make(c.PlanLine(), b.Capabilities, c.Preferences())
	if err != nil || w.config.ClassFile() != "" {
		return nil
	}
	if want.AQM != w.plan.AQM || (want.Classes == nil) != (w.plan.Classes == nil) || want.DownBps != w.plan.DownBps || want.UpBps != w.plan.UpBps {
		return []string{fmt.Sprintf("the configuration differs from what is kept now (%s, %s down, %s up); it applies when the daemon starts again or is reloaded", want.AQM, want.DownBps, want.UpBps)}
	}
	return nil
}

// confirm keeps a change that waits for it.
func (w *wan) confirm(ctx context.Context, from *Caller) (out Applied, err error) {
	if err := w.busy(from); err != nil {
		return out, err
	}
	if p := w.changes.pending; p != nil {
		return w.keepChange(ctx, p)
	}
	if err := w.open(ctx); err != nil {
		return out, err
	}
	j, err := w.router.Engine.Confirm(ctx, w.config.Interface, nil)
	if err != nil {
		return out, err
	}
	w.supervisor.Changed(time.Now()) // it no longer waits
	w.happened(EventConfirmed, from.by(), UndoneNo, "")
	return Applied{State: "committed", WAN: j.WAN, Commands: []string{}, Plan: j.Plan, Notes: w.committed()}, nil
}

// revert takes back what is there, and leaves the WAN alone from then on unless
// only an unconfirmed change was taken back.
func (w *wan) revert(ctx context.Context, from *Caller) (out Reverted, err error) {
	if err := w.busy(from); err != nil {
		return out, err
	}
	if p := w.changes.pending; p != nil {
		return Reverted{Reverted: []apply.Reverted{}}, w.undoChange(ctx, p, EventReverted, from.by())
	}
	unlock, err := w.reach(ctx)
	if err != nil {
		return out, err
	}
	defer unlock()
	w.abandon()
	out = Reverted{Reverted: []apply.Reverted{}}
	pending, err := w.router.Engine.Pending(w.config.Interface)
	if err != nil {
		return out, err
	}
	alone := pending != nil && pending.Phase == apply.Armed
	if !alone {
		w.supervisor.Suspend()
		out.Suspended = true
		if err := w.d.memory.set(w.key, true); err != nil {
			out.Notes = append(out.Notes, err.Error())
		}
	}
	r, done, err := w.router.Engine.Revert(ctx, w.bare())
	if err != nil {
		return out, err
	}
	if done {
		out.Reverted = append(out.Reverted, r)
	}
	if alone {
		w.happened(EventReverted, from.by(), UndoneNo, "")
	} else {
		w.happened(EventOff, from.by(), UndoneNo, "")
	}
	w.changes.forget()
	if alone {
		w.plan = nil
		w.supervisor.Afresh(time.Now())
		return out, nil
	}
	if w.router.Persister != nil {
		if out.Forgot, err = w.router.Persister.Forget(ctx); err != nil {
			return out, err
		}
	}
	return out, nil
}

// on ends a suspension, and looks at the WAN at once: it is put in place, or the
// error says why not.
func (w *wan) on(ctx context.Context, from *Caller, p OnParams) (out WANStatus, err error) {
	if err := errors.Join(w.busy(from), w.changes.pending.busy()); err != nil {
		return out, err
	}
	was := w.supervisor.State()
	if err := w.d.memory.set(w.key, false); err != nil {
		w.d.trouble("%s: %v", w.name, err)
	}
	w.resume(p.Replace)
	if was == supervise.Suspended {
		w.happened(EventOn, from.by(), UndoneNo, "")
	}
	w.publish()
	if w.failure != nil {
		return out, w.failure
	}
	s, _ := w.snapshot()
	return s, nil
}

// turn gives the WAN to a client until it says that it is done, or goes away.
func (w *wan) turn(from *Caller, keepOn bool) error {
	if err := errors.Join(w.busy(from), w.changes.pending.busy()); err != nil {
		return err
	}
	if !keepOn {
		w.abandon()
		w.supervisor.Hold()
	}
	w.holder = from
	return nil
}

// release takes the WAN back.
func (w *wan) release(from *Caller) {
	if w.holder != from {
		return
	}
	w.holder = nil
	w.supervisor.Release(time.Now())
	if w.router == nil {
		return
	}
	if adopted, _ := w.adopt(); adopted { // what was kept turns a WAN on that was off
		w.committed()
	}
	w.publish()
}

// stop ends the keeping, when the loop has ended: the shaping stays, or is taken back.
func (w *wan) stop(ctx context.Context, how config.Stop) error {
	defer w.close()
	if err := w.undoChange(ctx, w.changes.pending, EventReverted, ""); err != nil {
		return err
	}
	if how != config.StopRevert || w.supervisor.State() == supervise.Suspended {
		return nil
	}
	unlock, err := w.reach(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	_, _, err = w.router.Engine.Revert(ctx, apply.Journal{WAN: w.config.Interface, Plan: plan.Plan{Schema: plan.Schema, Platform: w.router.Driver.Name(), WAN: w.config.Interface}})
	return err
}

// reload takes a new configuration of the same WAN, and what its schedule says now.
func (w *wan) reload(c config.WAN) {
	if err := w.undoChange(context.Background(), w.changes.pending, EventReverted, ""); err != nil {
		w.d.trouble("%s: %v", w.config.Name(), err)
	}
	now, again := w.d.now(), c.Platform != w.config.Platform
	w.abandon()
	w.schedule.take(c, w.d.entries(now), now)
	w.config, w.cause = c, causeStart
	if again {
		w.close()
	}
	w.plan = nil
	w.supervisor.Afresh(time.Now())
}

// whyFlow tells a flow's class by what is in force.
func (w *wan) whyFlow(ctx context.Context, p WhyParams) (any, error) {
	if err := w.open(ctx); err != nil {
		return nil, err
	}
	in := w.plan
	if j, err := w.router.Engine.Pending(w.config.Interface); err == nil && j != nil {
		in = &j.Plan
	} else if s := w.supervisor.State(); in == nil || s == supervise.Suspended || s == supervise.Foreign || s == supervise.Contested {
		return nil, &platform.PreconditionError{Doing: "tell a flow's class", What: fmt.Sprintf("no plan is applied on %s: it is %s", w.config.Name(), s), Remedy: "turn it on with: unbloat apply --again --yes --wan " + w.config.Interface}
	}
	return w.router.Why(ctx, *in, p)
}
