package apply

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The watchdog is a separate process, which survives the end of the terminal. It
// undoes a transaction when the deadline passes, or when the process that applies
// it ends early. It prints `armed` once it watches.
const (
	watchdogArmed    = "armed"
	watchdogStart    = 10 * time.Second       // time to print it
	watchdogPoll     = 200 * time.Millisecond // between looks at the journal
	watchdogRetry    = time.Second            // between attempts to undo
	watchdogRetries  = time.Minute            // the same, once what they do can't be read
	watchdogPatience = 5 * time.Second        // how long a process may hold the lock past the deadline
	watchdogLines    = 100                    // most errors that it writes to its log, which may be in memory
)

// ErrTooLate says that the watchdog has already undone the change.
var ErrTooLate = errors.New("the change has been undone meanwhile, because it was not confirmed in time or the connection to the router was lost")

// A Watchdog undoes an open transaction that nobody confirms in time. It runs where
// the end of this process, or of the connection to the router, does not stop it.
type Watchdog interface {
	// Arm starts it before the first change, and returns once it watches.
	Arm(ctx context.Context, j *Journal) error
	// Renew passes it a new phase or deadline. With the phase Undoing it leaves the
	// undo to us, or has finished its own when Renew returns. An error says that it
	// has started to undo, or cannot be reached.
	Renew(ctx context.Context, j *Journal) error
	// Alive reports whether it watches.
	Alive(ctx context.Context, j *Journal) bool
	// Close stops it, so that nothing is undone any more. Repeated calls give the
	// same answer. The error is ErrTooLate if it has undone the change, and another
	// error if it cannot be reached.
	Close(ctx context.Context, j *Journal) error
}

func (e *Engine) watchdog() Watchdog {
	if e.Watchdog != nil {
		return e.Watchdog
	}
	return localWatchdog{e}
}

// localWatchdog is the watchdog process on this machine. It reads the journal.
type localWatchdog struct{ e *Engine }

func (g localWatchdog) Arm(_ context.Context, j *Journal) error {
	path := g.e.journalPath(j.WAN)
	if g.e.arm != nil {
		return g.e.arm(j.WAN, path)
	}
	return g.e.startWatchdog(j.WAN, path)
}

func (g localWatchdog) Renew(context.Context, *Journal) error     { return nil }
func (g localWatchdog) Alive(_ context.Context, j *Journal) bool  { return g.e.watchdogAlive(j.WAN) }
func (g localWatchdog) Close(_ context.Context, _ *Journal) error { return nil }

// startWatchdog starts a watchdog process and waits until it watches.
func (e *Engine) startWatchdog(wan, journal string) error {
	argv := append(append([]string(nil), e.WatchdogArgv...), journal)
	_, out, err := Detach(argv, filepath.Join(e.Dir, wan+".watchdog.log"))
	if err != nil {
		return fmt.Errorf("start the watchdog of %s: %w; nothing was changed", wan, err)
	}
	defer out.Close()
	if f, ok := out.(*os.File); ok {
		_ = f.SetReadDeadline(time.Now().Add(watchdogStart))
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if strings.TrimSpace(line) != watchdogArmed {
		return fmt.Errorf("start the watchdog of %s: it did not say that it watches (%q, %v); see %s.watchdog.log; nothing was changed", wan, line, err, filepath.Join(e.Dir, wan))
	}
	if !e.watchdogAlive(wan) {
		return fmt.Errorf("start the watchdog of %s: it ended at once; see %s.watchdog.log; nothing was changed", wan, filepath.Join(e.Dir, wan))
	}
	return nil
}

// Watch is what the watchdog process runs. It polls the journal until the
// transaction is closed or has to be undone; it repeats the undo until it succeeds,
// and writes to its log why it does not, once until there is another reason. It writes
// `armed` to out once it watches.
func (e *Engine) Watch(ctx context.Context, path string, out io.WriteCloser) error {
	j, err := readJournal(path)
	if err != nil {
		return err
	}
	if j == nil {
		return fmt.Errorf("watchdog %s: there is no such journal", path)
	}
	id, wan := j.ID, j.WAN
	l, err := e.waitWatchdogLock(ctx, wan)
	if err != nil {
		return fmt.Errorf("watchdog %s: %w", path, err)
	}
	defer l.Unlock()
	fmt.Fprintln(out, watchdogArmed)
	out.Close()
	var log io.Writer = os.Stderr
	if e.Log != nil {
		log = e.Log
	}
	said, lines := "", 0
	retry := watchdogRetry
	for {
		j, err := readJournal(path)
		if err == nil && (j == nil || j.ID != id) {
			return nil // committed or reverted
		}
		if err == nil && e.due(j) {
			if err := e.fire(ctx, path, id, wan); err != nil {
				if text := err.Error(); text != said && lines < watchdogLines {
					said, lines = text, lines+1
					fmt.Fprintln(log, "unbloat watchdog:", text)
				}
				if !sleep(ctx, retry) {
					return ctx.Err()
				}
				var undo *UndoError
				if errors.As(err, &undo) && undo.Unread { // each attempt takes the queues away for a moment
					retry = min(2*retry, watchdogRetries)
				}
			}
			continue // to see whether the journal is closed
		}
		if !sleep(ctx, watchdogPoll) {
			return ctx.Err()
		}
	}
}

// waitWatchdogLock takes the watchdog's lock. The watchdog of an earlier transaction
// may need a moment to end.
func (e *Engine) waitWatchdogLock(ctx context.Context, wan string) (*Lock, error) {
	until := e.uptime() + watchdogStart/2
	for {
		l, err := TryLock(e.watchdogLock(wan))
		if !errors.Is(err, ErrLocked) || e.uptime() > until {
			return l, err
		}
		if !sleep(ctx, watchdogPoll/4) {
			return nil, ctx.Err()
		}
	}
}

// due reports whether the watchdog must act: the deadline has passed, or the
// process that applied the change has ended.
func (e *Engine) due(j *Journal) bool {
	owner := true
	if j.Phase != Armed { // Armed has no owner, and `confirm` takes the lock
		if l, err := TryLock(filepath.Join(e.Dir, j.WAN+".lock")); err == nil {
			l.Unlock()
			owner = false
		}
	}
	what := decide(j.Phase, e.found(j, owner, true))
	return what != leave && what != await
}

// fire finishes a committed transaction and undoes any other. If a process still
// holds the lock long after the deadline, it hangs: fire then undoes without the
// lock, and the journal stops that process at its next step.
func (e *Engine) fire(ctx context.Context, path, id, wan string) error {
	until := e.uptime() + watchdogPatience
	var l *Lock
	for {
		var err error
		if l, err = TryLock(filepath.Join(e.Dir, wan+".lock")); err == nil {
			break
		}
		if e.uptime() > until {
			break
		}
		if !sleep(ctx, watchdogPoll) {
			return ctx.Err()
		}
	}
	defer l.Unlock()
	j, err := readJournal(path)
	if err != nil {
		return err
	}
	if j == nil || j.ID != id {
		return nil
	}
	switch decide(j.Phase, e.found(j, l == nil, true)) {
	case leave, await:
		return nil // confirmed, extended or verified meanwhile
	case finish:
		return e.commit(j)
	}
	_, err = e.undo(ctx, j)
	return err
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
