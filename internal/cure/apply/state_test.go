package apply

import (
	"testing"

	"pgregory.net/rapid"
)

// TestDecide: what to do about a transaction, in each state and situation.
func TestDecide(t *testing.T) {
	fresh := finding{Owner: true, Watchdog: true, SameBoot: true}
	gone, unwatched, rebooted, late := fresh, fresh, fresh, fresh
	gone.Owner, unwatched.Watchdog, rebooted.SameBoot, late.Late = false, false, false, true
	for _, c := range []struct {
		phase                                 Phase
		fresh, gone, unwatched, reboot, after action
	}{
		{Applying, leave, takeBack, leave, takeBack, takeBack},
		{Held, leave, takeBack, leave, takeBack, takeBack},
		{Armed, await, await, takeBack, takeBack, takeBack},
		{Closing, askAgain, askAgain, askAgain, askAgain, askAgain},
		{Undoing, takeBack, takeBack, takeBack, takeBack, takeBack},
		{Committed, leave, finish, leave, finish, finish},
	} {
		for _, x := range []struct {
			name string
			f    finding
			want action
		}{{"fresh", fresh, c.fresh}, {"owner gone", gone, c.gone}, {"no watchdog", unwatched, c.unwatched}, {"rebooted", rebooted, c.reboot}, {"late", late, c.after}} {
			if got := decide(c.phase, x.f); got != x.want {
				t.Errorf("%s, %s: %s, want %s", c.phase, x.name, got, x.want)
			}
		}
	}
}

// TestStates: a transaction that is undone or committed stays so, and one that is
// being undone is never committed.
func TestStates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := &Journal{WAN: "wan", Phase: Applying}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			was := j.Phase
			next := rapid.SampledFrom([]Phase{Applying, Held, Armed, Closing, Undoing, Committed}).Draw(t, "next")
			err := j.enter(next)
			final := was == Undoing || was == Committed
			switch {
			case err != nil && j.Phase != was:
				t.Fatalf("refused, and %s became %s", was, j.Phase)
			case err == nil && j.Phase != next:
				t.Fatalf("accepted, and %s did not become %s", was, next)
			case err == nil && final && next != was:
				t.Fatalf("%s became %s", was, next)
			case err == nil && was == Closing && next != Closing && next != Undoing && next != Committed:
				t.Fatalf("closing became %s", next)
			}
		}
	})
}
