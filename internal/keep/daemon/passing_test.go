package daemon

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/internal/keep/supervise"
)

// first reports whether a machine is to go first.
func first(w *wan, machine string) bool {
	return slices.ContainsFunc(w.wanted().Rules, func(r plan.Rule) bool { return r.Class == plan.Voice && slices.Contains(r.Home, machine) })
}

// Off for an hour is off, over restarts, and on again by itself; a machine that goes first
// for an hour does no longer after it; on, and off for good, end the hour.
func TestForAWhile(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		clock := func(o *Options) { o.Now = func() time.Time { return begun.Add(time.Since(begun)).Round(0) } }
		x := linuxTown(t, dir, oneWAN, clock)
		defer func() { x.stop() }()
		keeps := func() { x.d.loops.Go(func() { x.d.keepSchedule(x.d.running) }) }
		keeps()
		restart := func() {
			x.stop()
			x.start()
			clock(&x.d.o)
			keeps()
		}
		is := func(after time.Duration, want supervise.State) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := x.only().supervisor.State(); got != want {
				t.Errorf("it is %s, want %s", got, want)
			}
		}
		do := func(p WhileParams) error {
			t.Helper()
			_, err := ask[While](t, x.d.Page(), MethodWhile, p)
			synctest.Wait()
			return err
		}
		is(time.Minute, supervise.InPlace)
		if err := do(WhileParams{Do: WhileOff, Seconds: 3600}); err != nil {
			t.Fatal(err)
		}
		is(30*time.Minute, supervise.Suspended)
		status := x.d.status().WANs[0]
		if status.OffUntil == "" || !strings.Contains(status.Says(), "off until") {
			t.Errorf("%+v", status)
		}
		restart()
		is(25*time.Minute, supervise.Suspended)
		is(6*time.Minute, supervise.InPlace)
		restart()
		is(time.Minute, supervise.InPlace)

		if err := do(WhileParams{Do: WhileOff, Seconds: 3600}); err != nil { // and the machine is off when it is over
			t.Fatal(err)
		}
		x.stop()
		time.Sleep(2 * time.Hour)
		x.start()
		clock(&x.d.o)
		keeps()
		is(time.Minute, supervise.InPlace)

		if err := do(WhileParams{Do: WhileOff, Seconds: 3600}); err != nil {
			t.Fatal(err)
		}
		if err := do(WhileParams{Do: WhileOff}); err != nil {
			t.Fatal(err)
		}
		is(time.Second, supervise.InPlace)
		if err := do(WhileParams{Do: WhileOff, Seconds: 3600}); err != nil {
			t.Fatal(err)
		}
		if _, err := ask[Reverted](t, x.d.Page(), MethodRevert, nil); err != nil { // for good
			t.Fatal(err)
		}
		is(3*time.Hour, supervise.Suspended)
		if err := do(WhileParams{Do: WhileOff, Seconds: 3600}); err == nil {
			t.Error("what is off for good is off for a while")
		}
		if _, err := ask[WANStatus](t, x.d.Page(), MethodOn, nil); err != nil {
			t.Fatal(err)
		}

		const machine = "192.168.1.20"
		if err := do(WhileParams{Do: WhileFirst, Machine: machine, Seconds: 3600}); err != nil {
			t.Fatal(err)
		}
		is(time.Minute, supervise.InPlace)
		if !first(x.only(), machine) {
			t.Errorf("it does not go first: %+v", x.only().wanted().Rules)
		}
		restart()
		is(time.Minute, supervise.InPlace)
		if !first(x.only(), machine) {
			t.Error("it does not go first after a restart")
		}
		is(time.Hour, supervise.InPlace)
		if first(x.only(), machine) {
			t.Error("it goes first when the hour is over")
		}
		for _, p := range []WhileParams{{Do: "sleep", Seconds: 60}, {Do: WhileFirst, Seconds: 60}, {Do: WhileFirst, Machine: "a b", Seconds: 60}, {Do: WhileOff, Seconds: 1}, {Do: WhileOff, Seconds: 1e9}} {
			if err := do(p); err == nil {
				t.Errorf("%+v was done", p)
			} else {
				refused(t, err, CodeUsage)
			}
		}
	})
}
