package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"unbloat/internal/keep/config"
)

// Times of the schedule.
const (
	scheduleEvery = 20 * time.Second // a clock that was set is noticed within this time
	mostPostponed = time.Hour        // that a test or a tuning waits for another to end
)

// An appointment is a test or a tuning that is due.
type appointment struct {
	config.Entry
	until time.Time // when it is too late
}

// keepSchedule does what the schedule says until ctx ends. A WAN whose router does not
// answer delays no other, and no appointment what holds.
func (d *Daemon) keepSchedule(ctx context.Context) {
	var parts sync.WaitGroup
	parts.Go(func() {
		d.everySchedule(ctx, func(now time.Time, entries []config.Entry) {
			d.memory.over(now)
			holds := holding(d.memory.with(entries, now), now)
			for _, w := range d.all() {
				if !w.scheduling.CompareAndSwap(false, true) {
					continue // it has not taken in the last one yet
				}
				parts.Go(func() {
					defer w.scheduling.Store(false)
					_, _ = w.call(ctx, func(context.Context) (any, error) { w.scheduled(holds); w.returns(ctx); return nil, nil })
				})
			}
		})
	})
	parts.Go(func() { d.keepAppointments(ctx) })
	parts.Wait()
}

// keepAppointments does what is due at a time.
func (d *Daemon) keepAppointments(ctx context.Context) {
	last := d.now()
	var waiting []appointment
	done := map[config.Entry]string{} // the day of the last time
	d.everySchedule(ctx, func(now time.Time, entries []config.Entry) {
		for _, e := range entries {
			at, due := e.Due(last.Round(0), now.Round(0)) // by the wall clock, which may be set back
			if day := at.Format(time.DateOnly); due && done[e] != day {
				done[e] = day
				waiting = append(waiting, appointment{e, now.Add(mostPostponed)})
			}
		}
		last = now
		waiting = slices.DeleteFunc(waiting, func(a appointment) bool { return d.meets(ctx, a, now) })
	})
}

// everySchedule calls do with the schedule now and then until ctx ends.
func (d *Daemon) everySchedule(ctx context.Context, do func(now time.Time, entries []config.Entry)) {
	tick := time.NewTicker(scheduleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := d.now()
		d.mu.Lock()
		entries := slices.Clone(d.config.Schedule)
		d.mu.Unlock()
		do(now, entries)
	}
}

// holding returns the entries that hold at a time.
func holding(entries []config.Entry, now time.Time) []config.Entry {
	return slices.DeleteFunc(slices.Clone(entries), func(e config.Entry) bool { return !e.Holds(now) })
}

// entriesOf returns those of a WAN that hold at a time.
func entriesOf(w config.WAN, all []config.Entry, now time.Time) []config.Entry {
	return slices.DeleteFunc(holding(all, now), func(e config.Entry) bool { return e.WAN != w.Interface || e.Router != w.Router })
}

// meets starts a test or a tuning. It returns false if that has to wait for
// another.
func (d *Daemon) meets(ctx context.Context, a appointment, now time.Time) bool {
	w, err := d.find(Name{a.WAN, a.Router})
	if err == nil {
		if a.Do == config.DoTune {
			_, err = d.begin(ctx, nil, w, MethodTune, TuneParams{}, false)
		} else {
			_, err = d.begin(ctx, nil, w, MethodTest, TestParams{Label: "schedule"}, false)
		}
	}
	var refused *Error
	if errors.As(err, &refused) && refused.Code == CodeBusy && now.Before(a.until) {
		return false
	}
	if err != nil {
		d.trouble("%s: schedule: %s: %v", a.WAN, a.Do, err)
	} else {
		d.log("%s: schedule: %s begins", a.WAN, a.Do)
	}
	return true
}

// scheduled takes in which entries of the schedule hold now. It belongs to the loop.
func (w *wan) scheduled(entries []config.Entry) {
	entries = slices.DeleteFunc(entries, func(e config.Entry) bool { return e.WAN != w.config.Interface || e.Router != w.config.Router })
	if config.SameEntries(entries, w.entries) || w.changes.pending != nil && w.changes.pending.planned != nil {
		return
	}
	w.entries = entries
	w.cause = causeSchedule
	w.plan = nil
	w.supervisor.Afresh(time.Now())
	says := "no entry of the schedule applies any more"
	for i, e := range entries {
		if says = e.Says(); i > 0 {
			says = fmt.Sprintf("%d entries of the schedule apply", len(entries))
		}
	}
	w.d.log("%s: %s", w.config.Name(), says)
}

// wanted returns the WAN as it is to be now.
func (w *wan) wanted() config.WAN { return w.config.During(w.entries) }
