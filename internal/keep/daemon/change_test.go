package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/keep/config"
	"unbloat/internal/keep/supervise"
	"unbloat/testkit/await"
	"unbloat/unit"
)

// startedTown starts a daemon that keeps a platform's stand-in.
func startedTown(t *testing.T, name, dir string) *town {
	t.Helper()
	x := newTown(t, name, dir, 1)
	text := fmt.Sprintf("# ours\n[[wan]]\ninterface = %q\ndown = \"50 Mbit/s\" # sold\nup = \"10 Mbit/s\"\n", x.wan)
	if err := os.WriteFile(x.file(), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	x.start()
	x.settled()
	return x
}

func (x *town) settled() {
	time.Sleep(2 * time.Second)
	synctest.Wait()
}

func (x *town) set() Settings {
	x.t.Helper()
	all, err := x.d.Page().Settings(x.t.Context(), Name{})
	if err != nil || len(all) != 1 {
		x.t.Fatalf("%v %v", all, err)
	}
	return all[0]
}

// shaped is how much the router itself lets through down.
func (x *town) shaped() unit.Rate {
	x.t.Helper()
	s, _ := x.only().snapshot()
	if s.State != supervise.InPlace {
		return 0
	}
	return s.Down
}

func (x *town) change(c ChangeParams) Change {
	x.t.Helper()
	out, err := x.d.Page().Change(x.t.Context(), Name{}, c)
	if err != nil {
		x.t.Fatal(err)
	}
	return out
}

func is[T any](v T) *T { return &v }

// changes are all kinds, and how one sees that they are in force.
func someChanges() map[string]struct {
	params ChangeParams
	kind   ChangeKind
	holds  func(x *town) bool
	file   string // a line of the configuration once it is confirmed
} {
	off := func(x *town) bool { return x.only().supervisor.State() == supervise.Suspended }
	return map[string]struct {
		params ChangeParams
		kind   ChangeKind
		holds  func(x *town) bool
		file   string
	}{
		"speeds": {ChangeParams{Down: is(30 * unit.MbitPerSecond)}, ChangeLine, func(x *town) bool {
			j := x.pendingPlan()
			return j != nil && j.DownBps < 30*unit.MbitPerSecond || x.shaped() > 0 && x.shaped() < 30*unit.MbitPerSecond
		}, `down = "30 Mbit/s" # sold`},
		"off": {ChangeParams{On: is(false)}, ChangeOff, off, ""},
		"first": {ChangeParams{Machine: "192.168.1.7", Action: ActionFirst}, ChangeRule, func(x *town) bool {
			return len(x.only().config.First) == 1 || x.pendingPlan() != nil && x.pendingPlan().Classes != nil && len(x.pendingPlan().Classes.Rules) == 1
		}, `first = ["192.168.1.7"]`},
		"rules": {ChangeParams{Rules: &[]string{"class=voice,home=192.168.1.7,protocol=udp,port=3478-3497"}}, ChangeRule, func(x *town) bool {
			return len(x.only().config.OwnRules) == 1 || x.pendingPlan() != nil && x.pendingPlan().Classes != nil && len(x.pendingPlan().Classes.Rules) == 1
		}, `rules = ["class=voice,home=192.168.1.7,protocol=udp,port=3478-3497"]`},
		"limits": {ChangeParams{Limits: &[]string{"192.168.1.7 5 Mbit/s"}}, ChangeRule, func(x *town) bool {
			return len(x.only().config.Limits) == 1 || x.pendingPlan() != nil && len(x.pendingPlan().Limits) == 1
		}, `limits = ["192.168.1.7 5 Mbit/s"]`},
	}
}

// pendingPlan is the plan that waits for its confirmation; nil: none.
func (x *town) pendingPlan() *plan.Plan {
	r, err := x.open(x.t.Context(), x.only().config)
	if err != nil {
		x.t.Fatal(err)
	}
	j, err := r.Engine.Pending(x.wan)
	if err != nil || j == nil {
		return nil
	}
	return &j.Plan
}

// An entry of the log is one line, and nothing in it is obeyed by a terminal.
func TestLogIsOneLine(t *testing.T) {
	var log strings.Builder
	d := &Daemon{o: Options{Log: &log}}
	d.log("%s: %v", "eth0", errors.Join(errors.New("tc: \x1b[2J"), errors.New("wan1: all is well")))
	if want := `eth0: tc: \u001b[2J; wan1: all is well` + "\n"; log.String() != want {
		t.Errorf("%q, want %q", log.String(), want)
	}
}

// What is asked of one WAN with the plan of another, or with a plan that names two, is
// refused, and what keeps the WAN goes on.
func TestPlanOfAnotherWAN(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		x := startedTown(t, "linux", dir)
		defer func() { x.stop() }()
		before := x.shaped()
		made := func(wan string) plan.Plan {
			rate := plan.RatePreference{Rate: 3 * unit.MbitPerSecond}
			p, err := plan.Make(plan.Line{}, assumed(x.driver, wan, ""), plan.Preferences{Down: rate, Up: rate})
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		two := made(x.wan)
		two.Up.Device = "wan9"
		for says, p := range map[string]plan.Plan{`the plan is for "wan9"`: made("wan9"), `up.device: is "wan9", but wan is`: two} {
			if _, err := x.d.Page().Apply(t.Context(), Name{WAN: x.wan}, ApplyParams{Plan: p, Yes: true}); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%v, want %q", err, says)
			}
		}
		x.settled()
		left, err := filepath.Glob(filepath.Join(dir, "*", "wan9*"))
		if is := x.shaped(); is != before || err != nil || len(left) > 0 {
			t.Errorf("%s, before %s; %v, %v", is, before, left, err)
		}
	})
}

// Rates that a person gives leave the machines that are to go first, and those that have a
// limit, where they are.
func TestMachinesStayFirst(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		x := startedTown(t, "linux", dir)
		defer func() { x.stop() }()
		x.change(ChangeParams{Machine: "192.168.1.7", Action: ActionFirst, Limits: &[]string{"192.168.1.8 2 Mbit/s"}})
		if _, err := x.d.Page().Confirm(t.Context(), Name{}, IDParams{}); err != nil {
			t.Fatal(err)
		}
		rate := plan.RatePreference{Rate: 3 * unit.MbitPerSecond}
		p, err := plan.Make(plan.Line{}, assumed(x.driver, x.wan, ""), plan.Preferences{Down: rate, Up: rate})
		if err != nil {
			t.Fatal(err)
		}
		out, err := x.d.Page().Apply(t.Context(), Name{WAN: x.wan}, ApplyParams{Plan: p, Yes: true})
		if err != nil {
			t.Fatal(err)
		}
		x.settled()
		first := func(p plan.Plan) bool {
			return p.Classes != nil && len(p.Classes.Rules) == 1 && slices.Contains(p.Classes.Rules[0].Home, "192.168.1.7") &&
				len(p.Limits) == 1 && p.Limits[0].Machine == "192.168.1.8"
		}
		if is := *x.only().plan; first(p) || !first(out.Plan) || !first(is) || is.DownBps != rate.Rate {
			t.Errorf("after an apply of 3 Mbit/s: %v, %+v", is.DownBps, is.Classes)
		}
	})
}

// A WAN that a reload takes away while a change of it waits lets go of its router after
// the change was undone.
func TestStopLetsGo(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		x := startedTown(t, "linux", dir)
		defer func() { x.stop() }()
		for _, c := range []ChangeParams{{Down: is(30 * unit.MbitPerSecond)}, {On: is(false)}} {
			x.change(c)
			opened, open := 0, x.open
			x.d.o.Open = func(ctx context.Context, w config.WAN) (*Router, error) {
				r, err := open(ctx, w)
				if err == nil && w.Interface == x.wan {
					opened++
					r.Close = func() { opened-- }
				}
				return r, err
			}
			text := x.text()
			if err := os.WriteFile(x.file(), []byte(strings.Replace(string(text), strconv.Quote(x.wan), `"eth9"`, 1)), 0o644); err != nil {
				t.Fatal(err)
			}
			x.d.reload(t.Context())
			x.settled()
			if opened != 0 {
				t.Errorf("%+v: %d ways to the router are left open", c, opened)
			}
			x.d.o.Open = x.open
			if err := os.WriteFile(x.file(), text, 0o644); err != nil {
				t.Fatal(err)
			}
			x.d.reload(t.Context())
			x.settled()
		}
	})
}

// A change is in force at once, and undone by itself unless it is confirmed; a
// daemon that is killed before that starts with what was.
func TestChanges(t *testing.T) {
	await.NotShort(t)
	for name, c := range someChanges() {
		for _, end := range []string{"nobody comes back", "confirmed", "taken back", "killed", "reloaded"} {
			t.Run(name+", "+end, func(t *testing.T) {
				dir := t.TempDir()
				synctest.Test(t, func(t *testing.T) {
					x := startedTown(t, "linux", dir)
					defer func() { x.stop() }()
					before, text := x.shaped(), string(x.text())
					if before == 0 {
						t.Fatal("it is not in place")
					}
					got := x.change(c.params)
					x.settled()
					if got.Kind != c.kind || got.ID == "" || got.By != byPage || got.Left <= 0 {
						t.Errorf("%+v", got)
					}
					if p := x.set().Change; p == nil || p.ID != got.ID || p.Left >= got.Left {
						t.Errorf("it waits as %+v", p)
					}
					if !c.holds(x) {
						t.Errorf("it is not in force")
					}
					if string(x.text()) != text {
						t.Errorf("it is kept before it is confirmed:\n%s", x.text())
					}
					var busy *Error
					if _, err := x.d.Page().Change(t.Context(), Name{}, ChangeParams{Up: is(3 * unit.MbitPerSecond)}); !errors.As(err, &busy) || busy.Code != CodeBusy {
						t.Errorf("a second change: %v", err)
					}
					undone := UndoneYes
					switch end {
					case "nobody comes back":
						time.Sleep(usualConfirm * time.Second)
					case "confirmed":
						if _, err := x.d.Page().Confirm(t.Context(), Name{}, IDParams{got.ID}); err != nil {
							t.Fatal(err)
						}
						undone = UndoneNo
					case "taken back":
						if _, err := x.d.Page().Revert(t.Context(), Name{}, IDParams{got.ID}); err != nil {
							t.Fatal(err)
						}
					case "killed":
						x.end()
						x.d.loops.Wait()
						if p := x.pendingPlan(); p != nil { // as its watchdog would
							r, _ := x.open(t.Context(), x.only().config)
							if _, _, err := r.Engine.Revert(t.Context(), apply.Journal{WAN: x.wan, Plan: *p}); err != nil {
								t.Fatal(err)
							}
						}
						x.start()
					case "reloaded":
						x.d.reload(t.Context())
					}
					time.Sleep(3 * time.Minute) // longer than any deadline
					x.settled()
					if x.set().Change != nil || x.pendingPlan() != nil {
						t.Errorf("it still waits")
					}
					if end == "confirmed" {
						if !c.holds(x) || !strings.Contains(string(x.text()), c.file) || !strings.HasPrefix(string(x.text()), "# ours\n") {
							t.Errorf("it is not kept:\n%s", x.text())
						}
						if x.d.memory.isOff(x.wan) != (name == "off") {
							t.Error("off is not remembered, or on is")
						}
					} else {
						if got := x.shaped(); got != before || string(x.text()) != text || x.d.memory.isOff(x.wan) {
							t.Errorf("%v, want %v\n%s", got, before, x.text())
						}
						if c.holds(x) {
							t.Error("it is in force still")
						}
					}
					if differences, err := x.differs(); name != "off" && (err != nil || len(differences) > 0) {
						t.Errorf("the router differs: %v %q", err, differences)
					}
					if end != "killed" {
						all, err := x.d.Page().Events(t.Context(), Name{})
						if err != nil {
							t.Fatal(err)
						}
						i := slices.IndexFunc(all, func(h Happening) bool { return h.Change == got.ID })
						if i < 0 || all[i].Kind != EventApplied || all[i].Undone != undone || all[i].By != byPage {
							t.Errorf("the events are %+v", all)
						}
					}
					var gone *Error
					if _, err := x.d.Page().Confirm(t.Context(), Name{}, IDParams{got.ID}); !errors.As(err, &gone) || gone.Code != CodeNoChange {
						t.Errorf("a late confirmation: %v", err)
					}
				})
			})
		}
	}
}

// What is off is turned on with the same safety, and a mistake changes nothing.
func TestChangesOfWhatIsOff(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		x := startedTown(t, "linux", dir)
		defer func() { x.stop() }()
		if _, err := x.d.Page().Revert(t.Context(), Name{}, IDParams{}); err != nil {
			t.Fatal(err)
		}
		x.settled()
		got := x.change(ChangeParams{On: is(true), Confirm: 10})
		if got.Kind != ChangeOn || x.shaped() == 0 || !x.d.memory.isOff(x.wan) {
			t.Errorf("%+v %v", got, x.shaped())
		}
		time.Sleep(11 * time.Second)
		x.settled()
		if x.set().On || x.shaped() != 0 {
			t.Error("nobody confirmed it, and it is on")
		}
		got = x.change(ChangeParams{On: is(true), Confirm: 10})
		if _, err := x.d.Page().Confirm(t.Context(), Name{}, IDParams{got.ID}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if !x.set().On || x.shaped() == 0 || x.d.memory.isOff(x.wan) {
			t.Error("it was confirmed, and it is not on")
		}
		text := string(x.text())
		for _, c := range []struct {
			params ChangeParams
			code   Code
		}{
			{ChangeParams{On: is(true)}, CodeSame},
			{ChangeParams{}, CodeSame},
			{ChangeParams{Down: is(50 * unit.MbitPerSecond)}, CodeSame},
			{ChangeParams{Down: is(unit.Rate(-1))}, CodeUsage},
			{ChangeParams{Down: is(unit.Rate(1 << 60))}, CodeUsage},
			{ChangeParams{On: is(false), Confirm: 1}, CodeUsage},
			{ChangeParams{On: is(false), Confirm: 1e300}, CodeUsage},
			{ChangeParams{Machine: "laptop", Action: ActionFirst}, CodeUsage},
			{ChangeParams{Machine: "192.168.1.7\"]\non_stop = \"revert\"", Action: ActionFirst}, CodeUsage},
			{ChangeParams{Machine: "192.168.1.7", Action: "best"}, CodeUsage},
			{ChangeParams{Machine: "192.168.1.7", Action: ActionNone}, CodeSame},
		} {
			var e *Error
			if _, err := x.d.Page().Change(t.Context(), Name{}, c.params); !errors.As(err, &e) || e.Code != c.code {
				t.Errorf("%+v: %v, want %s", c.params, err, c.code)
			}
		}
		if x.set().Change != nil || string(x.text()) != text || x.shaped() == 0 {
			t.Errorf("a mistake changed something:\n%s", x.text())
		}
		if err := os.Remove(filepath.Join(dir, "unbloat.toml")); err != nil {
			t.Fatal(err)
		}
		if _, err := x.d.Page().Change(t.Context(), Name{}, ChangeParams{Down: is(20 * unit.MbitPerSecond)}); err == nil {
			t.Error("a change without a configuration")
		}
	})
}

// TestChangeWaits: a change waits until it is over, or for its time. What is refused meanwhile
// says so, and a change that no longer waits is no other's.
func TestChangeWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c changes
		none := c.pending
		if none.busy() != nil || none.change() != nil || none.waiting("wan0", "") != nil {
			t.Error("a change waits before there is one")
		}
		begun, expired := time.Now(), make(chan time.Duration, 1)
		await := func(id string) *pending {
			p := &pending{id: id, kind: ChangeLine, by: byPage, seconds: 60, was: config.WAN{Interface: "wan0"}, settings: []config.Setting{{Key: "down", Value: "1 Mbit/s"}, {Key: "first", List: []string{"a", "b"}}, {Key: "most_down"}}}
			c.await(p, func() { expired <- time.Since(begun) })
			return p
		}
		p := await("a")
		time.Sleep(20 * time.Second)
		if is := c.pending.change(); is.ID != "a" || is.Left != 40 || is.Seconds != 60 || is.Deadline != begun.Add(time.Minute).UTC().Format(time.RFC3339) {
			t.Errorf("%+v", is)
		}
		if says := p.says(); !slices.Equal(says, []string{"down = 1 Mbit/s", "first = a, b", "most_down = -"}) {
			t.Errorf("it says %q", says)
		}
		var busy *apply.BusyError
		if err := c.pending.busy(); !errors.As(err, &busy) || busy.WAN != "wan0" || busy.Left != 40*time.Second {
			t.Errorf("%v", err)
		}
		for id, waits := range map[string]bool{"": true, "a": true, "b": false} {
			var gone *Error
			if err := c.pending.waiting("wan0", id); (err == nil) != waits || !waits && (!errors.As(err, &gone) || gone.Code != CodeNoChange) {
				t.Errorf("%q: %v", id, err)
			}
		}
		c.over()
		if c.pending != nil || c.pending.waiting("wan0", "a") == nil {
			t.Error("it still waits")
		}
		time.Sleep(time.Hour)
		if len(expired) != 0 {
			t.Error("it has expired, and was over")
		}
		begun = time.Now()
		if await("b"); <-expired != time.Minute {
			t.Error("the next one did not expire after its time")
		}
	})
}

// TestChangeRecord: what somebody has kept is adopted once; what the daemon has kept itself
// is not, and what was taken back is new if it is there again.
func TestChangeRecord(t *testing.T) {
	e := &apply.Engine{Dir: t.TempDir()}
	keep := func(id string) {
		t.Helper()
		b, err := json.Marshal(apply.Record{ID: id, WAN: "wan0", Plan: plan.Plan{WAN: "wan0", DownBps: mbit}})
		if err == nil {
			err = os.WriteFile(filepath.Join(e.Dir, "wan0.committed.json"), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var c changes
	for i, x := range []struct {
		before func()
		adopts string
	}{
		{func() {}, ""},
		{func() { keep("a") }, "a"},
		{func() {}, ""},
		{func() { keep("b"); c.learn("b") }, ""},
		{func() { c.learn("") }, ""},
		{func() { keep("c") }, "c"},
		{func() { c.forget() }, "c"},
		{func() { keep("") }, ""},
	} {
		x.before()
		id := ""
		if r := c.adopt(e, "wan0"); r != nil {
			id = r.ID
			if r.Plan.DownBps != mbit {
				t.Errorf("%d: %+v", i, r.Plan)
			}
		}
		if id != x.adopts || c.adopt(e, "wan0") != nil {
			t.Errorf("%d: %q is adopted, not %q", i, id, x.adopts)
		}
	}
}
