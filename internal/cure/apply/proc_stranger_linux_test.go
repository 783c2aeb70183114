package apply

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	testkit "unbloat/testkit/await"
)

// TestStrangersLocks: a lock is taken on a regular file in a directory that nobody else
// can change. What another user put there is refused at once: a link is not followed, and
// neither a FIFO nor a lock that he holds is waited for.
func TestStrangersLocks(t *testing.T) {
	tmp := testkit.NobodysTmp(t)
	ours := filepath.Join(tmp, "ours")
	if err := os.Mkdir(ours, 0o700); err != nil {
		t.Fatal(err)
	}
	victim := filepath.Join(ours, "victim")
	testkit.NobodyDoes(t, tmp, `mkdir -m 777 theirs; ln -s "$1" link; ln -s "$2" way; mkfifo fifo; : >theirs/lock`, victim, ours)
	testkit.NobodyIsKept(t, tmp, `exec 9>held; flock 9; echo held; exec sleep 600`)
	for _, name := range []string{"link", "fifo", "held", "new", "theirs/lock", "way/lock"} {
		if l, err := TryLock(filepath.Join(tmp, name)); err == nil || errors.Is(err, ErrLocked) {
			t.Errorf("%s: locked (%v)", name, err)
			l.Unlock()
		}
	}
	if _, err := os.Lstat(victim); err == nil {
		t.Error("the link was followed")
	}
	for _, name := range []string{"link", "fifo"} {
		if err := os.Rename(filepath.Join(tmp, name), filepath.Join(ours, name)); err != nil {
			t.Fatal(err)
		}
		if l, err := TryLock(filepath.Join(ours, name)); err == nil {
			t.Errorf("%s was locked", name)
			l.Unlock()
		}
	}
	l, err := TryLock(filepath.Join(ours, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	l.Unlock()
}
