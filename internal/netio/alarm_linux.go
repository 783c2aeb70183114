package netio

import (
	"context"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// OpenAlarm returns an Alarm of the kernel's timers: two system calls for each time. A
// timer of the runtime takes a dozen, since its deadline wakes the scheduler, in whole
// milliseconds and so twice, and its monitor's thread too.
func OpenAlarm(ctx context.Context) Alarm {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return NewTimerAlarm(ctx)
	}
	a := &kernelAlarm{file: os.NewFile(uintptr(fd), "timer")}
	if a.conn, err = a.file.SyscallConn(); err == nil {
		err = a.file.SetReadDeadline(time.Time{}) // fails where it can't be polled
	}
	if err != nil {
		_ = a.file.Close()
		return NewTimerAlarm(ctx)
	}
	a.stop = context.AfterFunc(ctx, func() { _ = a.file.SetReadDeadline(time.Unix(1, 0)) })
	a.armed = a.arm
	return a
}

type kernelAlarm struct {
	file  *os.File
	conn  syscall.RawConn
	stop  func() bool
	armed func(fd uintptr) bool // arm, made once
	next  unix.ItimerSpec
	set   bool // to next; arm is called again when that rang
}

func (a *kernelAlarm) Wait(d time.Duration) bool {
	a.next.Value = unix.NsecToTimespec(int64(max(d, 1))) // zero would disarm it
	a.set = false
	return a.conn.Read(a.armed) == nil
}

// arm sets the timer, and is done when called again. Reading it would tell how often it
// rang; setting it again forgets that as well.
func (a *kernelAlarm) arm(fd uintptr) bool {
	if a.set {
		return true
	}
	a.set = true
	_ = unix.TimerfdSettime(int(fd), 0, &a.next, nil) // fails for a wrong descriptor or time only
	return false
}

func (a *kernelAlarm) Close() error {
	a.stop()
	return a.file.Close()
}
