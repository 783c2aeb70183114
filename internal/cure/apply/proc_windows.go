package apply

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/windows"

	"unbloat/guard"
)

// errUnsupported says that a watchdog on this machine needs a Unix system.
var errUnsupported = errors.New("changing this machine is supported on Unix systems only; use --router ssh://…")

// TryLock takes the lock at path, creating the file, or returns ErrLocked.
func TryLock(path string) (*Lock, error) {
	f, err := guard.OpenOwn(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	var all windows.Overlapped
	err = windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &all)
	if err == nil {
		return &Lock{f}, nil
	}
	f.Close()
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return nil, ErrLocked
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

// release does nothing here: closing the file releases the lock.
func release(*os.File) {}

// giveTo does nothing here: a file has its directory's owner.
func giveTo(*os.File, os.FileInfo) error { return nil }

// Detach is not supported here.
func Detach([]string, string) (int, io.ReadCloser, error) { return 0, nil, errUnsupported }

// IgnoreHangup does nothing here.
func IgnoreHangup() {}
