//go:build !linux

package proc

import "time"

// Uptime returns the wall clock's time. This system has no other clock that counts
// during sleep and is the same in all processes.
func Uptime() time.Duration { return time.Duration(time.Now().UnixNano()) }

// BootID is not known here.
func BootID() string { return "" }
