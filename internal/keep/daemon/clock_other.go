//go:build !linux

package daemon

// monotonic is not needed where there is no systemd.
func monotonic() int64 { return 0 }
