//go:build freebsd || openbsd || darwin

package apply

import (
	"time"

	"golang.org/x/sys/unix"
)

// Uptime returns the time since boot. It is the same in all processes, and nobody
// can set it.
func Uptime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// BootID is not known here: a reboot empties the directory of journals.
func BootID() string { return "" }
