package apply_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux"
	"unbloat/testkit/await"
	"unbloat/testkit/linuxfake"
	"unbloat/unit"
)

// watchedEngine returns an engine whose watchdog runs in this process, in a bubble
// of synctest: its time is the bubble's. wait waits until all watchdogs have ended.
func watchedEngine(t *testing.T, k *linuxfake.Kernel) (e *apply.Engine, wait func()) {
	t.Helper()
	e = fakeEngine(t, k)
	boot := time.Now()
	e.Uptime = func() time.Duration { return time.Since(boot) }
	t.Cleanup(func() { os.RemoveAll(e.Dir) })
	var group sync.WaitGroup
	e.StubWatchdog(func(_, journal string) error {
		r, w := io.Pipe()
		group.Go(func() {
			if err := e.Watch(context.Background(), journal, w); err != nil {
				t.Errorf("watchdog: %v", err)
			}
		})
		_, err := io.ReadFull(r, make([]byte, len("armed\n")))
		return err
	})
	return e, group.Wait
}

func smallPlan(t *testing.T) plan.Plan {
	t.Helper()
	p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: linux.Language(), WAN: "wan", LAN: "lan", IFB: true},
		plan.Preferences{AQM: plan.CAKE, Down: plan.RatePreference{Rate: 20 * unit.MbitPerSecond}, Up: plan.RatePreference{Rate: 4 * unit.MbitPerSecond}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestWatchdogUndoesAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := linuxfake.New()
		start := k.Text()
		e, wait := watchedEngine(t, k)
		var applied atomic.Bool
		failures := 0
		k.Fail = func([]string) (bool, bool) { // the watchdog tries until it succeeds
			if !applied.Load() {
				return false, false
			}
			failures++
			return failures < 9, false
		}
		tr, err := e.Begin(t.Context(), smallPlan(t), apply.Options{Confirm: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		applied.Store(true)
		tr.Close()
		wait()
		if k.Text() != start {
			t.Errorf("the watchdog left\n%s", k.Text())
		}
		if j, err := e.Pending("wan"); j != nil || err != nil {
			t.Errorf("the journal is still there: %v", err)
		}
	})
}

// A sulking router can't be read for a time, each time for another reason if it says so.
type sulking struct {
	platform.Backend
	until time.Time
	n     int
	other bool
}

func (s *sulking) Observe(ctx context.Context, p plan.Plan, earlier platform.State) (platform.State, error) {
	if time.Now().Before(s.until) {
		if s.other {
			s.n++
		}
		return nil, fmt.Errorf("reason %d", s.n)
	}
	return s.Backend.Observe(ctx, p, earlier)
}

// TestWatchdogSaysItOnce: a watchdog that can't undo for long writes a few lines about
// it: its log may be in a small router's memory.
func TestWatchdogSaysItOnce(t *testing.T) {
	await.NotShort(t)
	for _, other := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			k := linuxfake.New()
			start := k.Text()
			e, wait := watchedEngine(t, k)
			var log bytes.Buffer // the watchdog's alone, until it has ended
			s := &sulking{Backend: e.Backend, other: other}
			e.Backend, e.Log = s, &log
			tr, err := e.Begin(t.Context(), smallPlan(t), apply.Options{Confirm: 30 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			s.until = time.Now().Add(150 * time.Second)
			tr.Close()
			wait()
			most := 1
			if other {
				most = 100
			}
			if lines := strings.Count(log.String(), "\n"); lines == 0 || lines > most || !strings.Contains(log.String(), "reason 0") != other {
				t.Errorf("it wrote %d lines:\n%.2000s", lines, log.String())
			}
			if k.Text() != start {
				t.Errorf("the watchdog left\n%s", k.Text())
			}
		})
	}
}

func TestWatchdogOfAHolderThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := linuxfake.New()
		start := k.Text()
		e, wait := watchedEngine(t, k)
		tr, err := e.Begin(t.Context(), smallPlan(t), apply.Options{Confirm: time.Hour, Hold: true})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if k.Text() == start {
			t.Fatal("the watchdog fired while the holder was there")
		}
		tr.Close() // as when its process dies
		wait()
		if k.Text() != start {
			t.Errorf("the watchdog left\n%s", k.Text())
		}
		if err := tr.Extend(time.Hour); err == nil {
			t.Error("the heartbeat does not notice that all is over")
		}
	})
}

// TestWatchdogStopsAHolderThatHangs: past the deadline the watchdog undoes the
// change even if another process holds the lock. That process stops at its next
// step.
func TestWatchdogStopsAHolderThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := linuxfake.New()
		start := k.Text()
		e, wait := watchedEngine(t, k)
		p := smallPlan(t)
		tr, err := e.Begin(t.Context(), p, apply.Options{Confirm: 30 * time.Second, Hold: true})
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		wait()
		if k.Text() != start {
			t.Errorf("the watchdog left\n%s", k.Text())
		}
		if err := tr.Commit(); err == nil {
			t.Error("what the watchdog has undone was committed")
		}
		if err := tr.Retune(t.Context(), p.WithRates(p.DownBps, 5*unit.MbitPerSecond)); err == nil {
			t.Error("it went on after the watchdog had fired")
		}
		if k.Text() != start {
			t.Errorf("after the retune that came too late:\n%s", k.Text())
		}
	})
}

// TestKilledWhileCommitting: once the journal says committed, the next process
// completes the commit and does not undo it.
func TestKilledWhileCommitting(t *testing.T) {
	for _, next := range []string{"apply", "confirm", "revert"} {
		k := linuxfake.New()
		start := k.Text()
		e := fakeEngine(t, k)
		p := smallPlan(t)
		tr, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		tr.Close()
		shaped := k.Text()
		b, err := os.ReadFile(e.JournalPath("wan"))
		if err != nil {
			t.Fatal(err)
		}
		var j apply.Journal
		if err := json.Unmarshal(b, &j); err != nil {
			t.Fatal(err)
		}
		j.Phase = apply.Committed
		if b, err = json.Marshal(j); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(e.JournalPath("wan"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		want := shaped
		switch next {
		case "apply":
			var again *apply.Transaction
			if again, err = e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute}); err == nil {
				again.Close()
			}
		case "confirm":
			_, err = e.Confirm(t.Context(), "wan", nil)
		case "revert":
			want = start
			_, _, err = e.Revert(t.Context(), apply.Journal{WAN: "wan"})
		}
		if err != nil || k.Text() != want {
			t.Errorf("%s: %v\n%s", next, err, k.Text())
		}
		os.RemoveAll(e.Dir)
	}
}
