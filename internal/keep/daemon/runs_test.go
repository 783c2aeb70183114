package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/all"
	"unbloat/internal/cure/tune"
	"unbloat/internal/keep/config"
	"unbloat/internal/keep/supervise"
	"unbloat/internal/measure/phases"
	"unbloat/reason"
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
func ask[T any](t *testing.T, c *Caller, method string, params any) (out T, err error) {
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

// says prints a RunEvent or a RunEnd as a command does.
func says(out io.Writer, line any) { _ = json.NewEncoder(out).Encode(line) }

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
			o.Work = func(ctx context.Context, args, _ []string, out io.Writer) (int, error) {
				if args[0] != MethodTune || !slices.Contains(args, "--goal=7ms") || !slices.Contains(args, "--wan=wan") {
					return 2, fmt.Errorf("the arguments are %q", args)
				}
				for i := range 300 {
					says(out, RunEvent{Phase: &phases.Event{Phase: "idle", Elapsed: unit.Seconds(time.Duration(i) * 200 * time.Millisecond)}})
					time.Sleep(200 * time.Millisecond)
				}
				p, err := plan.Make(plan.Line{Down: 40 * unit.MbitPerSecond, Up: 8 * unit.MbitPerSecond}, assumed(x.driver, "wan", ""), plan.Preferences{})
				if err != nil {
					return 1, err
				}
				tr, err := x.engine(x.backend).Begin(ctx, p, apply.Options{Confirm: time.Minute, Hold: true})
				if err != nil {
					return 1, err
				}
				defer tr.Close()
				says(out, RunEnd{Result: json.RawMessage(`{"kept":true,"schema":"unbloat.tune/1"}`)})
				return 0, tr.Commit()
			}
		})
		defer func() { x.stop() }()
		page := &Caller{d: x.d}
		started, err := ask[Started](t, page, MethodTune, TuneParams{Goal: unit.Milliseconds(7 * time.Millisecond), Unattended: true})
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
			is, err = ask[RunStatus](t, &Caller{d: x.d}, MethodRun, RunParams{After: 250})
		}
		if err != nil || is.State != RunDone || string(is.Result) != `{"kept":true,"schema":"unbloat.tune/1"}` || is.Error != nil || is.Seconds < 59 || is.Seconds > 62 || len(is.Events) != 50 || is.Last != 300 {
			t.Errorf("%+v, %v", is, err)
		}
		if text := string(x.text()); !strings.Contains(text, `down = "40 Mbit/s"`) || !strings.Contains(text, `up = "8 Mbit/s"`) {
			t.Errorf("the configuration is\n%s", text)
		}
		time.Sleep(time.Second)
		if s := x.only().board.status; s.State != supervise.InPlace || x.only().plan.Basis.Line.Down != 40*unit.MbitPerSecond {
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
			o.Work = func(ctx context.Context, _, _ []string, out io.Writer) (int, error) {
				<-ctx.Done()
				time.Sleep(3 * time.Second) // it undoes what it has changed
				undone++
				says(out, RunEnd{Error: &Error{CodeFailed, "interrupted"}})
				return 1, errors.New("exit status 1")
			}
		})
		_, err := ask[RunStatus](t, &Caller{d: x.d}, MethodRun, nil)
		refused(t, err, CodePrecondition)
		for i, end := range []func(*Caller){
			func(c *Caller) {
				if _, err := ask[RunStatus](t, c, MethodRun, RunParams{Stop: true}); err != nil {
					t.Error(err)
				}
			},
			func(c *Caller) { c.goes() },
			func(*Caller) { time.Sleep(runUnasked) },
		} {
			c := &Caller{d: x.d}
			if _, err := ask[Started](t, c, MethodTest, TestParams{Unattended: i == 2}); err != nil {
				t.Fatalf("%d: %v", i, err)
			}
			time.Sleep(20 * time.Second)
			if is, _ := ask[RunStatus](t, &Caller{d: x.d}, MethodStatus, nil); undone != i {
				t.Errorf("%d: it has ended already: %+v", i, is)
			}
			end(c)
			time.Sleep(runUnasked + 4*time.Second)
			is, err := ask[RunStatus](t, &Caller{d: x.d}, MethodRun, nil)
			if err != nil || is.State != RunEnded || is.ExitCode != 1 || is.Error == nil || undone != i+1 {
				t.Errorf("%d: %+v, %v; %d undone", i, is, err, undone)
			}
		}
		if _, err := ask[Started](t, &Caller{d: x.d}, MethodTest, TestParams{Unattended: true}); err != nil {
			t.Fatal(err)
		}
		x.stop()
		x.d.runs.close()
		if undone != 4 {
			t.Errorf("the daemon has ended before its run: %d", undone)
		}
		_, err = ask[Started](t, &Caller{d: x.d}, MethodTest, nil)
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
			o.Work = func(_ context.Context, _, _ []string, out io.Writer) (int, error) {
				worked++
				says(out, RunEnd{Result: json.RawMessage("{}")})
				return 0, nil
			}
		})
		defer func() { x.stop() }()
		go func() { // something takes the WAN's loop a while
			_, _ = x.only().call(t.Context(), func(context.Context) (any, error) { time.Sleep(20 * time.Second); return nil, nil })
		}()
		synctest.Wait()
		for _, unattended := range []bool{false, true} {
			ended := make(chan error)
			go func() {
				_, err := ask[Started](t, &Caller{d: x.d}, MethodTest, TestParams{Unattended: unattended})
				ended <- err
			}()
			synctest.Wait()
			begin := time.Now()
			is, err := ask[RunStatus](t, &Caller{d: x.d}, MethodRun, RunParams{Stop: true, Wait: 5})
			if err != nil || is.State != RunEnded || time.Since(begin) > time.Second {
				t.Errorf("after %v: %+v, %v", time.Since(begin), is, err)
			}
			refused(t, <-ended, CodeFailed)
		}
		if _, err := ask[Started](t, &Caller{d: x.d}, MethodTest, TestParams{Unattended: true}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if worked != 1 {
			t.Errorf("%d have worked", worked)
		}
	})
}

// TestRunSaysWhatWasDone: a command whose lines can't be read, that ends without a result,
// or that crashes, is an error that names what was being done, and it is interrupted; one
// that says itself what went wrong is believed, and its exit code is the run's.
func TestRunSaysWhatWasDone(t *testing.T) {
	dir := t.TempDir()
	for _, x := range []struct {
		print  string
		code   int
		err    error
		want   Error
		exit   int
		result string
	}{
		{`{"n":1,"say":"a"}` + "\n" + `{"n":2,"result":{"a":1},"error":{"code":"failed","text":"no better"}}` + "\n", 3, errors.New("exit status 3"), Error{CodeFailed, "no better"}, 3, `{"a":1}`},
		{`{"n":1,"error":{"code":"precondition","text":"no server"}}` + "\n", 5, errors.New("exit status 5"), Error{CodePrecondition, "no server"}, 5, ""},
		{"{\n", 0, nil, Error{CodeInternal, "test on wan, by `unbloat test`: line 1 of what it prints is no event (unexpected end of JSON input): \"{\"; what it changed is undone"}, 1, ""},
		{strings.Repeat("a", MostLine+1), 0, nil, Error{CodeInternal, "line 1 of what it prints is no event"}, 1, ""},
		{"", 0, nil, Error{CodeInternal, "it ended without a result"}, 1, ""},
		{`{"n":1,"say":"a"}` + "\n", 2, errors.New("it ended with exit status 2"), Error{CodeInternal, "it ended with exit status 2; what"}, 1, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			town := linuxTown(t, dir, oneWAN, func(o *Options) {
				o.Work = func(ctx context.Context, _, _ []string, out io.Writer) (int, error) {
					_, _ = io.WriteString(out, x.print)
					if strings.Contains(x.want.Text, "is no event") {
						<-ctx.Done()
					}
					return x.code, x.err
				}
			})
			defer func() { town.stop() }()
			if _, err := ask[Started](t, &Caller{d: town.d}, MethodTest, TestParams{Unattended: true}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			is, err := ask[RunStatus](t, &Caller{d: town.d}, MethodRun, nil)
			if err != nil || is.Error == nil || is.Error.Code != x.want.Code || !strings.Contains(is.Error.Text, x.want.Text) || is.ExitCode != x.exit || string(is.Result) != x.result {
				t.Errorf("%.100q: %+v, %v, %v", x.print, is, is.Error, err)
			}
		})
	}
}

// TestRunEventJSON: events have the names and units that programs know, and are the same
// when they are read again.
func TestRunEventJSON(t *testing.T) {
	for _, x := range []struct {
		e    RunEvent
		want string
	}{
		{RunEvent{N: 1, Phase: &phases.Event{Phase: "both", Elapsed: unit.Seconds(1200 * time.Millisecond), Duration: unit.Seconds(10 * time.Second), Head: unit.Seconds(2500 * time.Millisecond), RTT: unit.Milliseconds(20_000_001), Answers: []phases.Answer{{Sent: unit.Seconds(time.Millisecond), RTT: unit.Milliseconds(21 * time.Millisecond)}}, FlowsDown: 4, FlowsUp: 2, Down: 30, Up: 5, Draining: true}},
			`{"n":1,"phase":{"phase":"both","elapsed_seconds":1.2,"duration_seconds":10,"head_seconds":2.5,"rtt_ms":20.000001,"answers":[{"sent_seconds":0.001,"rtt_ms":21}],"flows_down":4,"flows_up":2,"down_bps":30,"up_bps":5,"draining":true}}`},
		{RunEvent{N: 2, Stage: &tune.Stage{Doing: tune.Checking, Rates: tune.Rates{Down: 1, Up: 2}, Goal: unit.Milliseconds(5 * time.Millisecond), AsFound: 958.5, LineDown: 3, LineUp: 4, Trials: []tune.Trial{{Rates: tune.Rates{Down: 5, Up: 6}, IncreaseMs: 7, DownMs: 8, UpMs: 9, Held: true, Unproven: "why"}}, DownFrom: 10, DownTo: 11, UpFrom: 12, UpTo: 13}},
			`{"n":2,"stage":{"doing":"checking","down_bps":1,"up_bps":2,"goal_ms":5,"as_found_ms":958.5,"line_down_bps":3,"line_up_bps":4,"trials":[{"down_bps":5,"up_bps":6,"increase_ms":7,"down_ms":8,"up_ms":9,"held":true,"unproven":"why"}],"down_from_bps":10,"down_to_bps":11,"up_from_bps":12,"up_to_bps":13}}`},
		{RunEvent{N: 3, Stage: &tune.Stage{Doing: tune.AsItIs, Trials: []tune.Trial{}}},
			`{"n":3,"stage":{"doing":"as_it_is","down_bps":0,"up_bps":0,"goal_ms":0,"as_found_ms":0,"line_down_bps":0,"line_up_bps":0,"trials":[],"down_from_bps":0,"down_to_bps":0,"up_from_bps":0,"up_to_bps":0}}`},
		{RunEvent{N: 4, Say: "a line"}, `{"n":4,"say":"a line"}`},
	} {
		b, err := json.Marshal(x.e)
		var back RunEvent
		if err != nil || string(b) != x.want || json.Unmarshal(b, &back) != nil || !reflect.DeepEqual(back, x.e) {
			t.Errorf("%s, %v\nwant %s\nread again %+v", b, err, x.want, back)
		}
	}
}

// TestCommandFor: a run's command has what was asked for, and else what the configuration
// says; its key is no argument, which everybody may see.
func TestCommandFor(t *testing.T) {
	w := config.WAN{Interface: "eth0", LAN: "lan", Router: "ssh://r", Platform: "linux", Goal: 5 * time.Millisecond, AQM: "cake", Overhead: 18}
	args, env := commandFor(w, TuneParams{Key: "secret", AQM: "fq_codel", Rules: []string{"a", "b"}, Replace: true, Unattended: true}, "the.server", "/results.db")
	want := "tune --own-tc --wan=eth0 --server=the.server --goal=5ms --aqm=fq_codel --lan=lan --overhead=18 --rule=a --rule=b --replace=true --router=ssh://r --for=linux --store=/results.db --json --events --turn-is-held=eth0"
	if got := strings.Join(args, " "); got != want || !slices.Contains(env, "UNBLOAT_KEY=secret") {
		t.Errorf("%s, %q\nwant %s", got, env, want)
	}
	args, _ = commandFor(w, TestParams{Server: "other", Seconds: unit.Seconds(2500 * time.Millisecond), Interval: unit.Milliseconds(25 * time.Millisecond)}, "the.server", "")
	want = "test --server=other --seconds=2.5s --interval=25ms --no-store --json --events --turn-is-held=eth0"
	if got := strings.Join(args, " "); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
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
			o.Work = func(_ context.Context, args, _ []string, out io.Writer) (int, error) {
				tests = append(tests, now().Format("Mon 15:04"))
				time.Sleep(time.Minute)
				says(out, RunEnd{Result: json.RawMessage("{}")})
				return 0, nil
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
			if w.plan == nil || w.plan.Basis.Line.Down != down || n != rules || w.supervisor.State() != supervise.InPlace {
				t.Errorf("%s: %s, %+v, %d rules", now().Format("Mon 15:04"), w.supervisor.State(), w.plan, n)
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

// TestScheduleGoesOn: what the schedule says of a WAN holds in time, while the router of
// another one does not answer, of which the schedule says something too.
func TestScheduleGoesOn(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		x := newTown(t, "linux", dir, 1)
		at := time.Now()
		text := fmt.Sprintf("[[wan]]\ninterface = \"eth0\"\nrouter = \"ssh://192.0.2.1\"\ndown = \"50 Mbit/s\"\nup = \"10 Mbit/s\"\n%s"+
			"[[schedule]]\ndo = \"test\"\nwan = \"eth0\"\nrouter = \"ssh://192.0.2.1\"\nat = %q\n[[schedule]]\ndo = \"rates\"\nwan = %q\nfrom = %q\nto = %q\ndown = \"30 Mbit/s\"\n",
			oneWAN, at.Add(time.Minute).Format("15:04"), x.wan, at.Add(time.Minute).Format("15:04"), at.Add(time.Hour).Format("15:04"))
		if err := os.WriteFile(x.file(), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		x.silent = true
		x.start()
		defer func() { x.stop() }()
		x.d.o.Work = func(context.Context, []string, []string, io.Writer) (int, error) { return 0, nil }
		x.d.loops.Go(func() { x.d.keepSchedule(x.d.running) })
		time.Sleep(time.Minute + scheduleEvery + time.Second)
		synctest.Wait()
		if w := x.d.all()[1]; w.plan == nil || w.plan.Basis.Line.Down != 30*unit.MbitPerSecond {
			t.Errorf("at %s %+v hold", time.Now().Format("15:04:05"), w.schedule.holds)
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
