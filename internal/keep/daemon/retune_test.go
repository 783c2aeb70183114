package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/all"
	"unbloat/internal/keep/supervise"
	"unbloat/testkit/await"
	"unbloat/unit"
)

const mbit = unit.MbitPerSecond

// filesOf returns what a stand-in with files has on its disk.
func filesOf(r platform.Runner) map[string]string {
	b, err := json.Marshal(r)
	var m struct{ Files map[string]string }
	if err != nil || json.Unmarshal(b, &m) != nil {
		return nil
	}
	return maps.Clone(m.Files)
}

// TestRetuneInPlace: where programs change the rates of a line that is followed, they
// are read back and kept in place; what a reboot loads stays, and whoever comes next,
// after a crash too, finds a router that it knows.
func TestRetuneInPlace(t *testing.T) {
	await.NotShort(t)
	for _, name := range []string{"freebsd", "openbsd", "opnsense", "pfsense"} {
		t.Run(name, func(t *testing.T) {
			dir := inMemory(t)
			synctest.Test(t, func(t *testing.T) { retunes(t, name, dir) })
		})
	}
}

func retunes(t *testing.T, name, dir string) {
	x := newTown(t, name, dir, 1)
	x.start()
	defer func() { x.stop() }()
	time.Sleep(5 * time.Second)
	line := func() *puppet {
		t.Helper()
		l := x.only().following.line()
		if l == nil {
			t.Fatalf("the line is not followed: %q", x.only().following.said)
		}
		return l.Follower.(*puppet)
	}
	right := func(what string) {
		t.Helper()
		if d, err := x.differs(); err != nil || len(d) > 0 {
			t.Errorf("%s: %v %q", what, err, d)
		}
		if s, _ := x.only().snapshot(); s.State != supervise.InPlace {
			t.Errorf("%s: %+v", what, s)
		}
	}
	if every := line().line.Params.Every; every < 2*time.Second || line().line.Inbound != "" || !line().line.Slow {
		t.Errorf("a change takes programs, and may come each %v: %+v", every, line().line)
	}
	_, unsupported := x.backend.Retune(nil, *x.only().plan, *x.only().plan)
	retuner := !errors.Is(unsupported, errors.ErrUnsupported)
	if is := name != "opnsense"; retuner != is {
		t.Fatalf("shapers can have other rates than the settings: %t", retuner)
	}
	files := filesOf(x.router.at)
	for i, rates := range [][2]unit.Rate{{20 * mbit, 5 * mbit}, {20 * mbit, 6*mbit + 123_456}, {49*mbit + 999, 9 * mbit}} {
		if err := line().set(t.Context(), rates); err != nil {
			t.Fatal(err)
		}
		right("followed")
		if s, _ := x.only().snapshot(); i == 0 && (s.Down != 20*mbit || s.Up != 5*mbit) {
			t.Errorf("the status has %s down and %s up", s.Down, s.Up)
		}
	}
	if now := filesOf(x.router.at); retuner && !maps.Equal(files, now) {
		t.Errorf("files changed while the line was followed:\n%q\n%q", files, now)
	}
	before, _ := x.only().snapshot()
	time.Sleep(3 * pollHearing)
	right("looked at again")
	if now, _ := x.only().snapshot(); now.Looks == before.Looks || now.Mends != before.Mends {
		t.Errorf("nothing was to be mended: %+v", now)
	}

	x.router.set(failing)
	if err := line().set(t.Context(), [2]unit.Rate{10 * mbit, 2 * mbit}); err == nil {
		t.Error("a change that fails is told as done")
	}
	x.router.set(lying)
	if err := line().set(t.Context(), [2]unit.Rate{11 * mbit, 3 * mbit}); err == nil {
		t.Error("a change that does nothing is told as done")
	}
	x.router.set(fine)
	time.Sleep(2 * time.Minute)
	right("after failures")

	for range 20 { // somebody takes parts away, or loads what is configured
		x.damage()
		time.Sleep(2 * pollHearing)
		right("damaged")
	}

	if err := line().set(t.Context(), [2]unit.Rate{30 * mbit, 7 * mbit}); err != nil {
		t.Fatal(err)
	}
	if retuner { // a crash leaves rates that no record knows
		usual, to := *x.only().plan, *x.only().rates.Running()
		x.stop()
		e := x.engine(x.backend)
		if drift, err := e.Drift(t.Context(), x.wan); err != nil || len(drift) > 0 {
			t.Errorf("the daemon ended, and the router is not as recorded: %v %q", err, drift)
		}
		e.Rates = new(apply.Rates)
		if _, err := e.Mend(t.Context(), usual); err != nil {
			t.Fatal(err)
		}
		if err := e.Retune(t.Context(), [2]unit.Rate{to.DownBps, to.UpBps}, nil); err != nil {
			t.Fatal(err)
		}
		x.start()
		time.Sleep(5 * time.Second)
		right("started after a crash")
		if err := line().set(t.Context(), [2]unit.Rate{30 * mbit, 7 * mbit}); err != nil {
			t.Fatal(err)
		}
	}
	w := x.only()
	if _, err := w.call(t.Context(), func(ctx context.Context) (any, error) { return w.revert(ctx, &Caller{does: "test"}) }); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Minute)
	if now, err := x.backend.Observe(t.Context(), plan.Plan{WAN: x.wan}, nil); err != nil {
		t.Fatal(err)
	} else if to, err := x.backend.Baseline(t.Context(), now, nil); err != nil {
		t.Fatal(err)
	} else if _, left, err := x.backend.Compare(now, to); err != nil || len(left) > 0 || w.following.line() != nil {
		t.Errorf("reverted, and there is still %v %q", err, left)
	}
}

// TestFollowable: what a platform can't do is said with the reason.
func TestFollowable(t *testing.T) {
	for _, name := range all.Names() {
		d, err := all.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		can := map[string]bool{"linux": true, "freebsd": true, "openbsd": true, "opnsense": true, "pfsense": true}[name]
		if d.OwnTC != nil {
			d, can = d.OwnTC(), true
		}
		for _, x := range []struct {
			what string
			pref plan.Preferences
			can  bool
		}{
			{"usually", plan.Preferences{}, can},
			{"one direction alone", plan.Preferences{Only: plan.DirectionUp}, false},
			{"plain queues", plan.Preferences{AQM: plan.FIFO}, false},
			{"classes", plan.Preferences{Classes: plan.ClassPreferences{Use: plan.ClassesOn}}, false},
		} {
			p, err := plan.Make(plan.Line{Down: 50 * mbit, Up: 10 * mbit}, d.Language.Assume("wan", "lan"), x.pref)
			if err != nil {
				if x.what == "usually" {
					t.Errorf("%s: %v", name, err)
				}
				continue // refused already
			}
			if x.what == "classes" && p.Down.AQM == plan.CAKE {
				continue // CAKE's own tins scale with its rate
			}
			if err := Followable(d, p); (err == nil) != x.can {
				t.Errorf("%s: %s: %v", name, x.what, err)
			}
		}
	}
}
