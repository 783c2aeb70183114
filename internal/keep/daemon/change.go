package daemon

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/keep/config"
	"unbloat/internal/keep/supervise"
	"unbloat/unit"
)

// Codes of errors about changes.
const (
	CodeSame     Code = "same"      // it is so already
	CodeNoChange Code = "no_change" // none waits, or it was undone in the meantime
)

// A pending change is in force and waits for its confirmation. Nothing of it is kept
// before that: a daemon that is killed meanwhile starts with what was.
type pending struct {
	id       string
	kind     ChangeKind
	by       string
	deadline time.Time
	seconds  float64
	timer    *time.Timer

	armed      bool       // the router has another plan, in a transaction with a watchdog
	was        config.WAN // the settings before
	wasEntries []config.Entry
	wasOff     bool
	settings   []config.Setting // to be written when it is confirmed
	planned    *planned         // the same; nil: the schedule stays
}

// change returns the pending change as clients see it; nil: none.
func (p *pending) change() *Change {
	if p == nil {
		return nil
	}
	return &Change{ID: p.id, Kind: p.kind, By: p.by, Deadline: p.deadline.UTC().Format(time.RFC3339), Left: max(time.Until(p.deadline).Seconds(), 0), Seconds: p.seconds}
}

// newChangeID returns a number that nobody guesses.
func newChangeID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// busy is an error if a change waits.
func (p *pending) busy() error {
	if p == nil {
		return nil
	}
	return &apply.BusyError{WAN: p.was.Name(), Left: max(time.Until(p.deadline), time.Second)}
}

// waiting is an error unless that change waits; "" is whatever is there.
func (p *pending) waiting(wan, id string) error {
	if id != "" && (p == nil || p.id != id) {
		return &Error{CodeNoChange, fmt.Sprintf("%s: that change does not wait any more; it was confirmed, or undone", wan)}
	}
	return nil
}

// says tells what a change changes, for people.
func (p *pending) says() []string {
	switch p.kind {
	case ChangeOff:
		return []string{"off"}
	case ChangeOn:
		return []string{"on"}
	}
	var out []string
	if p.planned != nil {
		out = p.planned.says(Name{p.was.Interface, p.was.Router})
	}
	for _, s := range p.settings {
		value := cmp.Or(s.Value, strings.Join(s.List, ", "), "-")
		out = append(out, s.Key+" = "+value)
	}
	return out
}

// changes are the part of a WAN that knows which change waits for its confirmation, and
// which one was kept last.
type changes struct {
	pending *pending // nil: none
	record  string   // ID of the last record that is known
}

// await has a change wait, until it is over or has expired.
func (c *changes) await(p *pending, expired func()) {
	wait := time.Duration(p.seconds * float64(time.Second))
	p.deadline = time.Now().Add(wait)
	p.timer = time.AfterFunc(wait, expired)
	c.pending = p
}

// over says that the change is kept, or undone.
func (c *changes) over() {
	c.pending.timer.Stop()
	c.pending = nil
}

// learn takes in the ID of a record that need not be adopted; "": there is no new one.
func (c *changes) learn(id string) { c.record = cmp.Or(id, c.record) }

// forget says that what was recorded is taken back.
func (c *changes) forget() { c.record = "" }

// adopt returns the record of a WAN if that is not known yet, and knows it from then on; nil:
// there is no other.
func (c *changes) adopt(of *apply.Engine, wan string) *apply.Record {
	if id, err := of.RecordID(wan); err != nil || id == "" || id == c.record {
		return nil
	}
	r, err := of.Record(wan)
	if err != nil || r == nil {
		return nil
	}
	c.record = r.ID
	return r
}

// change changes settings of the WAN until they are confirmed.
func (w *wan) change(ctx context.Context, from *Caller, c ChangeParams) (out Change, err error) {
	if err := errors.Join(w.busy(from), w.changes.pending.busy()); err != nil {
		return out, err
	}
	if err := waitTime(&c.Confirm); err != nil {
		return out, err
	}
	p := w.begins(from, c.Confirm)
	settings, kind, err := asked(w.config, c)
	if err != nil {
		return out, err
	}
	next := w.config
	if len(settings) > 0 {
		if next, err = w.d.would(ctx, w.config, settings); err != nil {
			return out, err
		}
	}
	p.kind, p.settings = kind, settings
	off, on := c.On != nil && !*c.On && !p.wasOff, c.On != nil && *c.On && p.wasOff
	switch {
	case off:
		p.kind = ChangeOff
		if err = w.turnOff(ctx); err == nil {
			w.config = next
		}
	case on:
		p.kind = ChangeOn
		w.config, w.plan = next, nil
		err = w.turnOn(ctx, p)
	case len(settings) == 0:
		return out, &Error{CodeSame, fmt.Sprintf("change %s: it is so already", w.config.Name())}
	case p.wasOff:
		w.config, w.plan = next, nil
	default:
		err = w.tryOut(ctx, p, next, w.schedule.holds)
	}
	if err != nil {
		return out, err
	}
	return w.await(p), nil
}

// waitTime checks how long a change waits for its confirmation; 0 becomes the usual
// time.
func waitTime(seconds *float64) error {
	if *seconds == 0 {
		*seconds = usualConfirm
	}
	if *seconds < leastConfirm || *seconds > mostConfirm {
		return &Error{CodeUsage, fmt.Sprintf("confirm_seconds is %d to %d", leastConfirm, mostConfirm)}
	}
	return nil
}

// begins returns a change that is not in force yet, with what it would be undone to.
func (w *wan) begins(from *Caller, seconds float64) *pending {
	return &pending{id: newChangeID(), by: from.by(), seconds: seconds, was: w.config, wasEntries: w.schedule.holds, wasOff: w.supervisor.State() == supervise.Suspended}
}

// await has a change that is in force wait for its confirmation.
func (w *wan) await(p *pending) Change {
	w.changes.await(p, func() { w.expired(p) })
	w.happened(EventApplied, p.by, UndoneMay, p.id, p.says()...)
	w.d.log("%s: a change of %s waits %s for its confirmation", w.config.Name(), p.kind, time.Duration(p.seconds*float64(time.Second)))
	w.publish()
	return *p.change()
}

// asked returns the settings that a change asks for, as far as they differ from what
// is.
func asked(is config.WAN, c ChangeParams) (settings []config.Setting, kind ChangeKind, err error) {
	kind = ChangeLine
	for _, x := range []struct {
		key, shape, least, most string
		to                      *unit.Rate
		was, low, high          unit.Rate
		by                      plan.RatePreference
	}{
		{"down", "shape_down", "least_down", "most_down", c.Down, is.Down, is.LeastDown, is.MostDown, is.ShapeDown},
		{"up", "shape_up", "least_up", "most_up", c.Up, is.Up, is.LeastUp, is.MostUp, is.ShapeUp},
	} {
		if x.to == nil || *x.to == x.was {
			continue
		}
		if *x.to <= 0 || *x.to > 1e12 {
			return nil, "", &Error{CodeUsage, fmt.Sprintf("change %s: %s: a line carries between 1 bit/s and 1 Tbit/s", is.Name(), x.key)}
		}
		settings = append(settings, config.Setting{Key: x.key, Value: x.to.String()})
		if x.by.Rate != 0 { // it was made from the old rate
			settings = append(settings, config.Setting{Key: x.shape})
		}
		if x.low > *x.to {
			settings = append(settings, config.Setting{Key: x.least})
		}
		if x.high != 0 && x.high < *x.to {
			settings = append(settings, config.Setting{Key: x.most, Value: x.to.String()})
		}
	}
	if c.Follow != nil && *c.Follow != is.Follow {
		kind = ChangeFollow
		value := "true"
		if !*c.Follow {
			value = ""
			for _, x := range []struct {
				key string
				set bool
			}{{"least_down", is.LeastDown != 0}, {"most_down", is.MostDown != 0}, {"least_up", is.LeastUp != 0}, {"most_up", is.MostUp != 0}, {"reflectors", len(is.Reflectors) > 0}, {"learn", is.Learn != ""}, {"decisions", is.Decisions != ""}} {
				settings = slices.DeleteFunc(settings, func(s config.Setting) bool { return s.Key == x.key })
				if x.set {
					settings = append(settings, config.Setting{Key: x.key})
				}
			}
		}
		settings = append(settings, config.Setting{Key: "follow", Value: value})
	}
	if c.Machine != "" {
		more, err := machineSettings(is, c.Machine, c.Action)
		if err != nil {
			return nil, "", &Error{CodeUsage, fmt.Sprintf("change %s: %v", is.Name(), err)}
		}
		if settings == nil {
			kind = ChangeRule
		}
		settings = append(settings, more...)
	}
	for _, x := range []struct {
		key string
		to  *[]string
		was []string
	}{{"rules", c.Rules, is.OwnRules}, {"limits", c.Limits, is.Limits}} {
		if x.to != nil && !slices.Equal(*x.to, x.was) {
			if settings == nil {
				kind = ChangeRule
			}
			settings = append(settings, config.Setting{Key: x.key, List: *x.to})
		}
	}
	return settings, kind, nil
}

// machineSettings are those that have an action hold for a machine.
func machineSettings(is config.WAN, machine string, action Action) ([]config.Setting, error) {
	a, err := netip.ParseAddr(machine)
	if err != nil || a.Zone() != "" {
		return nil, fmt.Errorf("%q is not the address of a machine", machine)
	}
	without := func(l []netip.Addr) []netip.Addr {
		return slices.DeleteFunc(slices.Clone(l), func(x netip.Addr) bool { return x == a })
	}
	first, last := without(is.First), without(is.Last)
	switch action {
	case ActionFirst:
		first = append(first, a)
	case ActionLast:
		last = append(last, a)
	case ActionNone:
	default:
		return nil, fmt.Errorf("action %q: must be %s, %s or %s", action, ActionFirst, ActionLast, ActionNone)
	}
	const most = 64
	if len(first)+len(last) > most {
		return nil, fmt.Errorf("at most %d machines may have a rule of their own", most)
	}
	var out []config.Setting
	if !slices.Equal(first, is.First) {
		out = append(out, config.Setting{Key: "first", List: texts(first)})
	}
	if !slices.Equal(last, is.Last) {
		out = append(out, config.Setting{Key: "last", List: texts(last)})
	}
	return out, nil
}

// would returns the WAN as it would be with settings, checked as the whole
// configuration is; nothing is written.
func (d *Daemon) would(ctx context.Context, of config.WAN, settings []config.Setting) (config.WAN, error) {
	d.fileMu.Lock()
	text, err := os.ReadFile(d.o.File)
	d.fileMu.Unlock()
	if err != nil {
		return of, fmt.Errorf("change %s: read the configuration: %w", of.Name(), err)
	}
	c, err := config.Parse(d.o.File, text)
	if err != nil {
		return of, &Error{CodePrecondition, fmt.Sprintf("change %s: the configuration file has a mistake: %v", of.Name(), err)}
	}
	for i, w := range c.WANs {
		if keyOf(w.Router, w.Interface) != keyOf(of.Router, of.Interface) {
			continue
		}
		text, err := config.Set(d.o.File, text, i, settings)
		if err != nil {
			return of, &Error{CodeUsage, err.Error()}
		}
		c, err := config.Parse(d.o.File, text)
		if err == nil && d.o.Check != nil {
			err = d.o.Check(ctx, config.Config{OnStop: c.OnStop, WANs: c.WANs[i : i+1]})
		}
		if err != nil {
			return of, &Error{CodeUsage, fmt.Sprintf("change %s: %v", of.Name(), err)}
		}
		return c.WANs[i], nil
	}
	return of, &Error{CodePrecondition, fmt.Sprintf("change %s: %s no longer has a %s of it", of.Name(), d.o.File, of.Syntax().Table("wan"))}
}

// tryOut gives the router the plan of the next settings, in a transaction that waits
// for its confirmation. Settings that ask for the plan that is there only change what
// follows it.
func (w *wan) tryOut(ctx context.Context, p *pending, next config.WAN, entries []config.Entry) error {
	unlock, err := w.reach(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	want, err := w.router.Plan(ctx, next.During(entries))
	if err != nil {
		return err
	}
	if usual, err := w.router.Plan(ctx, w.wanted()); err == nil && samePlan(usual, want) && w.plan != nil && w.supervisor.State() == supervise.InPlace {
		w.abandon()
		w.schedule.hold(entries)
		w.config = next
		return nil
	}
	w.abandon() // what follows the line would change the rates that are tried out
	defer w.news.act()()
	// The daemon's own timer comes first; the watchdog is for a daemon that is gone.
	const later = 5 * time.Second
	t, err := w.router.Engine.Begin(ctx, want, apply.Options{Confirm: time.Duration(p.seconds*float64(time.Second)) + later})
	if err != nil {
		return err
	}
	defer t.Close()
	if t.Unchanged {
		if err := t.Commit(); err != nil {
			return err
		}
		w.schedule.hold(entries)
		w.config, w.plan = next, &want
		return nil
	}
	p.armed = true
	w.supervisor.Changed(time.Now())
	return nil
}

// turnOff takes the shaping away and leaves the WAN alone.
func (w *wan) turnOff(ctx context.Context) error {
	unlock, err := w.reach(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	w.supervisor.Suspend()
	w.abandon()
	defer w.news.act()()
	if _, _, err := w.router.Engine.Revert(ctx, w.bare()); err != nil {
		w.supervisor.Resume(time.Now())
		return err
	}
	w.changes.forget()
	return nil
}

// bare is a journal of what is there, for an undo that knows no other.
func (w *wan) bare() apply.Journal {
	j := apply.Journal{WAN: w.config.Interface, Plan: plan.Plan{Schema: plan.Schema, Platform: w.router.Driver.Name(), WAN: w.config.Interface}}
	if w.plan != nil {
		j.Plan = *w.plan
	}
	return j
}

// turnOn puts the WAN in place; if that fails, it is off as before.
func (w *wan) turnOn(ctx context.Context, p *pending) error {
	w.resume(false)
	err := w.failure
	if err == nil {
		return nil
	}
	w.config, w.plan = p.was, nil
	return errors.Join(err, w.turnOff(ctx))
}

// resume ends a suspension and looks at once, a second time if another's shaper has
// to be taken over.
func (w *wan) resume(replace bool) {
	w.supervisor.Resume(time.Now())
	for {
		a, _ := w.supervisor.Next(time.Now())
		if !a.Look {
			return
		}
		a.Take = a.Take || replace
		w.look(context.Background(), a)
	}
}

// keepChange confirms the pending change: it is written into the configuration.
func (w *wan) keepChange(ctx context.Context, p *pending) (out Applied, err error) {
	if p.armed {
		if _, err := w.router.Engine.Confirm(ctx, w.config.Interface, nil); err != nil {
			return out, err
		}
	}
	w.changes.over()
	var notes []string
	note := func(err error) {
		if err != nil {
			notes = append(notes, err.Error())
			w.d.trouble("%s: %v", w.config.Name(), err)
		}
	}
	if p.planned != nil {
		note(w.d.writeSchedule(p.planned.tables))
		w.d.plans(nil)
	} else {
		w.config, err = w.d.rewrite(w.config, p.settings)
		note(err)
	}
	switch p.kind {
	case ChangeOff:
		note(w.d.memory.set(w.key, true))
		if w.router != nil && w.router.Persister != nil {
			_, err := w.router.Persister.Forget(ctx)
			note(err)
		}
		w.happened(EventOff, p.by, UndoneNo, "")
	case ChangeOn:
		note(w.d.memory.set(w.key, false))
		w.happened(EventOn, p.by, UndoneNo, "")
	}
	switch {
	case p.planned != nil:
		note(w.keepPlanned(p.planned))
	case p.armed:
		notes = append(notes, w.committed()...)
	}
	w.d.events.settle(p.id, UndoneNo)
	if p.kind != ChangeOff && p.kind != ChangeOn {
		w.happened(EventConfirmed, p.by, UndoneNo, "", p.says()...)
	}
	w.publish()
	out = Applied{State: "committed", WAN: w.config.Interface, Commands: []string{}, Notes: notes}
	if w.plan != nil {
		out.Plan = *w.plan
	}
	return out, nil
}

// undoChange takes the pending change back, if there is one. What cannot be put back now is
// tried again by the loop.
func (w *wan) undoChange(ctx context.Context, p *pending, kind EventKind, by string) (err error) {
	if p == nil {
		return nil
	}
	w.changes.over()
	w.config = p.was
	if p.planned != nil {
		w.schedule.hold(p.wasEntries)
		w.d.plans(nil)
	}
	switch {
	case p.kind == ChangeOff:
		w.plan = nil
		w.resume(false)
		err = w.failure
	case p.kind == ChangeOn:
		err = w.turnOff(ctx)
		w.plan = nil
	case p.armed:
		err = w.disarm(ctx)
		w.plan = nil
		w.supervisor.Afresh(time.Now())
	case !p.wasOff:
		w.abandon()
		w.plan = nil
		w.supervisor.Afresh(time.Now())
	}
	w.d.events.settle(p.id, UndoneYes)
	w.happened(kind, by, UndoneNo, "", p.says()...)
	w.publish()
	return err
}

// disarm takes back the transaction that waits.
func (w *wan) disarm(ctx context.Context) error {
	unlock, err := w.reach(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	j, err := w.router.Engine.Pending(w.config.Interface)
	if err != nil || j == nil { // the watchdog has done it
		return err
	}
	defer w.news.act()()
	_, _, err = w.router.Engine.Revert(ctx, w.bare())
	return err
}

// expired undoes a change that nobody has confirmed.
func (w *wan) expired(p *pending) {
	_, _ = w.call(context.Background(), func(ctx context.Context) (any, error) {
		if w.changes.pending != p {
			return nil, nil
		}
		w.d.log("%s: nobody confirmed the change of %s, so it is undone", w.config.Name(), p.kind)
		if err := w.undoChange(ctx, p, EventTimeout, ""); err != nil {
			w.d.trouble("%s: %v", w.config.Name(), err)
		}
		return nil, nil
	})
}

// settings returns what the configuration says of the WAN. It belongs to the loop.
func (w *wan) settings() Settings {
	c := w.config
	out := Settings{WAN: c.Interface, Router: c.Router, On: w.supervisor.State() != supervise.Suspended, Down: c.Down, Up: c.Up, Follow: c.Follow,
		First: texts(c.First), Last: texts(c.Last), Rules: append([]string{}, c.OwnRules...), Limits: append([]string{}, c.Limits...)}
	p := w.plan
	if p == nil {
		return out
	}
	out.Classes = p.Classes != nil
	out.CanLimit = w.router != nil && w.router.Driver.Language.HardLimits && len(p.FlowTable) == 0
	out.CanFollow = w.d.o.Follow != nil && (c.Router == "" || c.Here()) && w.router != nil && Followable(w.router.Driver, *p) == nil
	if c.Follow && out.CanFollow {
		b := bounds(w.wanted(), *p)
		if l := w.following.line(); l != nil { // what is learnt
			v := l.View()
			b[0].Most, b[1].Most = max(b[0].Most, v.Down.Most), max(b[1].Most, v.Up.Most)
		}
		out.LeastDown, out.MostDown, out.LeastUp, out.MostUp = b[0].Least, b[0].Most, b[1].Least, b[1].Most
	}
	return out
}

// explain adds what takes longer, and needs no loop: a plan never changes.
func (s *Settings) explain(p *plan.Plan) {
	if p == nil {
		return
	}
	if p.Classes != nil {
		s.Tins = map[int]string{}
		for _, l := range p.Policy().Down {
			s.Tins[int(l.Tin)] = string(l.Class)
		}
	}
	for _, r := range p.Reasons {
		switch r.Field {
		case "down.rate":
			s.WhyDown = &r.Why
		case "up.rate":
			s.WhyUp = &r.Why
		}
	}
}

func texts(of []netip.Addr) []string {
	out := []string{}
	for _, a := range of {
		out = append(out, a.String())
	}
	return out
}
