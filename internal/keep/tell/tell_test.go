package tell

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"unbloat/internal/keep/config"
	"unbloat/internal/keep/incident"
	"unbloat/reason"
)

func wrong(id string, s incident.Severity, over bool) incident.Incident {
	x := incident.Incident{ID: id, WAN: "eth0", Kind: incident.Outage, Part: incident.Provider, Severity: s, Begin: time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)}
	x.What, x.Why = reason.Of(reason.IncidentOutage, "asked", 9, "answered", 0), reason.Of(reason.BlameUnknown)
	if over {
		x.End = x.Begin.Add(time.Minute)
	}
	return x
}

// A receiver hears of a begin and of its end, once each: not what is too mild, not in
// quiet hours, not more than so many an hour. What gets worse is heard then.
func TestGate(t *testing.T) {
	noon := time.Date(2026, 3, 2, 12, 0, 0, 0, time.Local)
	g := gate{to: config.Notify{MinSeverity: "major", Most: 3, QuietFrom: 22 * time.Hour, QuietTo: 7 * time.Hour}, told: map[string]bool{}}
	for i, c := range []struct {
		at        time.Duration
		x         incident.Incident
		ok, fully bool
	}{
		{0, wrong("a", incident.Minor, false), false, false},
		{1, wrong("a", incident.Major, false), true, false},
		{2, wrong("a", incident.Severe, false), false, false},
		{3, wrong("a", incident.Severe, true), true, false},
		{4, wrong("a", incident.Severe, true), true, false}, // another of that name, which was short
		{5, wrong("b", incident.Major, false), true, false},
		{6, wrong("c", incident.Major, false), false, true},
		{7, wrong("c", incident.Major, true), false, false},
		{time.Hour + 8, wrong("d", incident.Major, false), true, false},
		{10*time.Hour + 8, wrong("e", incident.Severe, false), false, false},
		{19*time.Hour + 8, wrong("e", incident.Severe, true), false, false},
		{10*time.Hour + 9, wrong("d", incident.Major, true), true, false}, // the end of what was told
		{19*time.Hour + 9, wrong("f", incident.Severe, false), true, false},
	} {
		if ok, full := g.passes(c.x, noon.Add(c.at)); ok != c.ok || full != c.fully {
			t.Errorf("%d: %s %s over %v: %v, full %v", i, c.x.ID, c.x.Severity, c.x.Over(), ok, full)
		}
	}
}

// A receiver that hangs or refuses slows nobody: Tell returns at once, the queue is
// bounded, what is dropped is counted, and what waits is sent when it answers again.
func TestReceiverThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		hangs, got, logged := true, []string{}, []string{}
		o := Options{Getenv: func(string) string { return "s3cret" }, Log: func(f string, a ...any) { logged = append(logged, fmt.Sprintf(f, a...)) },
			Send: func(ctx context.Context, to config.Notify, secret string, m Message) error {
				mu.Lock()
				stuck := hangs && to.To == "ntfy"
				mu.Unlock()
				if stuck {
					<-ctx.Done()
					return errors.New("no answer to s3cret")
				}
				mu.Lock()
				defer mu.Unlock()
				got = append(got, to.To+" "+m.Title)
				return nil
			}}
		receiver := func(to string) config.Notify {
			return config.Notify{To: to, URL: "https://" + to + ".example/s3cret", SecretEnv: "X", MinSeverity: "minor", Most: 1000}
		}
		tell := New([]config.Notify{receiver("ntfy"), receiver("webhook")}, o)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan bool)
		go func() { defer close(done); tell.Run(ctx) }()
		began := time.Now()
		for i := range 50 {
			tell.Tell(wrong(fmt.Sprint(i), incident.Severe, false))
			synctest.Wait()
		}
		if time.Since(began) != 0 {
			t.Errorf("telling took %s", time.Since(began))
		}
		time.Sleep(time.Minute)
		if c := tell.Counts(); c[0].Dropped != 18 || c[0].Sent != 0 || c[1].Sent != 50 || c[1].Dropped != 0 || c[0].Failing == "" || c[1].Failing != "" {
			t.Errorf("%+v", c)
		}
		mu.Lock()
		hangs = false
		mu.Unlock()
		time.Sleep(10 * time.Minute)
		if c := tell.Counts(); c[0].Sent != 32 || c[0].Failing != "" {
			t.Errorf("%+v", c)
		}
		mu.Lock()
		hangs = true
		mu.Unlock()
		tell.Tell(wrong("old", incident.Severe, false))
		time.Sleep(2 * time.Hour)
		if c := tell.Counts(); c[0].Dropped != 19 || c[0].Sent != 32 {
			t.Errorf("after two hours: %+v", c)
		}
		cancel()
		<-done
		if all := strings.Join(logged, "\n") + fmt.Sprint(tell.Counts()); strings.Contains(all, "s3cret") {
			t.Errorf("a secret is told: %s", all)
		} else if len(logged) == 0 {
			t.Error("that it hangs is not said")
		}
	})
}

// Each language has the words of a message.
func TestMessage(t *testing.T) {
	for _, l := range reason.Languages() {
		m := messageOf(wrong("a", incident.Severe, true), l.Tag, time.Now())
		if !strings.Contains(m.Title, l.Name("kind outage")) || !strings.Contains(m.Text, l.Name("part provider")) || strings.ContainsAny(m.Title+m.Text, "{}") {
			t.Errorf("%s: %+v", l.Tag, m)
		}
	}
}
