package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/internal/keep/config"
	"unbloat/internal/keep/supervise"
)

// Bounds of what a person asks for a while.
const (
	leastPassing = time.Minute
	mostPassing  = 7 * 24 * time.Hour
)

// A passing is what a person has asked for a while: it ends by itself, over restarts too.
type passing struct {
	Key     string    `json:"key"` // of the WAN
	WAN     string    `json:"wan"`
	Router  string    `json:"router,omitempty"`
	Machine string    `json:"first,omitempty"` // goes first; "": the WAN is off
	Until   time.Time `json:"until"`
}

// entry is what a machine that goes first is in the schedule.
func (p passing) entry() config.Entry {
	e := config.Entry{Do: config.DoFirst, WAN: p.WAN, Router: p.Router, Machine: p.Machine} // from midnight to midnight
	for i := range e.Days {
		e.Days[i] = true
	}
	return e
}

// with returns the entries of a schedule, and what holds for a while now.
func (m *memory) with(entries []config.Entry, now time.Time) []config.Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := slices.Clone(entries)
	for _, p := range m.passing {
		if p.Machine != "" && now.Before(p.Until) {
			out = append(out, p.entry())
		}
	}
	return out
}

// until returns when a WAN that is off for a while is on again; zero: no time.
func (m *memory) until(key string) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.passing {
		if p.Key == key && p.Machine == "" {
			return p.Until
		}
	}
	return time.Time{}
}

// pass remembers something for a while, in place of what is the same of that WAN; without a
// time that is forgotten alone.
func (m *memory) pass(p passing) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.passing = slices.DeleteFunc(m.passing, func(x passing) bool { return x.Key == p.Key && x.Machine == p.Machine })
	if !p.Until.IsZero() {
		m.passing = append(m.passing, p)
	}
	return m.write()
}

// over forgets what is over.
func (m *memory) over(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(m.passing)
	m.passing = slices.DeleteFunc(m.passing, func(p passing) bool { return p.Machine != "" && !now.Before(p.Until) })
	if len(m.passing) != n {
		_ = m.write() // what is over holds no longer, whatever the file says
	}
}

// While does something for a while: no shaping, or a machine first. It is taken back by
// itself.
func (c *Caller) While(ctx context.Context, at Name, p WhileParams) (While, error) {
	lasts := time.Duration(p.Seconds * float64(time.Second))
	if p.Seconds != 0 && (lasts < leastPassing || lasts > mostPassing) {
		return While{}, &Error{CodeUsage, fmt.Sprintf("for a while: from %s to %s are possible, and 0 ends it", leastPassing, mostPassing)}
	}
	if p.Do != WhileOff && p.Do != WhileFirst {
		return While{}, &Error{CodeUsage, fmt.Sprintf("for a while: %q: must be %s or %s", p.Do, WhileOff, WhileFirst)}
	}
	if p.Do == WhileFirst && (p.Machine == "" || strings.ContainsAny(p.Machine, " \t\n\"")) {
		return While{}, &Error{CodeUsage, fmt.Sprintf("for a while: machine %q: must be a machine's address, MAC address or name", p.Machine)}
	}
	return on(ctx, c.d, at, func(ctx context.Context, w *wan) (out While, err error) {
		is := passing{Key: w.key, WAN: w.name, Router: w.routerName}
		if p.Seconds != 0 {
			is.Until = w.d.now().Add(lasts).Round(0).Truncate(time.Second)
			out.Until = is.Until.UTC().Format(time.RFC3339)
		}
		if p.Do == WhileOff {
			return out, w.offWhile(ctx, c, is)
		}
		is.Machine = p.Machine
		return out, w.firstWhile(c, is)
	})
}

// offWhile turns the WAN off until a time; zero: on again.
func (w *wan) offWhile(ctx context.Context, c *Caller, p passing) error {
	if p.Until.IsZero() {
		_, err := w.on(ctx, c, OnParams{})
		return err
	}
	if w.supervisor.State() == supervise.Suspended && w.d.memory.until(w.key).IsZero() {
		return &Error{CodePrecondition, fmt.Sprintf("turn %s off for a while: it is off already; turn it on with: unbloat apply --again --yes --wan %s", w.config.Name(), w.name)}
	}
	if w.supervisor.State() != supervise.Suspended {
		if _, err := w.revert(ctx, c); err != nil {
			return err
		}
	}
	err := w.d.memory.pass(p)
	w.publish()
	return err
}

// firstWhile has a machine go first until a time; zero: as before.
func (w *wan) firstWhile(c *Caller, p passing) error {
	if err := w.busy(c); err != nil {
		return err
	}
	if !p.Until.IsZero() {
		if w.plan == nil || w.plan.Classes == nil {
			return &Error{CodePrecondition, fmt.Sprintf("let %s go first: %s has no classes now; they need the shaping, and classes = \"on\"", p.Machine, w.config.Name())}
		}
		want := w.config
		want.Rules = []plan.Rule{{Name: p.Machine, Class: plan.Voice, Home: []string{p.Machine}}}
		if _, err := plan.Make(want.PlanLine(), w.plan.Basis.Capabilities, plan.Preferences{AQM: want.AQM, Classes: plan.ClassPreferences{Rules: want.Rules}}); err != nil {
			return &Error{CodeUsage, fmt.Sprintf("let %q go first: %v", p.Machine, err)}
		}
	}
	if err := w.d.memory.pass(p); err != nil {
		return err
	}
	now := w.d.now()
	w.scheduled(w.d.entries(now), now)
	return nil
}

// returns turns a WAN on whose time off is over. It belongs to the loop.
func (w *wan) returns(ctx context.Context) {
	until := w.d.memory.until(w.key)
	if until.IsZero() || w.d.now().Before(until) || w.supervisor.State() != supervise.Suspended {
		return
	}
	if _, err := w.on(ctx, &Caller{d: w.d, name: bySchedule}, OnParams{}); err != nil {
		w.d.trouble("%s: its time off is over: %v", w.config.Name(), err)
		return
	}
	w.d.log("%s: its time off is over; it is on again", w.config.Name())
}
