package ui

import (
	"testing"
	"time"
)

// Sessions are bounded: the one that was used longest ago makes room, and its stream
// ends.
func TestManySessions(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	a, err := newAuth(nil, func([]byte) error { return nil }, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	first, cookie := a.begin(Admin)
	second, kept := a.begin(Viewer)
	for range mostSession - 1 {
		now = now.Add(time.Second)
		if a.session(kept) != second {
			t.Fatal("a session in use is gone")
		}
		a.begin(Viewer)
	}
	if a.session(cookie) != nil || len(a.sessions) != mostSession {
		t.Errorf("%d sessions", len(a.sessions))
	}
	select {
	case <-first.ended:
	default:
		t.Error("its streams go on")
	}
}
