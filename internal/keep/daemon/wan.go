package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/keep/config"
	"unbloat/internal/keep/metrics"
	"unbloat/internal/keep/supervise"
	"unbloat/reason"
)

// A Router is an opened way to the router of a WAN.
type Router struct {
	Driver    *platform.Driver
	Engine    *apply.Engine
	Taking    *apply.Engine      // the same, which takes over from another's shaper
	Persister platform.Persister // of a plan that an earlier command applies at boot
	OwnTC     bool               // with tc(8) directly, beside the platform's own service
	Here      platform.Runner    // commands on the daemon's own machine

	// Plan reads the router's capabilities and makes the plan of a WAN.
	Plan func(ctx context.Context, w config.WAN) (plan.Plan, error)
	// Why tells a flow's class by a plan that is in force, as `unbloat why --json` does.
	Why   func(ctx context.Context, p plan.Plan, w WhyParams) (any, error)
	Close func()
}

// actionTime bounds one look at a router with all that it changes.
const actionTime = 2 * time.Minute

// A wan is one WAN's loop. Its fields belong to the loop's goroutine, but for
// those under mu.
type wan struct {
	d      *Daemon
	key    string
	cancel context.CancelFunc

	name, routerName string // the interface and its router's address, which never change

	config     config.WAN
	entries    []config.Entry // of the schedule, that hold now
	router     *Router        // nil: not reached yet
	supervisor *supervise.Supervisor
	opened     bool        // it was reached before
	plan       *plan.Plan  // that is wanted; nil: not made yet
	rates      apply.Rates // that its shapers have
	record     string      // ID of the last record that is known
	holder     *Caller     // who has the turn; nil: nobody
	pending    *pending    // change that waits for its confirmation; nil: none
	failure    error       // of the last look
	why        string      // its text
	by         string      // which program changed something last
	warned     []string    // of the plan that was made last

	calls   chan func()
	changed chan struct{} // there is news
	stopped chan struct{}

	ring       atomic.Pointer[metrics.Ring] // nil: nothing was noted yet
	decisions  decisions                    // of what follows the line
	line       atomic.Pointer[pursuit]      // of its line; nil: it is not followed now. Only the loop changes it
	measured   atomic.Pointer[pursuit]      // of a line whose rates are held; nil: its delay is not measured now. Only the loop changes it
	anew       atomic.Bool                  // another follower is needed
	scheduling atomic.Bool                  // the loop is to take in what the schedule says
	unfollowed string                       // why it is not, as it was told last
	cause      cause                        // of the next mending

	mu         sync.Mutex
	status     WANStatus
	lastBeat   time.Time
	news       change    // what happened since the loop took the last news
	acting     bool      // a look is being taken: changes may be its own
	acted      time.Time // its end
	reconciled map[cause]uint64
	set        Settings
	setPlan    *plan.Plan // that it is about
	deadline   time.Time  // of set.Change
}

// ownEcho is how long after a look the kernel may still tell of the look's own
// changes.
const ownEcho = 500 * time.Millisecond

// A change is something that happened to a router.
type change struct {
	replaced bool   // the interface came, went or is another one
	by       string // the program that did it; "": not known
}

// keyOf names a WAN among all.
func keyOf(router, iface string) string {
	if router == "" {
		return iface
	}
	return router + " " + iface
}

// run is the loop. It ends when ctx does; the last action is finished before.
func (w *wan) run(ctx context.Context) {
	defer close(w.stopped)
	defer w.close()
	defer w.abandon()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		w.beat()
		now := time.Now()
		action, wake := w.supervisor.Next(now)
		if action.Look {
			w.look(ctx, action)
			w.pursue()
			w.publish()
			select { // whoever waits comes before the next look
			case <-ctx.Done():
				return
			case f := <-w.calls:
				f()
			default:
			}
			continue
		}
		w.pursue()
		w.publish()
		pause := time.Minute
		if !wake.IsZero() {
			pause = min(pause, max(wake.Sub(now), time.Millisecond))
		}
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return
		case f := <-w.calls:
			f()
		case <-w.changed:
			w.note()
		case <-timer.C:
		}
	}
}

// note tells the supervisor of the news.
func (w *wan) note() {
	w.mu.Lock()
	c := w.news
	w.news = change{}
	w.mu.Unlock()
	if c.by != "" {
		w.by = c.by
	}
	if c.replaced {
		w.cause = causeReplaced
		w.supervisor.Replaced(time.Now())
	} else {
		w.supervisor.Changed(time.Now())
	}
}

// tell passes a change to the loop, joined with those that it has not taken yet.
func (w *wan) tell(c change) {
	w.mu.Lock()
	w.news.replaced = w.news.replaced || c.replaced
	if c.by != "" && !w.acting && time.Since(w.acted) > ownEcho { // we do not blame ourselves
		w.news.by = c.by
	}
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default: // it knows that there is news
	}
}

// rerouted says that the default route has left interfaces, or come to them: what was
// measured of a line that is one of them is of another way.
func (w *wan) rerouted(devices []string) {
	if !slices.Contains(devices, w.name) {
		return
	}
	w.mu.Lock()
	w.status.Reroutes++
	w.mu.Unlock()
	for _, p := range []*pursuit{w.line.Load(), w.measured.Load()} {
		if p != nil {
			p.NewLine()
		}
	}
}

// act marks the beginning and the end of a look.
func (w *wan) act(begins bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acting = begins
	if !begins {
		w.acted = time.Now()
	}
}

// call runs f in the loop and waits for it. What f changes is finished even if the
// caller goes away.
func (w *wan) call(ctx context.Context, f func(ctx context.Context) (any, error)) (any, error) {
	type outcome struct {
		result any
		err    error
	}
	done := make(chan outcome, 1)
	run := func() {
		if ctx.Err() != nil {
			done <- outcome{nil, ctx.Err()}
			return
		}
		c, cancel := context.WithTimeout(context.WithoutCancel(ctx), actionTime)
		defer cancel()
		r, err := w.d.contain(w.config.Name(), func() (any, error) { return f(c) })
		if isInternal(err) {
			w.supervisor.Changed(time.Now()) // it may have been done by half
		}
		done <- outcome{r, err}
	}
	select {
	case w.calls <- run:
	case <-w.stopped:
		return nil, &Error{CodeEnding, "the daemon ends, or no longer keeps " + w.key}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case o := <-done:
		return o.result, o.err
	case <-w.stopped:
		return nil, &Error{CodeEnding, "the daemon ends"}
	}
}

// look does what the supervisor wants, and reports what came of it.
func (w *wan) look(ctx context.Context, a supervise.Action) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), actionTime)
	defer cancel()
	unlock, err := w.d.lockRouter(ctx, w.config.Router)
	if err != nil {
		w.report(err, apply.Mended{})
		return
	}
	defer unlock()
	w.act(true)
	mended, err := w.mend(ctx, a)
	w.report(err, mended)
	w.act(false)
}

// mend puts the WAN in place.
func (w *wan) mend(ctx context.Context, a supervise.Action) (m apply.Mended, err error) {
	if err := w.open(ctx); err != nil {
		return m, err
	}
	w.adopt()
	if w.plan == nil || a.Replan {
		p, err := w.router.Plan(ctx, w.wanted())
		if err != nil {
			return m, err
		}
		w.again(&p)
		w.warn(p)
	}
	engine := w.router.Engine
	if a.Take {
		engine = w.router.Taking
	}
	if l := w.line.Load(); l != nil && l.plan != w.plan {
		w.rates.Forget()
	}
	return engine.Mend(ctx, *w.plan)
}

// warn tells what the plan leaves out or can't do, if the last one did not.
func (w *wan) warn(p plan.Plan) {
	texts := reason.Texts(p.Warnings)
	for _, text := range texts {
		if !slices.Contains(w.warned, text) {
			w.d.log("%s: %s", w.config.Name(), text)
		}
	}
	w.warned = texts
}

// open reaches the router.
func (w *wan) open(ctx context.Context) error {
	if w.router != nil {
		return nil
	}
	r, err := w.d.o.Open(ctx, w.config)
	if err != nil {
		return err
	}
	w.router = r
	r.Engine.Rates, r.Taking.Rates = &w.rates, &w.rates
	if w.opened { // only its connection is new
		return nil
	}
	w.opened = true
	if id, err := r.Engine.RecordID(w.config.Interface); err == nil && id != "" {
		w.record = id
		w.supervisor.Own()
	}
	return nil
}

// reach opens the router and waits until nobody else of this daemon changes it, which
// holds until unlock is called.
func (w *wan) reach(ctx context.Context) (unlock func(), err error) {
	if unlock, err = w.d.lockRouter(ctx, w.config.Router); err != nil {
		return nil, err
	}
	if err := w.open(ctx); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// close lets go of the router.
func (w *wan) close() {
	if w.router != nil {
		w.router.Close()
		w.router = nil
	}
}

// report tells the supervisor what came of a look.
func (w *wan) report(err error, m apply.Mended) {
	now := time.Now()
	mended := len(m.Ran) > 0
	first := w.supervisor.State() == supervise.Starting
	w.supervisor.Report(now, resultOf(err), mended)
	var stopped *apply.StoppedError
	if errors.As(err, &stopped) { // another try would cut the line again
		w.supervisor.Suspend()
	}
	if w.router != nil {
		if id, e := w.router.Engine.RecordID(w.config.Interface); e == nil && id != "" {
			w.record = id
		}
	}
	if errors.Is(err, platform.ErrUnreachable) {
		w.close()
	}
	// A remedy that is a setting is written as the configuration has it.
	if pre := (*platform.PreconditionError)(nil); errors.As(err, &pre) && pre.Or != nil {
		pre.Or.Write = func(key, value string) string {
			return w.config.Syntax().Sets(config.Setting{Key: key, Value: value})
		}
	}
	was := w.why
	w.why, w.failure = "", err
	if err != nil {
		w.why = err.Error()
	}
	w.mu.Lock()
	w.status.Looks++
	if mended && err == nil {
		switch {
		case first:
			w.reconciled[causeStart]++
		case w.cause != "":
			w.reconciled[w.cause]++
		default:
			w.reconciled[causeChanged]++
		}
		if !first && w.cause != causeStart { // it had been there
			w.status.Mends++
			w.status.Mended, w.status.Was, w.status.By = now.UTC().Format(time.RFC3339), m.Differences, w.by
		}
	}
	w.mu.Unlock()
	if first || mended {
		debug.FreeOSMemory() // routers have little, and the next change may be weeks away
	}
	switch {
	case err != nil && w.why != was:
		w.d.trouble("%s: %s", w.config.Name(), w.why)
	case err == nil && mended && first:
		w.d.log("%s: applied with %d commands", w.config.Name(), len(m.Ran))
	case err == nil && mended:
		w.d.log("%s: put back with %d commands%s: %s", w.config.Name(), len(m.Ran), blame(w.by), strings.Join(m.Differences, "; "))
	case err == nil && was != "":
		w.d.log("%s: in place again", w.config.Name())
	case err == nil && first:
		w.d.log("%s: it was in place; nothing was changed", w.config.Name())
	}
	w.remember(err, was, mended, first, m)
	if err == nil {
		w.by, w.cause = "", ""
	}
}

// remember keeps what came of a look as an event, if it is worth one.
func (w *wan) remember(err error, was string, mended, first bool, m apply.Mended) {
	switch {
	case err != nil && w.why != was && resultOf(err) != supervise.Locked:
		w.happened(EventTrouble, w.by, UndoneNo, "", w.why)
	case err == nil && mended && (first || w.cause == causeStart):
		w.happened(EventStarted, "", UndoneNo, "")
	case err == nil && mended && w.cause == causeReplaced:
		w.happened(EventReplaced, w.by, UndoneNo, "")
	case err == nil && mended:
		w.happened(EventMended, w.by, UndoneYes, "", m.Differences...)
	case err == nil && was != "":
		w.happened(EventWell, "", UndoneNo, "")
	}
}

func blame(by string) string {
	if by == "" {
		return ""
	}
	return ", after " + by + " changed something"
}

// resultOf says what an error of a look means for the supervisor.
func resultOf(err error) supervise.Result {
	var (
		busy    *apply.BusyError
		foreign *tc.ForeignError
		pre     *platform.PreconditionError
		tool    *platform.MissingToolError
	)
	switch {
	case err == nil:
		return supervise.Done
	case errors.As(err, &busy):
		return supervise.Locked
	case errors.As(err, &foreign):
		return supervise.Occupied
	case errors.Is(err, platform.ErrUnreachable), errors.As(err, &pre), errors.As(err, &tool):
		return supervise.Missing
	}
	return supervise.Failed
}

// adopt takes over a plan that a command has kept on the WAN since the last look,
// and writes its rates into the configuration.
func (w *wan) adopt() (notes []string) {
	id, err := w.router.Engine.RecordID(w.config.Interface)
	if err != nil || id == "" || id == w.record {
		return nil
	}
	rec, err := w.router.Engine.Record(w.config.Interface)
	if err != nil || rec == nil {
		return nil
	}
	w.record = rec.ID
	p := rec.Plan.In(w.router.Driver.Language)
	if w.plan != nil && samePlan(*w.plan, p) {
		return nil
	}
	w.plan = &p
	return w.storeRates(p)
}

func samePlan(a, b plan.Plan) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// storeRates writes the rates of a plan that was kept into the configuration, so
// that they are the usual ones from now on.
func (w *wan) storeRates(p plan.Plan) (notes []string) {
	settings := ratesOf(p)
	c, err := w.d.rewrite(w.config, settings)
	if err != nil {
		note := err.Error()
		w.d.trouble("%s: %s", w.config.Name(), note)
		return []string{note}
	}
	w.config = c
	w.d.log("%s: %s", w.config.Name(), "the rates that were kept are in the configuration")
	return nil
}

// ratesOf returns a plan's rates as settings of the configuration: what the line carries,
// and the shaper's own rate, each as far as the plan was made from it; and its framing, if
// that was measured.
func ratesOf(p plan.Plan) []config.Setting {
	text := func(r fmt.Stringer, set bool) string {
		if !set {
			return ""
		}
		return r.String()
	}
	if p.Basis == nil { // the numbers were set by hand
		return []config.Setting{{Key: "down"}, {Key: "up"}, {Key: "shape_down", Value: text(p.DownBps, p.DownBps != 0)}, {Key: "shape_up", Value: text(p.UpBps, p.UpBps != 0)}}
	}
	l, pref := p.Basis.Line, p.Basis.Preferences
	return []config.Setting{
		{Key: "down", Value: text(l.Down, l.Down != 0)}, {Key: "up", Value: text(l.Up, l.Up != 0)},
		{Key: "shape_down", Value: pref.Down.String()}, {Key: "shape_up", Value: pref.Up.String()},
		{Key: "framing", Value: l.FramingText()},
	}
}

// busy returns an error if somebody else has the turn.
func (w *wan) busy(asks *Caller) error {
	if w.holder != nil && w.holder != asks {
		return &Error{CodeBusy, fmt.Sprintf("change %s: `unbloat %s` is working on it; wait for it to end", w.config.Name(), w.holder.does)}
	}
	return nil
}

// apply applies a plan that a person gave.
func (w *wan) apply(ctx context.Context, from *Caller, a ApplyParams) (out Applied, err error) {
	if err := errors.Join(w.busy(from), w.waits()); err != nil {
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

func commands(steps []platform.Step) []string {
	out := []string{}
	for _, s := range steps {
		out = append(out, s.String())
	}
	return out
}

// committed goes on with what a person has committed.
func (w *wan) committed() (notes []string) {
	notes = w.adopt()
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
		return []string{fmt.Sprintf("the configuration says something else than what is kept now (%s, %s down, %s up); when the daemon starts again or is reloaded, the configuration holds", want.AQM, want.DownBps, want.UpBps)}
	}
	return nil
}

// confirm keeps a change that waits for it.
func (w *wan) confirm(ctx context.Context, from *Caller) (out Applied, err error) {
	if err := w.busy(from); err != nil {
		return out, err
	}
	if w.pending != nil {
		return w.keepChange(ctx, w.pending)
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
	if w.pending != nil {
		return Reverted{Reverted: []apply.Reverted{}}, w.undoChange(ctx, w.pending, EventReverted, from.by())
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
	w.record = ""
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
	if err := errors.Join(w.busy(from), w.waits()); err != nil {
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
	if err := errors.Join(w.busy(from), w.waits()); err != nil {
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
	before := w.record
	w.adopt()
	if w.record != before { // what was kept turns a WAN on that was off
		w.committed()
	}
	w.publish()
}

// stop ends the keeping, when the loop has ended: the shaping stays, or is taken back.
func (w *wan) stop(ctx context.Context, how config.Stop) error {
	defer w.close()
	if w.pending != nil {
		if err := w.undoChange(ctx, w.pending, EventReverted, ""); err != nil {
			return err
		}
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

// reload takes a new configuration of the same WAN, with what its schedule says now.
func (w *wan) reload(c config.WAN, entries []config.Entry) {
	if w.pending != nil {
		if err := w.undoChange(context.Background(), w.pending, EventReverted, ""); err != nil {
			w.d.trouble("%s: %v", w.config.Name(), err)
		}
	}
	again := c.Platform != w.config.Platform
	w.abandon()
	w.config, w.cause, w.entries = c, causeStart, entries
	if again {
		w.close()
	}
	w.plan = nil
	w.supervisor.Afresh(time.Now())
}

func (w *wan) beat() {
	w.mu.Lock()
	w.lastBeat = time.Now()
	w.mu.Unlock()
}

// publish makes the state known to those who ask.
func (w *wan) publish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &w.status
	if now := w.supervisor.State(); now != s.State {
		if now == supervise.Contested {
			w.happened(EventContested, s.By, UndoneNo, "")
		}
		s.State, s.Since = now, time.Now().UTC().Format(time.RFC3339)
	}
	s.WAN, s.Router, s.Why = w.config.Interface, w.config.Router, w.why
	if s.State == supervise.Held {
		s.Why = "`unbloat " + w.holder.does + "` is working on it"
	}
	if s.State == supervise.Contested {
		s.Why = contested(w.why, s.By)
	}
	s.OffUntil = ""
	if until := w.d.memory.until(w.key); !until.IsZero() {
		s.OffUntil = until.UTC().Format(time.RFC3339)
	}
	if w.router != nil {
		s.Platform, s.OwnTC = w.router.Driver.Name(), w.router.OwnTC
	}
	if w.plan != nil {
		s.Down, s.Up = w.plan.DownBps, w.plan.UpBps
	}
	w.set, w.setPlan = w.settings(), w.plan
	if w.pending != nil {
		w.deadline = w.pending.deadline
	}
	w.d.changed()
}

// contested says who fights, as far as that is known, and what to do.
func contested(why, by string) string {
	who := "another program"
	if by != "" {
		who = by
	}
	return fmt.Sprintf("%s put its own shaper there %d times, so unbloat has stopped (%s); stop that program, then run `unbloat apply --again --yes`, or reload the daemon", who, supervise.MostTakeovers+1, why)
}

// snapshot returns the status.
func (w *wan) snapshot() (WANStatus, time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.status
	s.Was = append([]string(nil), s.Was...)
	if l := w.line.Load(); l != nil {
		line := l.View()
		s.Line, s.Down, s.Up = &line, line.Down.Rate, line.Up.Rate
	}
	if p := w.measured.Load(); p != nil {
		seen := p.View()
		s.Measured = &seen
	}
	return s, w.lastBeat
}

// rewrite writes settings of a WAN into the configuration file, and returns the
// WAN as it is there then.
func (d *Daemon) rewrite(of config.WAN, settings []config.Setting) (config.WAN, error) {
	d.fileMu.Lock()
	defer d.fileMu.Unlock()
	text, err := os.ReadFile(d.o.File)
	if err != nil {
		return of, fmt.Errorf("write the new rates into the configuration: %w; the old ones hold when the daemon starts again", err)
	}
	c, err := config.Parse(d.o.File, text)
	if err != nil {
		return of, fmt.Errorf("write the new rates into the configuration: %w; the old ones hold when the daemon starts again", err)
	}
	for i, w := range c.WANs {
		if keyOf(w.Router, w.Interface) != keyOf(of.Router, of.Interface) {
			continue
		}
		out, err := config.Set(d.o.File, text, i, settings)
		if err != nil {
			return of, err
		}
		if err := d.overwrite(text, out); err != nil {
			return of, fmt.Errorf("write the new rates into the configuration: %w; the old ones hold when the daemon starts again", err)
		}
		if c, err = config.Parse(d.o.File, out); err != nil {
			return of, err
		}
		return c.WANs[i], nil
	}
	return of, fmt.Errorf("write the new rates into the configuration: %s no longer has a %s of %s", d.o.File, of.Syntax().Table("wan"), of.Name())
}

// overwrite gives the configuration file another text, if it is another. The caller
// holds d.fileMu.
func (d *Daemon) overwrite(was, text []byte) error {
	if bytes.Equal(was, text) {
		return nil
	}
	return apply.RewriteFile(d.o.File, text)
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
