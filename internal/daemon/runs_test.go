package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"unbloat/internal/apply"
	"unbloat/internal/daemon/config"
	"unbloat/internal/daemon/keep"
	"unbloat/internal/plan"
	"unbloat/internal/platform"
	"unbloat/internal/platform/all"
	"unbloat/internal/reason"
	"unbloat/unit"
)

const oneWAN = "[[wan]]\ninterface = \"wan\"\ndown = \"50 Mbit/s\"\nup = \"10 Mbit/s\"\n"

// linuxTown returns a daemon that keeps a Linux stand-in by a configuration.
// Options are as change makes them.
func linuxTown(t *testing.T, dir, text string, change func(*Options)) *town {
	driver, err := all.Find("linux")
	if err != nil {
		t.Fatal(err)
	}
	at, wan := standIns()["linux"]()
	x := &town{t: t, driver: driver, wan: wan, dir: dir, journal: dir, begun: time.Now(), random: rand.New(rand.NewPCG(1, 3)), router: &moody{at: at, ours: func([]string) bool { return false }}}
	if x.backend, err = driver.Backend(platform.Options{Runner: at, Replace: true}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(x.file(), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	x.start()
	change(&x.d.o) // nobody has asked for it yet
	synctest.Wait()
	return x
}

// ask has a client ask the daemon.
func ask[T any](t *testing.T, c *client, method string, params any) (out T, err error) {
	t.Helper()
	r := Request{Method: method}
	if params != nil {
		if r.Params, err = json.Marshal(params); err != nil {
			t.Fatal(err)
		}
	}
	result, err := c.do(t.Context(), r)
	if err != nil {
		return out, err
	}
	b, err := json.Marshal(result)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out, nil
}

// refused expects an error with a code.
func refused(t *testing.T, err error, code Code) {
	t.Helper()
	if e := (*Error)(nil); !errors.As(err, &e) || e.Code != code {
		t.Errorf("%v, want the code %s", err, code)
	}
}

// TestRuns: a tuning is started and asked for; only one goes on at a time, and nobody
// else changes the WAN meanwhile; what it keeps is in the configuration when it is
// seen to have ended.
func TestRuns(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var x *town
		x = linuxTown(t, dir, oneWAN, func(o *Options) {
			o.Work = func(ctx context.Context, j Job) (any, int, error) {
				if j.Tune == nil || j.Tune.GoalMs != 7 || j.WAN.Down != 50*unit.MbitPerSecond {
					return nil, 2, fmt.Errorf("the job is %+v", j)
				}
				for i := range 300 {
					j.Report(RunEvent{Phase: &RunPhase{Phase: "idle", Elapsed: float64(i) / 5}})
					time.Sleep(200 * time.Millisecond)
				}
				p, err := plan.Make(plan.Line{Down: 40 * unit.MbitPerSecond, Up: 8 * unit.MbitPerSecond}, x.driver.Language.Assume("wan", ""), plan.Preferences{})
				if err != nil {
					return nil, 1, err
				}
				tr, err := x.engine(x.backend).Begin(ctx, p, apply.Options{Confirm: time.Minute, Hold: true})
				if err != nil {
					return nil, 1, err
				}
				defer tr.Close()
				return map[string]any{"schema": "unbloat.tune/1", "kept": true}, 0, tr.Commit()
			}
		})
		defer func() { x.stop() }()
		page := &client{d: x.d}
		started, err := ask[Started](t, page, MethodTune, TuneParams{GoalMs: 7, Unattended: true})
		if err != nil {
			t.Fatal(err)
		}
		_, err = ask[Started](t, page, MethodTest, nil)
		refused(t, err, CodeBusy)
		_, err = ask[WANStatus](t, page, MethodOn, nil)
		refused(t, err, CodeBusy)
		begin := time.Now()
		is, err := ask[RunStatus](t, page, MethodRun, RunParams{Run: started.Run, Wait: 5, After: 3})
		if err != nil || is.State != RunGoing || is.Last != 4 || len(is.Events) != 1 || is.Events[0].N != 4 || is.Phase.Phase != "idle" || time.Since(begin) > time.Second {
			t.Errorf("after %v: %+v, %v", time.Since(begin), is, err)
		}
		page.goes() // a page has a connection for each request
		for range 3 {
			time.Sleep(21 * time.Second)
			is, err = ask[RunStatus](t, &client{d: x.d}, MethodRun, RunParams{After: 250})
		}
		if err != nil || is.State != RunDone || string(is.Result) != `{"kept":true,"schema":"unbloat.tune/1"}` || is.Error != nil || is.Seconds < 59 || is.Seconds > 62 || len(is.Events) != 50 || is.Last != 300 {
			t.Errorf("%+v, %v", is, err)
		}
		if text := string(x.text()); !strings.Contains(text, `down = "40 Mbit/s"`) || !strings.Contains(text, `up = "8 Mbit/s"`) {
			t.Errorf("the configuration is\n%s", text)
		}
		time.Sleep(time.Second)
		if s := x.only().status; s.State != keep.InPlace || x.only().plan.Basis.Line.Down != 40*unit.MbitPerSecond {
			t.Errorf("%+v", s)
		}
		_, err = ask[RunStatus](t, page, MethodRun, RunParams{Run: "7"})
		refused(t, err, CodeUsage)
	})
}

// TestRunsEnd: a run ends when it is stopped, when its client goes, when nobody asks
// for an unattended one, and when the daemon ends; then others may begin.
func TestRunsEnd(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		undone := 0
		x := linuxTown(t, dir, oneWAN, func(o *Options) {
			o.Work = func(ctx context.Context, j Job) (any, int, error) {
				<-ctx.Done()
				time.Sleep(3 * time.Second) // it undoes what it has changed
				undone++
				return nil, 1, errors.New("interrupted")
			}
		})
		_, err := ask[RunStatus](t, &client{d: x.d}, MethodRun, nil)
		refused(t, err, CodePrecondition)
		for i, end := range []func(*client){
			func(c *client) {
				if _, err := ask[RunStatus](t, c, MethodRun, RunParams{Stop: true}); err != nil {
					t.Error(err)
				}
			},
			func(c *client) { c.goes() },
			func(*client) { time.Sleep(runUnasked) },
		} {
			c := &client{d: x.d}
			if _, err := ask[Started](t, c, MethodTest, TestParams{Unattended: i == 2}); err != nil {
				t.Fatalf("%d: %v", i, err)
			}
			time.Sleep(20 * time.Second)
			if is, _ := ask[RunStatus](t, &client{d: x.d}, MethodStatus, nil); undone != i {
				t.Errorf("%d: it has ended already: %+v", i, is)
			}
			end(c)
			time.Sleep(runUnasked + 4*time.Second)
			is, err := ask[RunStatus](t, &client{d: x.d}, MethodRun, nil)
			if err != nil || is.State != RunEnded || is.ExitCode != 1 || is.Error == nil || undone != i+1 {
				t.Errorf("%d: %+v, %v; %d undone", i, is, err, undone)
			}
		}
		if _, err := ask[Started](t, &client{d: x.d}, MethodTest, TestParams{Unattended: true}); err != nil {
			t.Fatal(err)
		}
		x.stop()
		x.d.runs.close()
		if undone != 4 {
			t.Errorf("the daemon has ended before its run: %d", undone)
		}
		_, err = ask[Started](t, &client{d: x.d}, MethodTest, nil)
		refused(t, err, CodeEnding)
	})
}

// TestRunStoppedWhileItBegins: a run may be seen and stopped from the moment on that it
// waits for its turn; it is not begun then, whoever waits for it is told, and another
// may begin.
func TestRunStoppedWhileItBegins(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		worked := 0
		x := linuxTown(t, dir, oneWAN, func(o *Options) {
			o.Work = func(context.Context, Job) (any, int, error) { worked++; return map[string]any{}, 0, nil }
		})
		defer func() { x.stop() }()
		go func() { // something takes the WAN's loop a while
			_, _ = x.only().call(t.Context(), func(context.Context) (any, error) { time.Sleep(20 * time.Second); return nil, nil })
		}()
		synctest.Wait()
		for _, unattended := range []bool{false, true} {
			ended := make(chan error)
			go func() {
				_, err := ask[Started](t, &client{d: x.d}, MethodTest, TestParams{Unattended: unattended})
				ended <- err
			}()
			synctest.Wait()
			begin := time.Now()
			is, err := ask[RunStatus](t, &client{d: x.d}, MethodRun, RunParams{Stop: true, Wait: 5})
			if err != nil || is.State != RunEnded || time.Since(begin) > time.Second {
				t.Errorf("after %v: %+v, %v", time.Since(begin), is, err)
			}
			refused(t, <-ended, CodeFailed)
		}
		if _, err := ask[Started](t, &client{d: x.d}, MethodTest, TestParams{Unattended: true}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if worked != 1 {
			t.Errorf("%d have worked", worked)
		}
	})
}

// TestRunsLeftOut: a build that can't measure says so.
func TestRunsLeftOut(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		x := linuxTown(t, dir, oneWAN, func(*Options) {})
		defer func() { x.stop() }()
		_, err := ask[Started](t, &client{d: x.d}, MethodTune, nil)
		refused(t, err, CodeLeftOut)
	})
}

// TestDecisions: changes for one reason that follow each other are one decision; the
// newest are remembered, and whoever asks again gets what is new.
func TestDecisions(t *testing.T) {
	var l decisions
	n := uint64(0)
	at := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	add := func(after time.Duration, direction string, code reason.Code, from, to unit.Rate) {
		at = at.Add(after)
		l.add(at, Decision{Direction: direction, From: from, To: to, Why: reason.Of(code)}, func() uint64 { n++; return n })
	}
	add(0, "down", reason.FollowRoom, 10, 11)
	add(time.Second, "up", reason.FollowQueue, 5, 4)
	add(time.Second, "down", reason.FollowRoom, 11, 12)
	add(3*time.Second, "down", reason.FollowRoom, 12, 13) // too late
	add(0, "down", reason.FollowQueue, 13, 9)
	got := l.after(0)
	if len(got) != 4 || got[0].Direction != "up" || got[1].From != 10 || got[1].To != 12 || got[1].Changes != 2 || got[1].N != 3 || got[1].Began != "2026-11-23T08:00:00.000Z" || got[1].Time != "2026-11-23T08:00:02.000Z" || got[3].To != 9 {
		t.Errorf("%+v", got)
	}
	if got := l.after(4); len(got) != 1 || got[0].N != 5 {
		t.Errorf("%+v", got)
	}
	for i := range 3 * MostDecisions {
		add(3*time.Second, "down", reason.FollowRoom, unit.Rate(i), unit.Rate(i+1))
	}
	if got := l.after(0); len(got) != MostDecisions || got[MostDecisions-1].To != 3*MostDecisions {
		t.Errorf("%d decisions are remembered", len(got))
	}
}

// TestSchedule: other rates hold from a time to another, and a machine goes first; a
// test happens once a day at its time, after what goes on; a clock that is set makes
// it neither happen twice nor all at once.
func TestSchedule(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		text := oneWAN + `[[schedule]]
do = "rates"
from = "08:00"
to = "17:00"
down = "30 Mbit/s"
days = ["mon", "tue", "wed", "thu", "fri"]

[[schedule]]
do = "last"
machine = "192.168.1.20"
from = "22:00"
to = "06:00"

[[schedule]]
do = "test"
at = "03:30"
`
		var tests []string
		// A Saturday, whatever the zone is.
		start := time.Now()
		base := time.Date(2026, 11, 21, 0, 0, 0, 0, time.Local)
		var x *town
		now := func() time.Time { return base.Add(time.Since(start)).Round(0) }
		x = linuxTown(t, dir, text, func(o *Options) {
			o.Now = now
			o.Work = func(_ context.Context, j Job) (any, int, error) {
				tests = append(tests, now().Format("Mon 15:04"))
				time.Sleep(time.Minute)
				return map[string]any{}, 0, nil
			}
		})
		defer func() { x.stop() }()
		x.d.loops.Go(func() { x.d.keepSchedule(x.d.running) })
		until := func(day int, clock string) {
			t.Helper()
			to, err := time.ParseInLocation("2 15:04", fmt.Sprintf("%d %s", day, clock), time.Local)
			if err != nil {
				t.Fatal(err)
			}
			to = time.Date(2026, 11, day, to.Hour(), to.Minute(), 0, 0, time.Local)
			base = base.Add(to.Sub(now()) - 2*time.Minute) // the time between is left out
			time.Sleep(2 * time.Minute)
			synctest.Wait()
		}
		is := func(down unit.Rate, rules int) {
			t.Helper()
			w := x.only()
			n := 0
			if w.plan != nil && w.plan.Basis != nil {
				n = len(w.wanted().Rules)
			}
			if w.plan == nil || w.plan.Basis.Line.Down != down || n != rules || w.keeper.State() != keep.InPlace {
				t.Errorf("%s: %s, %+v, %d rules", now().Format("Mon 15:04"), w.keeper.State(), w.plan, n)
			}
		}
		until(21, "03:31")
		is(50*unit.MbitPerSecond, 1)
		until(21, "12:00")
		is(50*unit.MbitPerSecond, 0) // no working day
		until(22, "03:31")
		until(23, "03:31")
		until(23, "07:59")
		is(50*unit.MbitPerSecond, 0)
		until(23, "08:01")
		is(30*unit.MbitPerSecond, 0)
		if d, err := x.differs(); err != nil || len(d) > 0 {
			t.Errorf("%q %v", d, err)
		}
		until(23, "17:01")
		is(50*unit.MbitPerSecond, 0)
		if strings.Join(tests, ", ") != "Sat 03:30, Sun 03:30, Mon 03:30" {
			t.Errorf("tests at %q", tests)
		}
		until(24, "03:32")
		base = base.Add(-5 * time.Minute) // set back to 03:27: its time comes again
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		base = base.Add(6 * 24 * time.Hour) // set forward: nothing is made up for
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		is(50*unit.MbitPerSecond, 1)
		if strings.Join(tests[3:], ", ") != "Tue 03:30" {
			t.Errorf("tests at %q", tests[3:])
		}
	})
}

// TestScheduleAtStart: what holds when the daemon starts, holds at once; a reload takes
// another schedule.
func TestScheduleAtStart(t *testing.T) {
	c, err := config.Parse("F", []byte(oneWAN+"[[schedule]]\ndo = \"rates\"\nfrom = \"08:00\"\nto = \"17:00\"\nup = \"4 Mbit/s\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.Local)
	if w := c.WANs[0].During(entriesOf(c.WANs[0], c.Schedule, noon)); w.Up != 4*unit.MbitPerSecond || w.Down != 50*unit.MbitPerSecond {
		t.Errorf("%+v", w)
	}
	if w := c.WANs[0].During(entriesOf(c.WANs[0], c.Schedule, noon.Add(6*time.Hour))); w.Up != 10*unit.MbitPerSecond {
		t.Errorf("%+v", w)
	}
}
