// This file has what a transaction needs of the operating system: a lock that is
// released when its holder ends, a process that outlives its parent, and a clock
// that counts while the machine sleeps.

package apply

import (
	"errors"
	"os"
)

// ErrLocked is returned by TryLock when another process holds the lock.
var ErrLocked = errors.New("another process holds the lock")

// A Lock is an exclusive lock on a file. The kernel releases it when its holder
// ends, for whatever reason.
type Lock struct{ f *os.File }

// File is the locked file. Who inherits it has the lock too, until both have ended.
func (l *Lock) File() *os.File { return l.f }

// Unlock releases the lock. The file stays, so that nobody locks a deleted file.
func (l *Lock) Unlock() {
	if l != nil && l.f != nil {
		release(l.f)
		l.f.Close()
		l.f = nil
	}
}
