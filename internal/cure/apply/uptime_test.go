//go:build unix

package apply

import (
	"testing"
	"time"
)

// TestUptime: deadlines count by a clock that goes on from boot. By the wall clock a
// router whose clock is set would undo too early, or hours too late.
func TestUptime(t *testing.T) {
	const years = 365 * 24 * time.Hour
	a := Uptime()
	if b := Uptime(); a <= 0 || a > 30*years || b < a {
		t.Errorf("the time since boot is %v, then %v", a, b)
	}
}
