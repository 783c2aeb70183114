// Package proc is what a transaction needs of the operating system: a lock that
// dies with its holder, a process that outlives its parent, and a clock that
// runs on while the machine sleeps.
package proc

import (
	"errors"
	"os"
)

// ErrLocked is returned by TryLock when another process holds the lock.
var ErrLocked = errors.New("another process holds the lock")

// A Lock is an exclusive lock on a file. The kernel releases it when its
// holder ends, however it ends.
type Lock struct{ f *os.File }

// Unlock releases the lock. The file stays, so that nobody locks a deleted one.
func (l *Lock) Unlock() {
	if l != nil && l.f != nil {
		release(l.f)
		l.f.Close()
		l.f = nil
	}
}
