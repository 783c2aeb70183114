package platform_test

import (
	"errors"
	"testing"
	"time"

	"unbloat/guard"
	"unbloat/internal/cure/platform"
	"unbloat/testkit/await"
	"unbloat/unit"
)

// A program that never stops to speak is ended, and so is one that never ends.
func TestLocalIsBounded(t *testing.T) {
	for script, want := range map[string]error{
		"exec yes":       guard.ErrLong,
		"exec yes >&2":   guard.ErrLong,
		"exec sleep 100": guard.ErrLate,
	} {
		l := platform.Local{Limit: guard.Limit{Size: unit.MB, Time: 300 * time.Millisecond}}
		if want == guard.ErrLong {
			l.Limit.Time = time.Minute
		}
		out, err := platform.Output(t.Context(), l, "sh", "-c", script)
		var failed *platform.CommandError
		if !errors.Is(err, want) || !errors.As(err, &failed) || len(out) != 0 {
			t.Errorf("%s: %d bytes, %v", script, len(out), err)
		}
		t.Log(err)
	}
}

// A busy router is slow, not broken: what a program has started may write its output
// more than five seconds after it.
func TestLocalIsPatient(t *testing.T) {
	await.NotShort(t)
	t.Parallel()
	out, err := platform.Output(t.Context(), platform.Local{}, "sh", "-c", "(sleep 5.2; echo late) &")
	if err != nil || string(out) != "late\n" {
		t.Errorf("%q, %v", out, err)
	}
}
