//go:build !linux && !freebsd && !openbsd && !darwin

package apply

import "time"

// Uptime returns the wall clock's time: no router of ours runs this system.
func Uptime() time.Duration { return time.Duration(time.Now().UnixNano()) }

// BootID is not known here.
func BootID() string { return "" }
