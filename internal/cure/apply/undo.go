package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"unbloat/internal/cure/platform"
)

// An UndoError says that the router's old state could not be restored.
type UndoError struct {
	WAN         string
	Differences []string // what still differs
	Err         error    // the last failure
	// Unread says that nobody knows whether it is restored: the commands for it were
	// run, but the router's state can't be read.
	Unread bool
}

func (e *UndoError) Error() string {
	if errors.Is(e.Err, platform.ErrUnreachable) {
		return fmt.Sprintf("undo on %s: %v; the watchdog on the router undoes the change; to be sure, run `unbloat revert` once the router can be reached again", e.WAN, e.Err)
	}
	if e.Unread {
		return fmt.Sprintf("undo on %s: the commands that restore the old state were run, but whether it is restored can't be read: %v; once that works, run `unbloat revert` again", e.WAN, e.Err)
	}
	msg := fmt.Sprintf("undo on %s: the old state is not restored", e.WAN)
	if len(e.Differences) > 0 {
		msg += ": " + strings.Join(e.Differences, "; ")
	}
	if e.Err != nil {
		msg += " (" + e.Err.Error() + ")"
	}
	return msg + "; run `unbloat revert` again, or reboot: nothing is kept over a reboot"
}

// Unwrap returns the last failure.
func (e *UndoError) Unwrap() error { return e.Err }

// restore repairs the router's state until it equals target, in at most `rounds`
// rounds. What was done is known: where the state can't be read, it is restored
// without, and read then.
func (e *Engine) restore(ctx context.Context, j *Journal, target platform.State, rounds int) error {
	err := e.repair(ctx, j, target, rounds)
	var undo *UndoError
	if !errors.As(err, &undo) || !undo.Unread {
		return err
	}
	if ctx.Err() != nil {
		undo.Unread = false
		return err
	}
	steps, failed := e.Backend.Restore(target, j.Wanted)
	if failed != nil {
		return errors.Join(err, failed)
	}
	var missing *platform.MissingToolError
	if failed := e.runAll(ctx, steps); errors.As(failed, &missing) { // most steps fail where there is nothing to remove
		return &UndoError{WAN: j.WAN, Err: failed}
	}
	return e.repair(ctx, j, target, rounds)
}

// repair reads what differs from target, and repairs it, until nothing does. A step
// that fails does not stop the others; the next round tries again what is left.
func (e *Engine) repair(ctx context.Context, j *Journal, target platform.State, rounds int) error {
	var last error
	unread := 0
	var diffs []string
	for range rounds {
		if errors.Is(last, platform.ErrUnreachable) {
			break
		}
		if ctx.Err() != nil {
			last = errors.Join(context.Cause(ctx), last)
			break
		}
		now, err := e.Backend.Observe(ctx, j.Plan, target)
		if err != nil {
			last = err
			if unread++; unread == 2 && !errors.Is(err, platform.ErrUnreachable) {
				return &UndoError{WAN: j.WAN, Err: err, Unread: true}
			}
			continue
		}
		var steps []platform.Step
		if steps, diffs, err = e.Backend.Compare(now, target); err != nil {
			return err
		}
		if len(diffs) == 0 {
			return nil
		}
		last = cmp.Or(e.runAll(ctx, steps), last)
	}
	return &UndoError{WAN: j.WAN, Differences: diffs, Err: last}
}

// runAll runs all steps, and returns the last failure.
func (e *Engine) runAll(ctx context.Context, steps []platform.Step) (last error) {
	for _, s := range steps {
		if e.OnStep != nil {
			e.OnStep(s)
		}
		if err := runStep(ctx, e.Runner, s); err != nil {
			last = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return last
}

// bringBack restores target. If target can't be restored because what ran in it was
// not what its settings say, bringBack restores the settings and makes the router
// run what they say. lost says then what differs from target, for people.
func (e *Engine) bringBack(ctx context.Context, j *Journal, target platform.State) (lost []string, err error) {
	cause := e.restore(ctx, j, target, 3)
	if cause == nil || ctx.Err() != nil || errors.Is(cause, platform.ErrUnreachable) {
		return nil, cause
	}
	settled, err := e.Backend.Settled(target)
	if err != nil {
		return nil, cause
	}
	if _, lost, err = e.Backend.Compare(settled, target); err != nil || len(lost) == 0 {
		return nil, cause
	}
	if e.restore(ctx, j, settled, 2) != nil {
		return nil, cause
	}
	return lost, nil
}

// undoTime bounds an undo, which nobody can interrupt: a program on the router that
// never ends must not keep a resident process from everything else. The journal stays,
// and the next process goes on.
const undoTime = 2 * time.Minute

// undo restores the WAN's state before j's transaction and closes the transaction.
// lost says what could not be brought back, see bringBack. The caller holds the lock.
func (e *Engine) undo(ctx context.Context, j *Journal) (lost []string, err error) {
	if err := j.enter(Undoing); err != nil {
		return nil, err
	}
	if err := writeJSON(e.journalPath(j.WAN), j); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), undoTime, fmt.Errorf("it did not end within %s", undoTime))
	defer cancel()
	_ = e.watchdog().Renew(ctx, j) // a watchdog that cannot be reached undoes by itself
	if lost, err = e.bringBack(ctx, j, j.Before); err != nil {
		j.Failure = err.Error()
		return nil, errors.Join(err, writeJSON(e.journalPath(j.WAN), j))
	}
	_ = e.watchdog().Close(ctx, j) // the undo is done, with or without it
	return lost, removeFile(e.journalPath(j.WAN))
}

// keep stops the watchdog and commits. If the watchdog has already undone the
// change, nothing is kept. If a watchdog on the router does not answer, the journal
// stays in Closing, and the next process asks again.
func (e *Engine) keep(ctx context.Context, j *Journal) error {
	if e.Watchdog != nil {
		if err := j.enter(Closing); err != nil {
			return err
		}
		if err := writeJSON(e.journalPath(j.WAN), j); err != nil {
			return err
		}
	}
	err := e.watchdog().Close(ctx, j)
	if errors.Is(err, ErrTooLate) {
		_, undone := e.undo(ctx, j)
		return errors.Join(err, undone)
	}
	if err != nil {
		return err
	}
	return e.commit(j)
}

// commit turns the journal into a record. It may be interrupted anywhere: once the
// journal says committed, the next process finishes it.
func (e *Engine) commit(j *Journal) error {
	if err := j.enter(Committed); err != nil {
		return err
	}
	if err := writeJSON(e.journalPath(j.WAN), j); err != nil {
		return err
	}
	if err := e.writeRecord(*j); err != nil {
		return err
	}
	return removeFile(e.journalPath(j.WAN))
}

func (e *Engine) writeRecord(j Journal) error {
	err := writeJSON(e.recordPath(j.WAN), Record{Schema: JournalSchema, ID: j.ID, WAN: j.WAN, Plan: j.Plan,
		Time: time.Now().UTC().Format(time.RFC3339), Origin: j.Origin, Wanted: j.Wanted})
	if e.Rates != nil && err == nil {
		*e.Rates = Rates{settled: &j.Plan, record: j.ID}
	}
	return err
}

// watchdogAlive reports whether a watchdog process for wan runs: it holds a lock.
func (e *Engine) watchdogAlive(wan string) bool {
	l, err := TryLock(e.watchdogLock(wan))
	if err != nil {
		return errors.Is(err, ErrLocked)
	}
	l.Unlock()
	return false
}

func (e *Engine) watchdogLock(wan string) string { return filepath.Join(e.Dir, wan+".watchdog") }

// recoverStale finishes or undoes a transaction that an earlier process left. The
// caller holds the lock, so no other process is changing the WAN.
func (e *Engine) recoverStale(ctx context.Context, wan string) error {
	j, err := e.Pending(wan)
	if err != nil || j == nil {
		return err
	}
	switch decide(j.Phase, e.found(j, false, j.Phase == Armed && e.watchdog().Alive(ctx, j))) {
	case finish:
		return e.commit(j)
	case askAgain:
		err := e.keep(ctx, j)
		if left, e := e.Pending(wan); errors.Is(err, ErrTooLate) && e == nil && left == nil {
			return nil // it is undone
		}
		return err
	case await:
		return &BusyError{WAN: wan, Left: j.Deadline - e.uptime()}
	}
	_, err = e.undo(ctx, j)
	return err
}

// Confirm commits the transaction that waits for confirmation on wan. before, if not
// nil, is called with the journal first; if it fails, the transaction stays open.
func (e *Engine) Confirm(ctx context.Context, wan string, before func(*Journal) error) (*Journal, error) {
	l, err := e.lock(wan)
	if err != nil {
		return nil, err
	}
	defer l.Unlock()
	j, err := e.Pending(wan)
	if err != nil {
		return nil, err
	}
	what := await
	if j != nil {
		what = decide(j.Phase, e.found(j, false, true))
	}
	switch {
	case j == nil:
	case what == finish:
		return j, e.commit(j)
	case what == askAgain:
		return j, e.keep(ctx, j)
	case what == takeBack:
		if _, err := e.undo(ctx, j); err != nil {
			return nil, err
		}
	}
	if j == nil || what == takeBack {
		return nil, &platform.PreconditionError{Doing: "confirm the change of " + wan, What: "no change is waiting: it was undone at its deadline, reverted, or already kept",
			Remedy: "see `unbloat status`, and apply again if you want it"}
	}
	if before != nil {
		if err := before(j); err != nil {
			return nil, err
		}
	}
	return j, e.keep(ctx, j)
}

// A Reverted says what a revert undid.
type Reverted struct {
	WAN      string   `json:"wan"`
	Was      string   `json:"was"`      // "pending": an unconfirmed change; "committed"; "unknown": ours, but not recorded
	Commands []string `json:"commands"` // the commands it ran
	// Lost says what ran before the change but was not in the router's settings, or
	// was in them and did not run. The settings are as before, and the router runs
	// what they say.
	Lost []string `json:"lost,omitempty"`
}

// Revert undoes the open transaction on p.WAN. If none is open it restores the state
// before unbloat; p.Plan names what to look at if nothing is recorded. done is
// false if there was nothing to undo: nothing is recorded, and nothing of ours was found.
func (e *Engine) Revert(ctx context.Context, p Journal) (r Reverted, done bool, err error) {
	wan := p.WAN
	if err := checkName(wan); err != nil {
		return r, false, err
	}
	l, err := e.lockSoon(ctx, wan)
	if err != nil {
		return r, false, err
	}
	defer l.Unlock()
	r = Reverted{WAN: wan, Commands: []string{}}
	counting := *e
	counting.OnStep = func(s platform.Step) {
		r.Commands = append(r.Commands, s.String())
		if e.OnStep != nil {
			e.OnStep(s)
		}
	}
	j, err := e.Pending(wan)
	if err != nil {
		return r, false, err
	}
	if j != nil && j.Phase == Committed {
		if err := e.commit(j); err != nil {
			return r, false, err
		}
		j = nil
	}
	if j != nil {
		r.Was = "pending"
		r.Lost, err = counting.undo(ctx, j)
		return r, true, err
	}
	err = counting.revertRecord(ctx, &r, p)
	return r, r.Was != "unknown" || len(r.Commands) > 0, err
}

// revertRecord restores the state before unbloat.
func (e *Engine) revertRecord(ctx context.Context, r *Reverted, p Journal) error {
	r.Was = "unknown"
	rec, err := e.Record(p.WAN)
	if err != nil {
		return err
	}
	var origin, earlier platform.State
	if rec != nil {
		r.Was, p.Plan, origin, earlier = "committed", rec.Plan, rec.Origin, rec.Wanted
	}
	target := origin
	now, err := e.Backend.Observe(ctx, p.Plan, earlier)
	if err == nil {
		target, err = e.Backend.Baseline(ctx, now, origin)
	} else if rec != nil && !errors.Is(err, platform.ErrUnreachable) {
		err = nil // the record knows what was there
	}
	if err != nil {
		return err
	}
	if r.Lost, err = e.bringBack(ctx, &Journal{WAN: p.WAN, Plan: p.Plan, Wanted: earlier}, target); err != nil {
		return err
	}
	if e.Rates != nil {
		*e.Rates = Rates{}
	}
	return removeFile(e.recordPath(p.WAN))
}
