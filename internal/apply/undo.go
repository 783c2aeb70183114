package apply

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"unbloat/internal/apply/proc"
	"unbloat/internal/platform"
)

// An UndoError says that the router's old state could not be restored.
type UndoError struct {
	WAN         string
	Differences []string // what still differs
	Err         error    // the last failure
}

func (e *UndoError) Error() string {
	if errors.Is(e.Err, platform.ErrUnreachable) {
		return fmt.Sprintf("undo on %s: %v; the watchdog on the router undoes the change; to be sure, run `unbloat revert` once the router can be reached again", e.WAN, e.Err)
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
// rounds. A step that fails does not stop the others; the next round tries again
// what is left.
func (e *Engine) restore(ctx context.Context, j *Journal, target platform.State, rounds int) error {
	var last error
	var diffs []string
	for range rounds {
		if errors.Is(last, platform.ErrUnreachable) {
			break
		}
		now, err := e.Backend.Observe(ctx, j.Plan, target)
		if err != nil {
			last = err
			continue
		}
		var steps []platform.Step
		if steps, diffs, err = e.Backend.Compare(now, target); err != nil {
			return err
		}
		if len(diffs) == 0 {
			return nil
		}
		for _, s := range steps {
			if e.OnStep != nil {
				e.OnStep(s)
			}
			if err := runStep(ctx, e.Runner, s); err != nil {
				last = err
			}
		}
	}
	return &UndoError{WAN: j.WAN, Differences: diffs, Err: last}
}

// undo restores the WAN's state before j's transaction and closes the transaction.
// The caller holds the lock.
func (e *Engine) undo(ctx context.Context, j *Journal) error {
	if err := j.enter(Undoing); err != nil {
		return err
	}
	if err := writeJSON(e.journalPath(j.WAN), j); err != nil {
		return err
	}
	_ = e.watchdog().Renew(ctx, j) // a watchdog that cannot be reached undoes by itself
	if err := e.restore(ctx, j, j.Before, 3); err != nil {
		j.Failure = err.Error()
		return errors.Join(err, writeJSON(e.journalPath(j.WAN), j))
	}
	_ = e.watchdog().Close(ctx, j) // the undo is done, with or without it
	return removeFile(e.journalPath(j.WAN))
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
		return errors.Join(err, e.undo(ctx, j))
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
	return writeJSON(e.recordPath(j.WAN), Record{Schema: JournalSchema, ID: j.ID, WAN: j.WAN, Plan: j.Plan,
		Time: time.Now().UTC().Format(time.RFC3339), Origin: j.Origin, Wanted: j.Wanted})
}

// watchdogAlive reports whether a watchdog process for wan runs: it holds a lock.
func (e *Engine) watchdogAlive(wan string) bool {
	l, err := proc.TryLock(e.watchdogLock(wan))
	if err != nil {
		return errors.Is(err, proc.ErrLocked)
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
	return e.undo(ctx, j)
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
		if err := e.undo(ctx, j); err != nil {
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
}

// Revert undoes the open transaction on p.WAN. If none is open it restores the state
// before unbloat; p.Plan names what to look at if nothing is recorded. done is
// false if there was nothing to undo.
func (e *Engine) Revert(ctx context.Context, p Journal) (r Reverted, done bool, err error) {
	wan := p.WAN
	if err := checkName(wan); err != nil {
		return r, false, err
	}
	l, err := e.lock(wan)
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
		return r, true, counting.undo(ctx, j)
	}
	return r, true, counting.revertRecord(ctx, &r, p)
}

// revertRecord restores the state before unbloat.
func (e *Engine) revertRecord(ctx context.Context, r *Reverted, p Journal) error {
	rec, err := e.Record(p.WAN)
	if err != nil {
		return err
	}
	var origin, earlier platform.State
	r.Was = "unknown"
	if rec != nil {
		r.Was, p.Plan, origin, earlier = "committed", rec.Plan, rec.Origin, rec.Wanted
	}
	now, err := e.Backend.Observe(ctx, p.Plan, earlier)
	if err != nil {
		return err
	}
	target, err := e.Backend.Baseline(ctx, now, origin)
	if err != nil {
		return err
	}
	if err := e.restore(ctx, &Journal{WAN: p.WAN, Plan: p.Plan}, target, 3); err != nil {
		return err
	}
	return removeFile(e.recordPath(p.WAN))
}
