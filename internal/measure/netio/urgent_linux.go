package netio

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// urgentNice is asked for where real-time priority is refused.
const urgentNice = -15

// Urgent gives the calling goroutine a thread of its own, with real-time
// priority where the system permits it (CAP_SYS_NICE or RLIMIT_RTPRIO), else
// with a better nice value where it permits that: probes ought to leave on
// time on a busy machine too. It is best effort. The returned function takes
// it back and must be called by the same goroutine.
func Urgent() (release func()) {
	if runtime.NumCPU() < 2 {
		return func() {} // with one processor, it would take the time from the load
	}
	runtime.LockOSThread()
	before, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return runtime.UnlockOSThread
	}
	fifo := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1}
	fifo.Flags = unix.SCHED_FLAG_RESET_ON_FORK
	if unix.SchedSetAttr(0, fifo, 0) != nil && unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), urgentNice) != nil {
		return runtime.UnlockOSThread
	}
	return func() {
		if unix.SchedSetAttr(0, before, 0) == nil {
			runtime.UnlockOSThread()
		} // else the thread stays locked and ends with its goroutine, as it must not serve others
	}
}
