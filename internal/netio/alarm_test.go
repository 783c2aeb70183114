package netio_test

import (
	"context"
	"testing"
	"time"

	"unbloat/internal/netio"
)

// An alarm never rings early, rings again and again, and ends with its context, be
// it while somebody waits or before.
func TestAlarm(t *testing.T) {
	for name, open := range map[string]func(context.Context) netio.Alarm{"of the system": netio.OpenAlarm, "of the runtime": netio.NewTimerAlarm} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			a := open(ctx)
			defer a.Close()
			for _, d := range []time.Duration{0, 1, time.Millisecond, 20 * time.Millisecond, 3 * time.Millisecond, 0} {
				from := time.Now()
				if !a.Wait(d) {
					t.Fatalf("after %s: it has ended", d)
				}
				if took := time.Since(from); took < d {
					t.Errorf("rang after %s; it was set to %s", took, d)
				}
			}
			if n := testing.AllocsPerRun(20, func() { a.Wait(1) }); n > 0 {
				t.Errorf("%.0f allocations for each time", n)
			}
			time.AfterFunc(20*time.Millisecond, cancel)
			if a.Wait(time.Hour) {
				t.Error("it rang, an hour early")
			}
			if a.Wait(time.Hour) {
				t.Error("it rang, an hour early, after its context had ended")
			}
		})
	}
}
