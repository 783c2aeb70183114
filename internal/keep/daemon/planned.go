package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"unbloat/internal/keep/config"
	"unbloat/internal/keep/supervise"
)

// A planned schedule is one that somebody asked for.
type planned struct {
	tables   []config.EntryTable
	was, now []config.Entry // all, before and after
	holding  []config.Entry // of the WAN that it is tried out on
}

// says tells what is different for a WAN, for people.
func (p *planned) says(at Name) (out []string) {
	of := func(sign string, all, without []config.Entry) {
		for _, e := range all {
			if at == (Name{e.WAN, e.Router}) && !slices.ContainsFunc(without, func(x config.Entry) bool { return config.SameEntries([]config.Entry{x}, []config.Entry{e}) }) {
				out = append(out, sign+e.Says())
			}
		}
	}
	of("- ", p.was, p.now)
	of("+ ", p.now, p.was)
	return out
}

// plans notes a schedule that waits for its confirmation; nil: none does.
func (d *Daemon) plans(p *planned) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.planned = p
}

// Schedule returns the schedule, or has another one.
func (c *Caller) Schedule(ctx context.Context, _ Name, p ScheduleParams) (out Schedule, err error) {
	d := c.d
	if p.Entries == nil {
		return d.schedule(nil), nil
	}
	if err := waitTime(&p.Confirm); err != nil {
		return out, err
	}
	d.scheduleMu.Lock()
	defer d.scheduleMu.Unlock()
	d.mu.Lock()
	waits, was := d.planned != nil, slices.Clone(d.config.Schedule)
	d.mu.Unlock()
	if waits {
		return out, &Error{CodeBusy, "change the schedule: another change of it waits for its confirmation; keep it, or take it back"}
	}
	now, err := d.wouldPlan(ctx, *p.Entries)
	if err != nil {
		return out, err
	}
	if config.SameEntries(was, now) {
		return out, &Error{CodeSame, "change the schedule: it is so already"}
	}
	asked := &planned{tables: *p.Entries, was: was, now: now}
	at := d.now()
	var holds []*wan // those that are another way at once
	for _, w := range d.all() {
		other, err := within(ctx, w, func(context.Context) (bool, error) {
			return w.supervisor.State() != supervise.Suspended && !config.SameEntries(entriesOf(w.config, was, at), entriesOf(w.config, now, at)), nil
		})
		if err != nil {
			return out, err
		}
		if other {
			holds = append(holds, w)
		}
	}
	switch len(holds) {
	case 0:
		if err := d.writeSchedule(asked.tables); err != nil {
			return out, err
		}
		for _, w := range d.all() {
			if says := asked.says(Name{w.name, w.routerName}); len(says) > 0 {
				w.happened(EventConfirmed, c.by(), UndoneNo, "", says...)
			}
		}
		return d.schedule(nil), nil
	case 1:
	default:
		return out, &Error{CodeUsage, "change the schedule: that would change several lines now; change the entries of one line, keep that, and go on with the next"}
	}
	w := holds[0]
	asked.holding = entriesOf(config.WAN{Interface: w.name, Router: w.routerName}, d.memory.with(now, at), at)
	change, err := within(ctx, w, func(ctx context.Context) (none Change, err error) {
		if err := errors.Join(w.busy(c), w.changes.pending.busy()); err != nil {
			return none, err
		}
		p := w.begins(c, p.Confirm)
		p.kind, p.planned = ChangePlan, asked
		if err := w.tryOut(ctx, p, w.config, asked.holding); err != nil {
			return none, err
		}
		d.plans(asked)
		return w.await(p), nil
	})
	if err != nil {
		return out, err
	}
	return d.schedule(&ScheduleChange{WAN: w.name, Router: w.routerName, Change: change}), nil
}

// schedule returns the schedule as it is to be, with the change that waits.
func (d *Daemon) schedule(waits *ScheduleChange) Schedule {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.config.Schedule
	if d.planned != nil {
		all = d.planned.now
	}
	out := Schedule{Entries: []config.EntryTable{}, Change: waits}
	for _, e := range all {
		out.Entries = append(out.Entries, e.Table())
	}
	return out
}

// wouldPlan returns the schedule as it would be read from the file, checked as the
// whole configuration is; nothing is written.
func (d *Daemon) wouldPlan(ctx context.Context, tables []config.EntryTable) ([]config.Entry, error) {
	d.fileMu.Lock()
	text, err := os.ReadFile(d.o.File)
	d.fileMu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("change the schedule: read the configuration: %w", err)
	}
	if _, err := config.Parse(d.o.File, text); err != nil {
		return nil, &Error{CodePrecondition, fmt.Sprintf("change the schedule: the configuration file has a mistake: %v", err)}
	}
	out, err := config.SetSchedule(d.o.File, text, tables)
	if err != nil {
		return nil, &Error{CodeUsage, "change the schedule: " + reasonOf(err)}
	}
	c, err := config.Parse(d.o.File, out)
	if err == nil && d.o.Check != nil {
		err = d.o.Check(ctx, c)
	}
	if err != nil {
		return nil, &Error{CodeUsage, "change the schedule: " + reasonOf(err)}
	}
	return c.Schedule, nil
}

// reasonOf is what is wrong with an entry. Where it would stand in the file tells
// nothing to somebody who did not write it there.
func reasonOf(err error) string {
	var at *config.Error
	switch {
	case !errors.As(err, &at):
		return err.Error()
	case at.Key == "":
		return at.Err.Error()
	}
	return at.Key + ": " + at.Err.Error()
}

// writeSchedule writes the schedule into the configuration file; it holds from then on.
func (d *Daemon) writeSchedule(tables []config.EntryTable) error {
	d.fileMu.Lock()
	defer d.fileMu.Unlock()
	text, err := os.ReadFile(d.o.File)
	var out []byte
	if err == nil {
		out, err = config.SetSchedule(d.o.File, text, tables)
	}
	if err == nil {
		err = d.overwrite(text, out)
	}
	if err != nil {
		return fmt.Errorf("write the schedule into the configuration: %w; the old one stays", err)
	}
	c, err := config.Parse(d.o.File, out)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.config.Schedule, d.planned = c.Schedule, nil
	return nil
}

// keepPlanned goes on with a schedule that was tried out and is kept. Its rates are not
// the line's usual ones, so they are not written into the configuration.
func (w *wan) keepPlanned(p *planned) error {
	w.schedule.hold(p.holding)
	w.cause, w.plan = causeSchedule, nil
	w.supervisor.Own()
	w.supervisor.Afresh(time.Now())
	if w.router == nil {
		return nil
	}
	id, err := w.router.Engine.RecordID(w.config.Interface)
	w.changes.learn(id)
	return err
}
