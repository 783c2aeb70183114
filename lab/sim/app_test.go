package sim

import (
	"testing"
	"time"

	"unbloat/unit"
)

// On an idle line pages, films and mail are quick. Beside an upload through a
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
			a, err := n.AddApp(AppParams{Activity: Activity(k), Host: 1, Stop: 100e9, Film: steady{}})
			if err != nil {
				t.Fatal(err)
			}
			apps[k] = a
		}
		n.RunUntil(120e9)
		for k, a := range apps {
			took[busy][k] = mean(a)
			if len(a.Fetches()) < 3 { // pages beside an upload
				t.Errorf("busy %d: activity %d got only %d things done", busy, k, len(a.Fetches()))
			}
		}
	}
	for k := range took[0] {
		t.Logf("activity %d: %v idle, %v beside an upload", k, took[0][k], took[1][k])
	}
	// Five exchanges are five round trips, and the connection's setup is one
	// more.
	if got := took[0][IMAP]; got < 150*time.Millisecond || got > 500*time.Millisecond {
		t.Errorf("mail takes %v on an idle line, want five round trips of 30 ms and some queueing", got)
	}
	for _, k := range []Activity{Web, IMAP} {
		if took[1][k] < 2*took[0][k] {
			t.Errorf("activity %d takes %v beside an upload, %v idle", k, took[1][k], took[0][k])
		}
	}
}

// steady is a film of 1 Mbit/s in segments of 4 s.
type steady struct{}

func (steady) Ask(unit.Instant) unit.Size { return 500 * unit.KB }

func (steady) Took(_ unit.Instant, took time.Duration) time.Duration {
	return max(4*time.Second-took, 0)
}

// A mailbox is fetched once, completely, at the line's rate.
func TestMailbox(t *testing.T) {
	n := line(t, 8e6, 1e6, 30*time.Millisecond, 200e3, 50e3, 3)
	a, err := n.AddApp(AppParams{Activity: IMAP, Host: 1, Messages: 200})
	if err != nil {
		t.Fatal(err)
	}
	n.RunUntil(1e9)
	if arrived, all := a.Mailbox(); arrived <= 0 || arrived >= all || all < 200*mailLeast {
		t.Errorf("after a second %d of %d bytes have arrived", arrived, all)
	}
	n.RunUntil(60e9)
	arrived, all := a.Mailbox()
	if arrived != all || len(a.Fetches()) != 1 {
		t.Fatalf("%d of %d bytes after a minute, %v", arrived, all, a.Fetches())
	}
	if took, least := a.Fetches()[0].Took, unit.Rate(8e6).Time(all); took < least || took > 2*least+time.Second {
		t.Errorf("%d bytes took %v, at 8 Mbit/s %v", all, took, least)
	}
}
