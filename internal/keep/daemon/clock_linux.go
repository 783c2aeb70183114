package daemon

import "golang.org/x/sys/unix"

// monotonic returns CLOCK_MONOTONIC in µs, as systemd compares it.
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return ts.Nano() / 1000
}
