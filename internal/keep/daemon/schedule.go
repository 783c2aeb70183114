package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"unbloat/internal/keep/config"
)

// Times of the schedule.
const (
	scheduleEvery = 20 * time.Second // a clock that was set is noticed within this time
	mostPostponed = time.Hour        // that a test or a tuning waits for another to end
)

// A schedule is the part of a WAN that knows which entries of the schedule hold for it.
type schedule struct {
	holds  []config.Entry // now; only the WAN's loop changes them
	taking atomic.Bool    // the loop is to take in what holds
}

// entriesOf returns those of a WAN that hold at a time.
func entriesOf(w config.WAN, all []config.Entry, now time.Time) []config.Entry {
	return slices.DeleteFunc(slices.Clone(all), func(e config.Entry) bool { return e.WAN != w.Interface || e.Router != w.Router || !e.Holds(now) })
}

// hold has entries hold, whatever the time is.
func (s *schedule) hold(entries []config.Entry) { s.holds = entries }

// take has those of a WAN hold that do at a time, and says for people what is different; "":
// nothing is.
func (s *schedule) take(w config.WAN, all []config.Entry, now time.Time) (says string) {
	entries := entriesOf(w, all, now)
	if config.SameEntries(entries, s.holds) {
		return ""
	}
	s.hold(entries)
	switch len(entries) {
	case 0:
		return "no entry of the schedule applies any more"
	case 1:
		return entries[0].Says()
	}
	return fmt.Sprintf("%d entries of the schedule apply", len(entries))
}

// alone does f, unless the last one goes on: a loop that is stuck is not asked again.
func (s *schedule) alone(f func()) {
	if s.taking.CompareAndSwap(false, true) {
		defer s.taking.Store(false)
		f()
	}
}

// An appointment is a test or a tuning that is due.
type appointment struct {
	config.Entry
	until time.Time // when it is too late
}

// appointments are those that have not begun. Each is due once a day, whatever is done to the
// clock.
type appointments struct {
	last    time.Time               // when they were looked at
	done    map[config.Entry]string // the day of the last time
	waiting []appointment
}

// look has what is due by now meet what it waits for; meets returns false if it waits on.
func (l *appointments) look(all []config.Entry, now time.Time, meets func(appointment) bool) {
	for _, e := range all {
		at, due := e.Due(l.last.Round(0), now.Round(0)) // by the wall clock, which may be set back
		if day := at.Format(time.DateOnly); due && l.done[e] != day {
			l.done[e] = day
			l.waiting = append(l.waiting, appointment{e, now.Add(mostPostponed)})
		}
	}
	l.last = now
	l.waiting = slices.DeleteFunc(l.waiting, meets)
}

// keepSchedule does what the schedule says until ctx ends. A WAN whose router does not
// answer delays no other, and no appointment what holds.
func (d *Daemon) keepSchedule(ctx context.Context) {
	var parts sync.WaitGroup
	parts.Go(func() {
		due := appointments{last: d.now(), done: map[config.Entry]string{}}
		every(ctx, scheduleEvery, func() {
			now := d.now()
			due.look(d.entries(now), now, func(a appointment) bool { return d.meets(ctx, a, now) })
		})
	})
	every(ctx, scheduleEvery, func() {
		now := d.now()
		d.memory.over(now)
		all := d.entries(now)
		for _, w := range d.all() {
			take := func(context.Context) (any, error) { w.scheduled(all, now); w.returns(ctx); return nil, nil }
			parts.Go(func() { w.schedule.alone(func() { _, _ = w.call(ctx, take) }) })
		}
	})
	parts.Wait()
}

// entries are those of the schedule, and what a person has asked for a while, at a time.
func (d *Daemon) entries(now time.Time) []config.Entry {
	d.mu.Lock()
	all := d.config.Schedule
	d.mu.Unlock()
	return d.memory.with(all, now)
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

// scheduled takes in which of all entries hold at a time, unless others are tried out. It
// belongs to the loop.
func (w *wan) scheduled(all []config.Entry, now time.Time) {
	if p := w.changes.pending; p != nil && p.planned != nil {
		return
	}
	if says := w.schedule.take(w.config, all, now); says != "" {
		w.cause, w.plan = causeSchedule, nil
		w.supervisor.Afresh(time.Now())
		w.d.log("%s: %s", w.config.Name(), says)
	}
}

// wanted returns the WAN as it is to be now.
func (w *wan) wanted() config.WAN { return w.config.During(w.schedule.holds) }
