package lab

import (
	"context"
	"runtime"
	"slices"
	"time"
)

// KeepsTime watches for a moment how late this machine wakes what sleeps: the
// p99 over d of sleeps of a millisecond. A guest in real time whose probes leave
// late measures this machine, not the line.
func KeepsTime(ctx context.Context, d time.Duration) (late time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const nap = time.Millisecond
	var over []time.Duration
	for end := time.Now().Add(d); time.Now().Before(end) && ctx.Err() == nil; {
		asleep := time.Now()
		time.Sleep(nap)
		over = append(over, time.Since(asleep)-nap)
	}
	if len(over) == 0 {
		return 0
	}
	slices.Sort(over)
	return over[len(over)*99/100]
}
