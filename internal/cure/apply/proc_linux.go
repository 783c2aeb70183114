package apply

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Uptime returns the time since boot, sleep included.
func Uptime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// BootID names this boot of the machine: a deadline of another one means nothing.
func BootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}
