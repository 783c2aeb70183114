//go:build !linux

package await

import (
	"testing"
	"time"
)

// Quiet skips a test whose figures are taken in real time where other programs keep the
// machine busy. How busy this system is it can't tell, so it skips.
func Quiet(t testing.TB) {
	t.Helper()
	t.Skip("SKIPPED: it needs a quiet machine, and how busy this one is can't be read")
}

// Meanwhile is as Quiet, and looks back: it skips too.
func Meanwhile(t testing.TB) (quiet func()) { return func() { t.Helper(); Quiet(t) } }

// Costs is as Quiet.
func Costs(t testing.TB, _ time.Duration, _ func()) { t.Helper(); Quiet(t) }
