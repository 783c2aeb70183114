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
// a hand-over of the scheduler's processor at every probe.
type Sleeper struct {
	clock *Clock
	file  *os.File
	raw   syscall.RawConn
	arm   func(fd uintptr) // sets the timer to spec; made once, so that sleeping allocates nothing
	spec  unix.ItimerSpec
	err   error
	buf   [8]byte
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
	s.arm = func(fd uintptr) { s.err = unix.TimerfdSettime(int(fd), 0, &s.spec, nil) }
	return s, nil
}

// Until sleeps until the given instant. It returns false once the sleeper is closed.
func (s *Sleeper) Until(at unit.Instant) bool {
	d := max(at.Sub(s.clock.Now()), 1) // zero would disarm the timer
	s.spec.Value = unix.NsecToTimespec(int64(d))
	if err := s.raw.Control(s.arm); err != nil || s.err != nil {
		return false
	}
	_, err := s.file.Read(s.buf[:])
	return err == nil
}

// Close wakes the sleeper for good. It may be called from any goroutine.
func (s *Sleeper) Close() {
	_ = s.file.SetReadDeadline(time.Unix(1, 0))
	_ = s.file.Close()
}
