// Package await is how tests wait for what a socket, a process or the kernel
// does: they look until it has happened, and say what they waited for when it
// has not. Where everything is in one process, testing/synctest is better.
package await

import (
	"testing"
	"time"
)

// The looks begin close together and become rarer: what is there at once is seen
// at once, and a long wait costs no processor that others need.
const (
	firstPause = time.Millisecond
	mostPause  = 50 * time.Millisecond
)

// True reports whether ok becomes true within the given time. It calls ok once
// at least.
func True(within time.Duration, ok func() bool) bool {
	end := time.Now().Add(within)
	for pause := firstPause; !ok(); pause = min(2*pause, mostPause) {
		if time.Now().After(end) {
			return false
		}
		time.Sleep(pause)
	}
	return true
}

// Until waits for ok to become true, and fails the test if that takes longer than
// the given time. What names the event: "the server to listen".
func Until(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	if !True(within, ok) {
		t.Fatalf("waited %v in vain for %s", within, what)
	}
}

// Stays fails the test if ok becomes false within the given time. It is for what
// must not happen, for which there is no event to wait for.
func Stays(t testing.TB, during time.Duration, what string, ok func() bool) {
	t.Helper()
	if start := time.Now(); True(during, func() bool { return !ok() }) {
		t.Fatalf("after %v, no longer so: %s", time.Since(start).Round(time.Millisecond), what)
	}
}

// NotShort skips a test that takes seconds where -short is asked for, as `make check` does.
func NotShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: -short leaves out what takes seconds; `make test` has it")
	}
}
