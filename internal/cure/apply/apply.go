// Package apply changes a router in a transaction: snapshot → start a watchdog →
// apply → read back → see that connections go on → commit or revert. It knows no platform. A platform.Backend reads the
// router's state, computes the wanted state and compares; this package runs the
// commands, keeps the journal, and undoes.
//
// An undo compares the router's state with the snapshot, and repairs it until they
// are equal. There is no log of inverse commands, so an undo works from any
// partial state, and can be interrupted and repeated.
package apply

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"unbloat/guard"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
)

// An Engine runs transactions on one router.
type Engine struct {
	Backend      platform.Backend
	Runner       platform.Runner
	Dir          string               // where journals are kept; a reboot must empty it
	WatchdogArgv []string             // command of the watchdog process; the journal's path is appended
	Watchdog     Watchdog             // undoes the change if this process cannot; nil: a process on this machine
	WatchdogAt   string               // address of Watchdog, for the journal, so that a later process finds it
	Uptime       func() time.Duration // nil: Uptime
	OnStep       func(platform.Step)  // called before each command that changes the router; may be nil
	Log          io.Writer            // where Watch writes why it can't undo; nil: standard error
	Rates        *Rates               // of the one WAN that is changed; nil: its shapers always have the settled ones

	arm func(wan, journal string) error // set by tests: replaces the start of a watchdog process
}

// Options of a transaction.
type Options struct {
	Confirm time.Duration // time until the watchdog undoes the change
	Hold    bool          // the caller keeps running: undo as soon as it ends
	Lease   bool          // with Hold: no deadline once the change is applied
	IfAny   bool          // with Hold: a router that is as it is wanted needs neither journal nor watchdog

	running *plan.Plan // with the rates that the running shapers keep, of Retune; nil: the plan's
}

// A BusyError says that another transaction is open on the same WAN.
type BusyError struct {
	WAN  string
	Left time.Duration // until the watchdog undoes it; 0: a process is changing the WAN right now
}

func (e *BusyError) Error() string {
	if e.Left == 0 {
		return fmt.Sprintf("change %s: another unbloat is changing it right now; wait for it to end", e.WAN)
	}
	return fmt.Sprintf("change %s: an earlier change waits for confirmation for another %s; run `unbloat confirm` or `unbloat revert` first", e.WAN, e.Left.Round(time.Second))
}

// A VerifyError says that the state read back is not the state asked for.
type VerifyError struct {
	WAN         string
	Differences []string
}

func (e *VerifyError) Error() string {
	return fmt.Sprintf("verify %s: what the kernel shows is not what was asked for: %s", e.WAN, strings.Join(e.Differences, "; "))
}

// A Transaction is a change that is not yet committed.
type Transaction struct {
	engine  *Engine
	lock    *Lock
	journal Journal
	path    string
	options Options
	vigil   vigil          // over the connections that moved before it
	read    platform.State // of the router; nil: it has been changed since
	// Ran are the commands so far that changed the router.
	Ran []platform.Step
	// Unchanged means that the router was already as the plan wants it: nothing was
	// run, and there is no watchdog.
	Unchanged bool
	// Differed are the differences between the router and the plan before, as text
	// for people.
	Differed []string
}

func (e *Engine) uptime() time.Duration {
	if e.Uptime != nil {
		return e.Uptime()
	}
	return Uptime()
}

// Preview returns the commands that Begin would run now. It changes nothing.
func (e *Engine) Preview(ctx context.Context, p plan.Plan) ([]platform.Step, error) {
	x, err := e.prepare(ctx, p, nil)
	return x.steps, err
}

// Rehearse checks, without changing anything, whether Begin could apply the plan
// now: that the journal can be written, no other transaction is open on the WAN,
// and nothing is missing or in the way. A caller that measures the line first
// calls it before.
func (e *Engine) Rehearse(ctx context.Context, p plan.Plan) error {
	if err := checkName(p.WAN); err != nil {
		return err
	}
	lock, err := e.lock(p.WAN)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	j, err := e.Pending(p.WAN)
	if err != nil {
		return err
	}
	if j != nil && decide(j.Phase, e.found(j, false, j.Phase == Armed && e.watchdog().Alive(ctx, j))) == await {
		return &BusyError{WAN: p.WAN, Left: j.Deadline - e.uptime()}
	}
	_, err = e.prepare(ctx, p, nil)
	return err
}

// An outlook is what a transaction would do.
type outlook struct {
	read                platform.State // now, with the running rates
	now, origin, wanted platform.State
	steps               []platform.Step
	differences         []string
}

// prepare reads the router's state and computes the steps.
func (e *Engine) prepare(ctx context.Context, p plan.Plan, running *plan.Plan) (x outlook, err error) {
	rec, err := e.Record(p.WAN)
	if err != nil {
		return x, err
	}
	var earlier, known platform.State
	if rec != nil {
		earlier, known = rec.Wanted, rec.Origin
	}
	if x.read, err = e.Backend.Observe(ctx, p, earlier); err == nil {
		x.now, err = e.asSettled(x.read, p, running)
	}
	if err != nil {
		return x, err
	}
	if x.origin, err = e.Backend.Baseline(ctx, x.now, known); err != nil {
		return x, err
	}
	if x.wanted, err = e.Backend.Desire(ctx, p, x.now, x.origin); err != nil {
		return x, err
	}
	x.steps, x.differences, err = e.Backend.Compare(x.now, x.wanted)
	return x, err
}

// Begin applies the plan and reads the result back. Where the backend
// can tell, connections that moved before must go on. If it returns an error, the
// router is as before. Otherwise the caller commits, reverts, or leaves the change
// to the watchdog, and then calls Close.
func (e *Engine) Begin(ctx context.Context, p plan.Plan, o Options) (_ *Transaction, err error) {
	if err := checkName(p.WAN); err != nil {
		return nil, err
	}
	lock, err := e.lock(p.WAN)
	if err != nil {
		return nil, err
	}
	t := &Transaction{engine: e, lock: lock, path: e.journalPath(p.WAN), options: o}
	defer func() {
		if err != nil {
			t.Close()
		}
	}()
	if err := e.recoverStale(ctx, p.WAN); err != nil {
		return nil, err
	}
	if o.running == nil { // an undo is to find what is settled
		e.settle(ctx)
	}
	x, err := e.prepare(ctx, p, o.running)
	if err == nil && len(x.steps) > 0 && !e.recorded(Journal{WAN: p.WAN, Plan: p, Origin: x.origin, Wanted: x.wanted}) { // what was kept before is put back at once
		if t.vigil = e.watchOver(ctx); len(t.vigil) > 0 { // which took a while
			x, err = e.prepare(ctx, p, o.running)
		}
	}
	if err != nil {
		return nil, err
	}
	t.journal = Journal{Schema: JournalSchema, ID: newID(), WAN: p.WAN, Phase: Applying, Boot: BootID(), WatchdogAt: e.WatchdogAt,
		Deadline: e.uptime() + e.timeToApply(o), Plan: p, Before: x.now, Origin: x.origin, Wanted: x.wanted}
	if len(t.vigil) > 0 {
		t.journal.Deadline += vigilTime
	}
	t.Differed = x.differences
	if len(x.steps) == 0 && (!o.Hold || o.IfAny) {
		t.Unchanged, t.read = true, x.read
		return t, nil
	}
	if err := t.write(); err != nil {
		return nil, err
	}
	err = e.watchdog().Arm(ctx, &t.journal)
	if errors.Is(err, platform.ErrUnreachable) { // the next process removes what is left of it
		return nil, err
	}
	if err != nil {
		return nil, errors.Join(err, removeFile(t.path))
	}
	if err := t.carryOut(ctx, x.steps); err != nil {
		return nil, err
	}
	return t, nil
}

// applyTime is the shortest time limit for a change over the network, where each
// command takes a round trip. If the connection is lost, the watchdog on the
// router acts long before.
const applyTime = 2 * time.Minute

// timeToApply limits the change itself; the time to confirm starts after it.
func (e *Engine) timeToApply(o Options) time.Duration {
	if e.Watchdog != nil {
		return max(o.Confirm, applyTime)
	}
	return o.Confirm
}

// Retune changes the plan of an open transaction, in place where the platform can.
// If it returns an error, the whole transaction has been reverted.
func (t *Transaction) Retune(ctx context.Context, p plan.Plan) error {
	if extra := beyond(p, t.journal.Plan); extra != "" {
		return t.giveUp(ctx, fmt.Errorf("retune %s: the new plan also changes %s, which is not in the transaction's snapshot; begin a new transaction", t.journal.WAN, extra))
	}
	if err := t.stillOurs(); err != nil {
		t.Close()
		return err
	}
	now, err := t.engine.Backend.Observe(ctx, p, t.journal.Before)
	if err != nil {
		return t.giveUp(ctx, err)
	}
	wanted, err := t.engine.Backend.Desire(ctx, p, now, t.journal.Origin)
	if err != nil {
		return t.giveUp(ctx, err)
	}
	steps, _, err := t.engine.Backend.Compare(now, wanted)
	if err != nil {
		return t.giveUp(ctx, err)
	}
	if err := t.stillOurs(); err != nil { // reading the state takes time
		return t.giveUp(ctx, err)
	}
	t.journal.Plan, t.journal.Wanted = p, wanted
	if len(steps) == 0 {
		return t.write()
	}
	t.Unchanged = false
	if err := t.journal.enter(Applying); err != nil {
		return t.giveUp(ctx, err)
	}
	if err := t.renew(ctx); err != nil {
		return t.giveUp(ctx, err)
	}
	return t.carryOut(ctx, steps)
}

// carryOut runs the steps, verifies the result and starts the time to confirm.
func (t *Transaction) carryOut(ctx context.Context, steps []platform.Step) error {
	for _, s := range steps {
		if err := t.run(ctx, s); err != nil {
			return t.giveUp(ctx, t.orUndone(ctx, t.engine.Backend.Explain(err)))
		}
	}
	now, err := t.engine.Backend.Observe(ctx, t.journal.Plan, t.journal.Before)
	if err == nil {
		now, err = t.engine.asSettled(now, t.journal.Plan, t.options.running)
	}
	if err != nil {
		return t.giveUp(ctx, err)
	}
	_, diffs, err := t.engine.Backend.Compare(now, t.journal.Wanted)
	if err != nil {
		return t.giveUp(ctx, err)
	}
	if len(diffs) > 0 {
		return t.giveUp(ctx, t.orUndone(ctx, &VerifyError{WAN: t.journal.WAN, Differences: diffs}))
	}
	if v := t.vigil; len(v) > 0 {
		t.vigil = nil
		if err := t.stillMove(ctx, v); err != nil {
			return t.giveUp(ctx, t.orUndone(ctx, err))
		}
	}
	if err := t.stillOurs(); err != nil {
		return t.giveUp(ctx, err)
	}
	next := Armed
	if t.options.Hold {
		next = Held
	}
	if err := t.journal.enter(next); err != nil {
		return t.giveUp(ctx, err)
	}
	t.journal.Deadline = t.deadline(t.options.Confirm)
	if err := t.renew(ctx); err != nil {
		return t.giveUp(ctx, err)
	}
	return nil
}

// orUndone returns the failure. If a watchdog on the router caused it, because it
// did not hear from us and started to undo, that reason comes first.
func (t *Transaction) orUndone(ctx context.Context, failure error) error {
	if ctx.Err() != nil || errors.Is(failure, platform.ErrUnreachable) {
		return failure
	}
	if err := t.engine.watchdog().Renew(ctx, &t.journal); err != nil && !errors.Is(err, platform.ErrUnreachable) {
		return errors.Join(err, failure)
	}
	return failure
}

// renew writes the journal and passes it to the watchdog.
func (t *Transaction) renew(ctx context.Context) error {
	if err := t.write(); err != nil {
		return err
	}
	return t.engine.watchdog().Renew(ctx, &t.journal)
}

// run runs one step, unless the watchdog has started to undo.
func (t *Transaction) run(ctx context.Context, s platform.Step) error {
	if err := t.stillOurs(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("change %s: interrupted: %w", t.journal.WAN, err)
	}
	if t.engine.OnStep != nil {
		t.engine.OnStep(s)
	}
	t.Ran = append(t.Ran, s)
	return runStep(ctx, t.engine.Runner, s)
}

// stillOurs reads the journal again, since the watchdog may have acted.
func (t *Transaction) stillOurs() error {
	j, err := readJournal(t.path)
	switch {
	case err != nil:
		return err
	case j == nil || j.ID != t.journal.ID || j.Phase == Undoing:
		return fmt.Errorf("change %s: the watchdog has undone it, because the deadline passed; try again, with a longer --confirm", t.journal.WAN)
	case j.late(t.engine.uptime()): // the watchdog is about to act, so nothing may be written
		return fmt.Errorf("change %s: the deadline has passed, so the watchdog undoes it; try again, with a longer --confirm", t.journal.WAN)
	}
	return nil
}

// giveUp undoes the transaction. It returns the cause, with the error of the undo if
// there is one.
func (t *Transaction) giveUp(ctx context.Context, cause error) error {
	err := t.Revert(ctx)
	t.Close()
	if err != nil {
		return errors.Join(cause, err)
	}
	return cause
}

// Extend moves the deadline to d from now. A long tuning calls it regularly.
func (t *Transaction) Extend(d time.Duration) error {
	if t.Unchanged {
		return nil
	}
	if err := t.stillOurs(); err != nil {
		return err
	}
	t.journal.Deadline = t.deadline(d)
	return t.renew(context.Background())
}

// deadline returns d from now, or Lease if the transaction has no deadline.
func (t *Transaction) deadline(d time.Duration) time.Duration {
	if t.options.Hold && t.options.Lease {
		return Lease
	}
	return t.engine.uptime() + d
}

// Left returns how long the watchdog will still wait.
func (t *Transaction) Left() time.Duration { return t.journal.Deadline - t.engine.uptime() }

// Commit keeps the change; a later revert undoes it.
func (t *Transaction) Commit() error {
	if t.Unchanged {
		return t.engine.writeRecord(t.journal)
	}
	if err := t.stillOurs(); err != nil {
		return err
	}
	return t.engine.keep(context.Background(), &t.journal)
}

// Revert restores the state before Begin and verifies it.
func (t *Transaction) Revert(ctx context.Context) error {
	if t.Unchanged {
		return nil
	}
	_, err := t.engine.undo(ctx, &t.journal)
	return err
}

// Close releases the WAN's lock. It neither commits nor reverts; the watchdog keeps
// waiting for the deadline.
func (t *Transaction) Close() { t.lock.Unlock() }

func (t *Transaction) write() error {
	if err := writeJSON(t.path, t.journal); err != nil {
		return fmt.Errorf("keep the journal of %s: %w", t.journal.WAN, err)
	}
	return nil
}

// beyond returns the name of a device that p changes and q does not.
func beyond(p, q plan.Plan) string {
	have := devices(q)
	for _, d := range devices(p) {
		if !slices.Contains(have, d) {
			return d
		}
	}
	return ""
}

func devices(p plan.Plan) []string {
	out := []string{p.WAN, ""}
	for _, s := range []*plan.Shaper{p.Down, p.Up} {
		if s != nil {
			out = append(out, s.Device, s.IngressOf)
		}
	}
	for _, o := range p.Offloads {
		out = append(out, o.Device)
	}
	return out
}

// checkName refuses a WAN name that is a path out of the state directory.
func checkName(wan string) error {
	if wan == "" || wan != filepath.Base(wan) || wan[0] == '.' {
		return fmt.Errorf("change %q: not the name of an interface", wan)
	}
	return nil
}

// lock takes the WAN's lock, so that one transaction runs at a time.
func (e *Engine) lock(wan string) (*Lock, error) {
	if err := os.MkdirAll(e.Dir, 0o700); err != nil {
		return nil, &platform.PreconditionError{Doing: "change " + wan, What: "the journal can't be kept: " + err.Error(),
			Remedy: "run it as root, or choose a directory with --state-dir", Err: err}
	}
	l, err := TryLock(filepath.Join(e.Dir, wan+".lock"))
	if errors.Is(err, ErrLocked) {
		return nil, &BusyError{WAN: wan}
	}
	var strange *guard.UntrustedError
	switch {
	case errors.As(err, &strange):
		return nil, &platform.PreconditionError{Doing: "change " + wan, What: "the journal can't be kept: " + err.Error(),
			Remedy: "choose with --state-dir a directory that nobody else can change", Err: err}
	case errors.Is(err, os.ErrPermission):
		return nil, &platform.PreconditionError{Doing: "change " + wan, What: "the journal can't be kept: " + err.Error(), Remedy: "run it as root", Err: err}
	}
	return l, err
}

// lockSoon is lock for a revert: while a watchdog undoes the change, it waits a moment.
func (e *Engine) lockSoon(ctx context.Context, wan string) (*Lock, error) {
	until := e.uptime() + watchdogPatience
	for {
		l, err := e.lock(wan)
		var busy *BusyError
		if !errors.As(err, &busy) || e.uptime() > until || !sleep(ctx, watchdogPoll) {
			return l, err
		}
	}
}

func runStep(ctx context.Context, r platform.Runner, s platform.Step) error {
	var in []byte
	if s.Stdin != "" {
		in = []byte(s.Stdin)
	}
	_, errOut, err := r.Run(ctx, s.Argv, in)
	var pre *platform.PreconditionError
	if errors.As(err, &pre) { // the connection failed, not the command
		return err
	}
	if err != nil {
		return &platform.CommandError{Argv: s.Argv, Stderr: string(errOut), Err: err}
	}
	return nil
}
