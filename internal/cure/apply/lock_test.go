//go:build unix

package apply

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"
)

// TestUnlockBesideAStartingChild: a released lock can be taken at once, even if
// a child between fork and exec still has a copy of the file descriptor.
func TestUnlockBesideAStartingChild(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	l, err := TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := TryLock(path); !errors.Is(err, ErrLocked) {
		t.Errorf("locked twice: %v", err)
	}
	child, err := syscall.Dup(int(l.f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(child)
	l.Unlock()
	again, err := TryLock(path)
	if err != nil {
		t.Fatalf("unlocked, and yet: %v", err)
	}
	again.Unlock()
}
