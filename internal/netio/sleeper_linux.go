package netio

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"unbloat/unit"
)

// A Sleeper wakes one goroutine at exact instants. It is a timerfd in the
// runtime's poller: epoll's own timeout, which Go's timers rest on, is whole
// milliseconds, and a thread of its own that sleeps in a system call would cost
// a hand-over of the scheduler's processor at every probe. Neither does the
// scheduler know of its calls, so that its monitor sleeps on.
type Sleeper struct {
	clock *Clock
	file  *os.File
	raw   syscall.RawConn
	ring  func(fd uintptr) bool // sets the timer to spec, and is done when called again; made once, so that sleeping allocates nothing
	spec  unix.ItimerSpec
	set   bool
}

// NewSleeper returns a sleeper; Close frees it.
func NewSleeper(c *Clock) (*Sleeper, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create a timer: %w", err)
	}
	s := &Sleeper{clock: c, file: os.NewFile(uintptr(fd), "timerfd")}
	if s.raw, err = s.file.SyscallConn(); err != nil {
		s.file.Close()
		return nil, fmt.Errorf("create a timer: %w", err)
	}
	s.ring = func(fd uintptr) bool {
		if s.set {
			return true // reading would tell how often it rang; the next setting forgets that
		}
		s.set = true
		_ = unix.TimerfdSettime(int(fd), 0, &s.spec, nil) // fails for a wrong descriptor or time only
		return false
	}
	return s, nil
}

// Until sleeps until the given instant. It returns false once the sleeper is closed.
func (s *Sleeper) Until(at unit.Instant) bool {
	d := max(at.Sub(s.clock.Now()), 1) // zero would disarm the timer
	s.spec.Value = unix.NsecToTimespec(int64(d))
	s.set = false
	return s.raw.Read(s.ring) == nil
}

// Close wakes the sleeper for good. It may be called from any goroutine.
func (s *Sleeper) Close() {
	_ = s.file.SetReadDeadline(time.Unix(1, 0))
	_ = s.file.Close()
}
