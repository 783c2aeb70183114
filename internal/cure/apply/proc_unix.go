//go:build unix

package apply

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"unbloat/guard"
)

// TryLock takes the lock at path, creating the file, or returns ErrLocked. The directory
// must be one that nobody else can change.
func TryLock(path string) (*Lock, error) {
	f, err := guard.OpenOwn(path, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return &Lock{f}, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, ErrLocked
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

// release releases the lock at once. Closing the file is not enough: a child that
// is just being started has a copy of it until its exec.
func release(f *os.File) { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }

// giveTo makes a file one of whoever owns another.
func giveTo(f *os.File, other os.FileInfo) error {
	if is, ok := other.Sys().(*syscall.Stat_t); ok {
		return f.Chown(int(is.Uid), int(is.Gid))
	}
	return nil
}

// Detach starts argv in a new session, so that it survives the end of this process
// and of its terminal. Its standard error goes to the file log. The returned pipe
// is its standard output.
func Detach(argv []string, log string) (pid int, stdout io.ReadCloser, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 0, nil, err
	}
	defer w.Close()
	errs, err := guard.OpenOwn(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY)
	if err != nil {
		r.Close()
		return 0, nil, err
	}
	defer errs.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = w, errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		r.Close()
		return 0, nil, err
	}
	pid = cmd.Process.Pid
	go func() { _ = cmd.Wait() }() // reaps it if it ends first; ends with this process
	return pid, r, nil
}

// IgnoreHangup makes this process ignore the end of its terminal and ^C.
func IgnoreHangup() {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE, syscall.SIGTERM)
}
