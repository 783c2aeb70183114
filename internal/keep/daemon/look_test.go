package daemon

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux"
	"unbloat/internal/keep/config"
	"unbloat/internal/keep/steer"
	"unbloat/internal/keep/supervise"
	"unbloat/testkit/await"
	"unbloat/testkit/fake"
	"unbloat/unit"
)

// TestLook: a daemon that is told to look does so at once, and only then; told that
// its interface came again, it makes the plan anew.
func TestLook(t *testing.T) {
	dir := inMemory(t)
	synctest.Test(t, func(t *testing.T) {
		x := newTown(t, "freebsd", dir, 1)
		x.start()
		defer x.stop()
		time.Sleep(5 * time.Second)
		looks := func() int { s, _ := x.only().snapshot(); return s.Looks }
		before := looks()
		time.Sleep(30 * time.Second)
		if n := looks(); n != before {
			t.Fatalf("nothing happened, and it looked %d times", n-before)
		}
		c := &Caller{d: x.d}
		for i, wan := range []string{"", x.wan, "igb1"} {
			made := x.only().plan
			if _, err := c.do(t.Context(), Request{Method: MethodLook, Name: Name{WAN: wan}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if n := looks(); n != before+i+1 {
				t.Errorf("told of %q it looked %d times", wan, n-before-i)
			}
			if again := x.only().plan != made; again != (wan == x.wan) {
				t.Errorf("told of %q: the plan is made again: %t", wan, again)
			}
		}
	})
}

// TestMarksOfOthersCome: where rules of others that take the bits of marks come while the daemon
// keeps a plan whose rules set marks, it goes on without them, and tells of the rule.
func TestMarksOfOthersCome(t *testing.T) {
	dir := inMemory(t)
	synctest.Test(t, func(t *testing.T) {
		x := newTown(t, "linux", dir, 1)
		var told strings.Builder
		x.log, x.noBPF = &told, "no cls_bpf"
		x.write("first = [\"192.168.1.7\"]\n")
		x.start()
		defer func() { x.stop() }()
		time.Sleep(5 * time.Second)
		if w := x.only(); !w.plan.SetsMarks() {
			t.Fatalf("there are no classes:\n%s", w.plan.Explain())
		}
		const rule = "from all fwmark 0x1 lookup 1"
		x.router.mu.Lock()
		x.router.at.(*fake.Linux).Kernel.Policies = "32765:\t" + rule + "\n"
		x.router.mu.Unlock()
		_, _ = x.only().call(t.Context(), func(context.Context) (any, error) {
			x.only().router.Plan = func(ctx context.Context, w config.WAN) (plan.Plan, error) {
				facts, err := x.driver.Detect(ctx, x.router, w.Interface, w.LAN)
				if err != nil {
					return plan.Plan{}, err
				}
				facts.NoBPF = x.noBPF
				return plan.Make(w.PlanLine(), facts, w.Preferences())
			}
			return nil, nil
		})
		x.d.event(Event{})
		time.Sleep(5 * time.Second)
		s, _ := x.only().snapshot()
		if p := x.only().plan; s.State != supervise.InPlace || p == nil || p.SetsMarks() || p.Down == nil {
			t.Errorf("%s: %s, by the plan\n%+v", s.State, s.Why, p)
		}
		if d, err := x.differs(); err != nil || len(d) > 0 || !strings.Contains(told.String(), "classes are left out") || !strings.Contains(told.String(), rule) {
			t.Errorf("%v %q; it told\n%s", err, d, told.String())
		}
	})
}

// A cutOff router's connections move until it is changed.
type cutOff struct {
	*linux.Backend
	changed func() bool
	moved   int64
}

func (c *cutOff) Flows(context.Context) ([]platform.Flow, error) {
	if !c.changed() {
		c.moved = time.Now().UnixMilli()
	}
	var all []platform.Flow
	for n := range byte(2) {
		all = append(all, platform.Flow{Interface: "wg0", Key: string('a' + n), Far: netip.AddrFrom4([4]byte{192, 0, 2, n}), Out: c.moved, In: c.moved})
	}
	return all, nil
}

func (c *cutOff) Answers(_ context.Context, _ string, all []netip.Addr) []netip.Addr {
	if c.changed() {
		return nil
	}
	return all
}

// TestStoppedIsLeftOff: what had to be undone because it stopped connections is not tried again,
// until somebody turns the line on; the daemon says why.
func TestStoppedIsLeftOff(t *testing.T) {
	dir := inMemory(t)
	synctest.Test(t, func(t *testing.T) {
		x := newTown(t, "linux", dir, 1)
		x.start()
		defer func() { x.stop() }()
		time.Sleep(5 * time.Second)
		k := x.router.at.(*fake.Linux)
		text := func() string {
			x.router.mu.Lock()
			defer x.router.mu.Unlock()
			return k.Text()
		}
		before := text()
		_, _ = x.only().call(t.Context(), func(context.Context) (any, error) { // other rates are wanted
			w := x.only()
			e, made := w.router.Engine, w.router.Plan
			e.Backend = &cutOff{Backend: e.Backend.(*linux.Backend), changed: func() bool { return text() != before }}
			w.plan, w.router.Plan = nil, func(ctx context.Context, c config.WAN) (plan.Plan, error) {
				p, err := made(ctx, c)
				return p.WithRates(p.DownBps/2, p.UpBps/2), err
			}
			return nil, nil
		})
		x.d.event(Event{})
		time.Sleep(time.Minute)
		s, _ := x.only().snapshot()
		if s.State != supervise.Suspended || !strings.Contains(s.Why, "wg0") || text() != before {
			t.Errorf("%s: %s; it is\n%s", s.State, s.Why, text())
		}
		x.d.event(Event{})
		time.Sleep(time.Hour)
		if now, _ := x.only().snapshot(); now.Looks != s.Looks {
			t.Errorf("it looked %d times more", now.Looks-s.Looks)
		}
	})
}

// TestStateDirectoryIsLost: where the journal can't be kept, on a disk that is read-only
// now, the shaping stays as it is, and the daemon says why it can't do more. It goes
// on when the directory can be written again.
func TestStateDirectoryIsLost(t *testing.T) {
	dir := inMemory(t)
	synctest.Test(t, func(t *testing.T) {
		x := newTown(t, "freebsd", dir, 1)
		text := func() string { return x.router.at.(interface{ Text() string }).Text() }
		x.start()
		defer func() { x.stop() }()
		time.Sleep(5 * time.Second)
		kept := text()
		x.journal = "/proc/unbloat" // where nobody can write, root neither
		x.only().news.tell(change{replaced: true})
		_, _ = x.only().call(t.Context(), func(context.Context) (any, error) { x.only().close(); return nil, nil })
		time.Sleep(3 * time.Minute)
		if s, _ := x.only().snapshot(); s.State != supervise.Waiting || !strings.Contains(s.Why, "/proc/unbloat") {
			t.Errorf("%+v", s)
		}
		if now := text(); now != kept {
			t.Errorf("it is\n%s\nit was\n%s", now, kept)
		}
		x.journal = dir
		_, _ = x.only().call(t.Context(), func(context.Context) (any, error) { x.only().close(); return nil, nil })
		time.Sleep(3 * time.Minute)
		if s, _ := x.only().snapshot(); s.State != supervise.InPlace {
			t.Errorf("%+v", s)
		}
		x.damage()
		time.Sleep(2 * pollHearing)
		if d, err := x.differs(); err != nil || len(d) > 0 {
			t.Errorf("%v %q", err, d)
		}
	})
}

// TestFollowedAnew: a follower that was made for other addresses than the WAN has now is
// replaced once, and nothing is changed on the router.
func TestFollowedAnew(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		x := newTown(t, "freebsd", dir, 1)
		var made []steer.Config
		x.follow = func(c steer.Config) (Follower, error) {
			made = append(made, c)
			return newPuppet(c)
		}
		x.start()
		defer func() { x.stop() }()
		time.Sleep(5 * time.Second)
		before, _ := x.only().snapshot()
		if len(made) != 1 || before.Line == nil {
			t.Fatalf("%d followers: %+v", len(made), before)
		}
		first := x.only().following.line()
		made[0].Again()
		made[0].Again()
		time.Sleep(5 * time.Second)
		if now, _ := x.only().snapshot(); len(made) != 2 || now.Line == nil || now.Mends != before.Mends || x.only().following.line() == first {
			t.Errorf("%d followers: %+v, then %+v", len(made), before, now)
		}
		select {
		case <-first.done:
		default:
			t.Error("the first follower still runs")
		}
		time.Sleep(10 * time.Minute)
		if len(made) != 2 {
			t.Errorf("%d followers in the end", len(made))
		}
	})
}

// TestQuietDayWritesNothing: while nobody changes anything, the daemon writes no file,
// whether it holds a line's rates or follows them: a router's flash wears out. It is an
// hour unless UNBLOAT_LONG=1.
func TestQuietDayWritesNothing(t *testing.T) {
	await.NotShort(t)
	hours := 1
	if os.Getenv("UNBLOAT_LONG") != "" {
		hours = 24
	}
	for _, name := range []string{"linux", "freebsd"} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			x := newTown(t, name, dir, 1)
			x.start()
			defer func() { x.stop() }()
			x.d.loops.Go(func() { x.d.watchHeld(x.d.running) })
			x.d.loops.Go(func() { x.d.keepHistory(x.d.running) })
			time.Sleep(5 * time.Minute)
			files := func() (out []string) {
				t.Helper()
				all, err := os.ReadDir(dir)
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range all {
					info, err := f.Info()
					if err != nil {
						t.Fatal(err)
					}
					out = append(out, fmt.Sprint(f.Name(), info.Size(), info.ModTime().UnixNano()))
				}
				return out
			}
			before, looks := files(), x.only().board.status.Looks
			for hour := range hours {
				if l := x.only().following.line(); l != nil {
					if err := l.Follower.(*puppet).set(t.Context(), [2]unit.Rate{unit.Rate(20+hour) * mbit, 5 * mbit}); err != nil {
						t.Fatal(err)
					}
				} else if name == "freebsd" {
					t.Fatal("the line is not followed")
				}
				time.Sleep(time.Hour)
			}
			if after := files(); len(before) < 2 || !slices.Equal(after, before) {
				t.Errorf("%s: the files are\n%q, and were\n%q", name, after, before)
			}
			if n := x.only().board.status.Looks - looks; n < 30*hours {
				t.Errorf("%s: it looked %d times in %d hours", name, n, hours)
			}
		})
	}
}
