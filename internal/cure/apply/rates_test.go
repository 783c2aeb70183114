package apply_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/all"
	"unbloat/testkit/await"
	"unbloat/testkit/conform"
	"unbloat/testkit/fake"
	"unbloat/testkit/opnsensefake"
	"unbloat/testkit/pfctl"
	"unbloat/testkit/pfsensefake"
	"unbloat/unit"
)

// A followed router is one whose line is followed, with what its shapers should have.
type followed struct {
	*rapid.T
	driver           *platform.Driver
	router           conform.Router
	wan, start       string
	engine           *apply.Engine
	settled, running *plan.Plan // nil: nothing of ours
	whole            bool       // settled and running rates can't be kept apart
}

func (f *followed) must(what string, err error) {
	f.Helper()
	if err != nil {
		f.Fatalf("%s: %v", what, err)
	}
}

// process is another process's engine on the router.
func (f *followed) process() *apply.Engine {
	e := *f.engine
	e.Rates = new(apply.Rates)
	return &e
}

func (f *followed) rate(name string) unit.Rate {
	return unit.Rate(rapid.Int64Range(1, 900).Draw(f.T, name)) * 100 * unit.KbitPerSecond
}

func (f *followed) plan() *plan.Plan {
	by := func(name string) plan.RatePreference { return plan.RatePreference{Rate: f.rate(name)} }
	p, err := plan.Make(plan.Line{}, f.driver.Language.Assume(f.wan, ""), plan.Preferences{Down: by("down"), Up: by("up"), Classes: plan.ClassPreferences{Use: plan.ClassesOff}})
	f.must("plan", err)
	return &p
}

// set is what netlink does: it gives one shaper another rate.
func (f *followed) set(device string, rate unit.Rate) error {
	_, said, err := f.router.Run(f.Context(), strings.Fields(fmt.Sprintf("tc qdisc change dev %s root handle %s cake bandwidth %dbit", device, tc.OurRoot, int64(rate))), nil)
	if err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	return nil
}

func (f *followed) begin(e *apply.Engine, p *plan.Plan) *apply.Transaction {
	t, err := e.Begin(f.Context(), *p, apply.Options{Confirm: time.Minute})
	f.must("apply", err)
	return t
}

// Retune gives the shapers other rates.
func (f *followed) retune() {
	rates := f.driver.Retune.Round([2]unit.Rate{f.rate("followed down") + 1, f.rate("followed up")})
	set := f.set
	if !f.driver.Retune.Netlink || rapid.Bool().Draw(f.T, "by commands") {
		set = nil
	}
	err := f.engine.Retune(f.Context(), rates, set)
	if f.settled == nil {
		if err == nil {
			f.Fatalf("nothing is in place, and has other rates now")
		}
		return
	}
	f.must("retune", err)
	p, down, up := *f.settled, *f.settled.Down, *f.settled.Up
	down.Rate, up.Rate = rates[0], rates[1]
	p.DownBps, p.UpBps, p.Down, p.Up = rates[0], rates[1], &down, &up
	f.running = &p
}

// damage has somebody set other rates, or take all away, and stop anywhere.
func (f *followed) damage() {
	if f.settled == nil {
		return
	}
	b := f.engine.Backend
	now, err := b.Observe(f.Context(), *f.settled, nil)
	f.must("read", err)
	rec, err := f.engine.Record(f.wan)
	f.must("record", err)
	to, err := b.Baseline(f.Context(), now, rec.Origin)
	if rapid.Bool().Draw(f.T, "other rates") {
		to, err = b.Desire(f.Context(), *f.plan(), now, rec.Origin)
	}
	f.must("damage", err)
	steps, _, err := b.Compare(now, to)
	f.must("damage", err)
	for _, s := range steps[:rapid.IntRange(0, len(steps)).Draw(f.T, "commands")] {
		_, _, _ = f.router.Run(f.Context(), s.Argv, []byte(s.Stdin))
	}
	f.mend()
}

func (f *followed) mend() {
	if f.settled != nil {
		_, err := f.engine.Mend(f.Context(), *f.settled)
		f.must("mend", err)
	}
}

func (f *followed) settle() {
	f.must("settle", f.engine.Settle(f.Context()))
	f.running = f.settled
}

// act does one thing.
func (f *followed) act(what string) {
	switch what {
	case "apply":
		p := f.plan()
		t := f.begin(f.engine, p)
		defer t.Close()
		f.must("commit", t.Commit())
		f.settled, f.running = p, p
	case "apply, undone":
		t := f.begin(f.engine, f.plan())
		defer t.Close()
		f.must("undo", t.Revert(f.Context()))
		if !f.whole { // else what it had is what is recorded
			f.running = f.settled
		}
	case "retune":
		f.retune()
	case "settle":
		f.settle()
	case "mend":
		f.mend()
	case "damage":
		f.damage()
	case "revert":
		_, _, err := f.engine.Revert(f.Context(), apply.Journal{WAN: f.wan})
		f.must("revert", err)
		f.settled, f.running = nil, nil
		if now := f.router.Text(); now != f.start {
			f.Fatalf("reverted, it is\n%s\nbefore:\n%s", now, f.start)
		}
	case "another process applies":
		p := f.plan()
		t := f.begin(f.process(), p)
		f.must("commit", t.Commit())
		t.Close()
		if err := f.engine.Retune(f.Context(), [2]unit.Rate{unit.MbitPerSecond, unit.MbitPerSecond}, nil); err == nil {
			f.Fatalf("another's shapers have other rates now")
		}
		f.settled = p
		f.settle()
		f.mend()
	case "end and start", "crash and start":
		if what == "end and start" {
			f.settle()
		}
		f.engine = f.process()
		if what == "end and start" {
			f.agree()
		}
		f.running = f.settled
		f.mend()
	}
}

// agree expects of the record, what drifted and the kernel that they are as they should be.
func (f *followed) agree() {
	f.Helper()
	rec, err := f.engine.Record(f.wan)
	f.must("record", err)
	if f.settled == nil {
		if rec != nil {
			f.Fatalf("reverted, and there is a record")
		}
		return
	}
	recorded := f.settled
	if f.whole {
		recorded = f.running
	}
	if rec == nil || rec.Plan.DownBps != recorded.DownBps || rec.Plan.UpBps != recorded.UpBps {
		f.Fatalf("the record is %+v, not %s down and %s up", rec, recorded.DownBps, recorded.UpBps)
	}
	if r := f.engine.Rates; r.Settled() != nil && (r.Settled().DownBps != f.settled.DownBps || r.Running().DownBps != f.running.DownBps || r.Running().UpBps != f.running.UpBps) {
		f.Fatalf("settled %s, running %s down and %s up; not %s, %s and %s", r.Settled().DownBps, r.Running().DownBps, r.Running().UpBps, f.settled.DownBps, f.running.DownBps, f.running.UpBps)
	}
	if diffs, err := f.engine.Drift(f.Context(), f.wan); err != nil || len(diffs) > 0 {
		f.Fatalf("it drifted: %v %q", err, diffs)
	}
	if f.whole {
		return // what is recorded is what runs
	}
	now, err := f.engine.Backend.Observe(f.Context(), *f.settled, nil)
	f.must("read", err)
	if steps, err := f.engine.Backend.Retune(now, *f.settled, *f.running); err != nil || len(steps) > 0 {
		f.Fatalf("the kernel has not %s down and %s up: %v %q", f.running.DownBps, f.running.UpBps, err, steps)
	}
}

// TestSettledAndRunning: whatever happens to a router whose line is followed, its one
// record of settled and running rates agrees with what is recorded and with the kernel.
func TestSettledAndRunning(t *testing.T) {
	await.NotShort(t)
	routers := map[string]func() (conform.Router, string){
		"linux":    func() (conform.Router, string) { return fake.NewLinux(), "wan" },
		"freebsd":  func() (conform.Router, string) { return fake.NewFreeBSD(), "igb0" },
		"openbsd":  func() (conform.Router, string) { return fake.NewOpenBSD(pfctl.Today), "em0" },
		"opnsense": func() (conform.Router, string) { return opnsensefake.API{Router: opnsensefake.NewWithGuests()}, "wan" },
		"pfsense":  func() (conform.Router, string) { return pfsensefake.New(), "igb0" },
	}
	acts := []string{"apply", "apply, undone", "retune", "retune", "retune", "settle", "mend", "damage", "revert", "another process applies", "end and start", "crash and start"}
	for _, d := range all.Drivers() {
		if d.Retune == nil {
			continue
		}
		t.Run(d.Name(), func(t *testing.T) {
			check(t, 1, func(t *rapid.T) {
				router, wan := routers[d.Name()]()
				b, err := d.Backend(platform.Options{Runner: router, API: d.Scheme != "", Replace: true})
				if err != nil {
					t.Fatal(err)
				}
				e := &apply.Engine{Backend: b, Runner: router, Dir: inMemory(t), Rates: new(apply.Rates)}
				e.StubWatchdog(func(string, string) error { return nil })
				defer os.RemoveAll(e.Dir)
				f := &followed{T: t, driver: d, router: router, wan: wan, start: router.Text(), engine: e}
				p := f.plan()
				_, err = b.Retune(nil, *p, *p)
				f.whole = errors.Is(err, errors.ErrUnsupported)
				f.act("apply")
				for range rapid.IntRange(1, 8).Draw(t, "things") {
					f.act(rapid.SampledFrom(acts).Draw(t, "what"))
					f.agree()
				}
			})
		})
	}
}
