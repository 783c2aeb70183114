package sim

import (
	"testing"
	"time"
)

// On an idle line pages, films and mail are quick; beside an upload behind a
// modem that queues for seconds they are not.
func TestApps(t *testing.T) {
	mean := func(a *App) (sum time.Duration) {
		for _, f := range a.Fetches() {
			sum += f.Took
		}
		return sum / time.Duration(max(len(a.Fetches()), 1))
	}
	var took [2][3]time.Duration
	for busy := range 2 {
		n := line(t, 20e6, 1e6, 30*time.Millisecond, 500e3, 250e3, 3)
		if busy == 1 {
			addConn(t, n, ConnParams{Direction: Up})
		}
		var apps [3]*App
		for k := range apps {
			a, err := n.AddApp(AppParams{Activity: Activity(k), Host: 1, Stop: 100e9})
			if err != nil {
				t.Fatal(err)
			}
			apps[k] = a
		}
		n.RunUntil(120e9)
		for k, a := range apps {
			took[busy][k] = mean(a)
			if len(a.Fetches()) < 4 {
				t.Errorf("busy %d: activity %d got only %d things done", busy, k, len(a.Fetches()))
			}
		}
		if busy == 0 && apps[Video].Stalled() > 0 {
			t.Errorf("the film stood still for %v on an idle line", apps[Video].Stalled())
		}
	}
	for k := range took[0] {
		t.Logf("activity %d: %v idle, %v beside an upload", k, took[0][k], took[1][k])
	}
	// Five exchanges and two handshakes are seven round trips.
	if got := took[0][IMAP]; got < 210*time.Millisecond || got > 600*time.Millisecond {
		t.Errorf("mail takes %v on an idle line, want seven round trips of 30 ms and some queueing", got)
	}
	for _, k := range []Activity{Web, IMAP} {
		if took[1][k] < 2*took[0][k] {
			t.Errorf("activity %d takes %v beside an upload, %v idle", k, took[1][k], took[0][k])
		}
	}
}
