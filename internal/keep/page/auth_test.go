package page

import (
	"testing"
	"time"
)

// Sessions are bounded, for each role apart: the one of its role that was used longest ago
// makes room, and its stream ends.
func TestManySessions(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	a, err := newAuth(nil, func([]byte) error { return nil }, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	_, owner := a.begin(Admin)
	first, cookie := a.begin(Viewer)
	second, kept := a.begin(Viewer)
	for range 2 * mostSession {
		now = now.Add(time.Second)
		if a.session(kept) != second {
			t.Fatal("a session in use is gone")
		}
		a.begin(Viewer)
	}
	if a.session(cookie) != nil || len(a.sessions) != mostSession+1 {
		t.Errorf("%d sessions", len(a.sessions))
	}
	select {
	case <-first.ended:
	default:
		t.Error("its streams go on")
	}
	if a.session(owner) == nil {
		t.Error("viewers' sessions have ended the admin's")
	}
}
