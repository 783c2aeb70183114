package daemon

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/keep/config"
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

// A wan is one WAN's loop, over parts that own their state. Its fields belong to the
// loop's goroutine, but for the parts that say otherwise.
type wan struct {
	d      *Daemon
	key    string
	cancel context.CancelFunc

	name, routerName string // the interface and its router's address, which never change

	config     config.WAN
	router     *Router // nil: not reached yet
	supervisor *supervise.Supervisor
	opened     bool        // it was reached before
	plan       *plan.Plan  // that is wanted; nil: not made yet
	rates      apply.Rates // that its shapers have
	holder     *Caller     // who has the turn; nil: nobody
	changes    changes     // one that waits for its confirmation, and what was kept
	failure    error       // of the last look
	why        string      // its text
	by         string      // which program changed something last
	warned     []string    // of the plan that was made last

	calls   chan func()
	stopped chan struct{}

	past      past      // what its line did
	following following // of its line
	schedule  schedule  // what it says of the WAN now
	cause     cause     // of the next mending

	news  *news // what happened to the router
	board board // what those who ask are shown
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
		now := time.Now()
		w.board.write(func(b *board) { b.beat = now })
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
		case <-w.news.there:
			w.note(w.news.take())
		case <-timer.C:
		}
	}
}

// note tells the supervisor of news.
func (w *wan) note(c change) {
	w.by = cmp.Or(c.by, w.by)
	if c.replaced {
		w.cause = causeReplaced
		w.supervisor.Replaced(time.Now())
	} else {
		w.supervisor.Changed(time.Now())
	}
}

// rerouted says that the default route has left interfaces, or come to them: what was
// measured of a line that is one of them is of another way.
func (w *wan) rerouted(devices []string) {
	if !slices.Contains(devices, w.name) {
		return
	}
	w.board.write(func(b *board) { b.status.Reroutes++ })
	if p := w.following.runs.Load(); p != nil {
		p.NewLine()
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
	defer w.news.act()()
	mended, err := w.mend(ctx, a)
	w.report(err, mended)
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
		w.plan = &p
		if l := w.following.line(); l != nil && Followable(w.router.Driver, p) == nil {
			l.renew(&p)
		}
		w.warn(p)
	}
	engine := w.router.Engine
	if a.Take {
		engine = w.router.Taking
	}
	if l := w.following.line(); l != nil && l.plan != w.plan {
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
		w.changes.learn(id)
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
		id, _ := w.router.Engine.RecordID(w.config.Interface)
		w.changes.learn(id)
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
	w.board.write(func(b *board) {
		b.status.Looks++
		if !mended || err != nil {
			return
		}
		why := cmp.Or(w.cause, causeChanged)
		if first {
			why = causeStart
		}
		b.reconciled[why]++
		if !first && w.cause != causeStart { // it had been there
			b.status.Mends++
			b.status.Mended, b.status.Was, b.status.By = now.UTC().Format(time.RFC3339), m.Differences, w.by
		}
	})
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
func (w *wan) adopt() (adopted bool, notes []string) {
	r := w.changes.adopt(w.router.Engine, w.config.Interface)
	if r == nil {
		return false, nil
	}
	p := r.Plan.In(w.router.Driver.Language)
	if w.plan != nil && samePlan(*w.plan, p) {
		return true, nil
	}
	w.plan = &p
	return true, w.storeRates(p)
}

func samePlan(a, b plan.Plan) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
