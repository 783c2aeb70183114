// Package conform has the tests that every platform.Backend must pass: the backend
// itself changes nothing; plan B after plan A gives the same as B alone; applying
// twice changes nothing more; status shows what was applied; an undo restores the
// old state exactly, also after a failure at any step; and so does a long random
// walk. It also holds documents and the shell's completion to a program's commands.
package conform

import (
	"context"
	"errors"
	"flag"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/unit"
)

// A Router is a stand-in for one platform's router.
type Router interface {
	platform.Runner
	// Text prints everything that a change can affect.
	Text() string
	// Commands returns the commands that changed something since the last call.
	Commands() []string
	// SetFail sets a function that decides for each changing command whether it
	// fails, and whether after its effect.
	SetFail(func(argv []string) (fail, after bool))
}

// A Case is one platform.
type Case struct {
	WAN  string
	New  func() (Router, platform.Backend)
	Plan func(t *rapid.T, name string) plan.Plan
}

// AnyPreferences draws preferences that every platform supports: rates from 64
// kbit/s to most, exact or in whole units, one direction or both, and one of the
// given AQMs.
func AnyPreferences(t *rapid.T, name string, most unit.Rate, aqms ...plan.AQM) plan.Preferences {
	rate := func(which string) plan.RatePreference {
		of := rapid.SampledFrom([]unit.Rate{unit.BitPerSecond, unit.KbitPerSecond, unit.MbitPerSecond, unit.GbitPerSecond}).Draw(t, name+" unit of "+which)
		least := unit.Rate(64) * unit.KbitPerSecond
		// Evenly over the orders of magnitude.
		order := rapid.Int64Range(0, 5).Draw(t, name+" order of "+which)
		for range order {
			least *= 10
		}
		r := unit.Rate(rapid.Int64Range(int64(least), int64(least)*10).Draw(t, name+" "+which))
		return plan.RatePreference{Rate: min(max(r/of*of, 64*unit.KbitPerSecond), most)}
	}
	return plan.Preferences{
		AQM:  rapid.SampledFrom(append([]plan.AQM{""}, aqms...)).Draw(t, name+" aqm"),
		Only: rapid.SampledFrom([]plan.Direction{"", "", plan.DirectionUp, plan.DirectionDown}).Draw(t, name+" only"),
		Down: rate("down"), Up: rate("up"),
	}
}

// Run runs the contract.
func Run(t *testing.T, c Case) {
	t.Run("laws", func(t *testing.T) { check(t, 12, c.laws) })
	t.Run("failures", func(t *testing.T) { check(t, 6, c.failures) }) // each fails a plan at every command in turn
	t.Run("walk", c.walk)
}

// check runs a law for the given number of random cases, or with UNBLOAT_LONG=1 for
// the number in -rapid.checks, which is 100 by default.
func check(t *testing.T, cases int, law func(t *rapid.T)) {
	t.Helper()
	if checks := flag.Lookup("rapid.checks"); os.Getenv("UNBLOAT_LONG") == "" && checks.Value.String() == checks.DefValue {
		if err := checks.Value.Set(strconv.Itoa(cases)); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = checks.Value.Set(checks.DefValue) }()
	}
	rapid.Check(t, law)
}

// engine returns an engine on a fresh router, whose watchdog is a stub.
func (c Case) engine(t interface{ Fatal(...any) }) (*apply.Engine, Router) {
	base := "" // in memory if possible: every step of a journal is synced
	if _, err := os.Stat("/dev/shm"); err == nil {
		base = "/dev/shm"
	}
	dir, err := os.MkdirTemp(base, "unbloat-conform-")
	if err != nil {
		t.Fatal(err)
	}
	r, b := c.New()
	return &apply.Engine{Backend: b, Runner: r, Dir: dir, Watchdog: nobody{}}, r
}

// nobody is a watchdog that never acts.
type nobody struct{}

func (nobody) Arm(context.Context, *apply.Journal) error   { return nil }
func (nobody) Renew(context.Context, *apply.Journal) error { return nil }
func (nobody) Alive(context.Context, *apply.Journal) bool  { return true }
func (nobody) Close(context.Context, *apply.Journal) error { return nil }

type fataler interface{ Fatalf(string, ...any) }

// begin applies and commits.
func begin(t fataler, e *apply.Engine, p plan.Plan) {
	tr, err := e.Begin(context.Background(), p, apply.Options{Confirm: time.Minute})
	if err != nil {
		t.Fatalf("apply %s down, %s up, %s: %v", p.DownBps, p.UpBps, p.AQM, err)
	}
	defer tr.Close()
	if err := tr.Commit(); err != nil {
		t.Fatalf("commit: %v", err)
	}
}

func (c Case) laws(t *rapid.T) {
	e, r := c.engine(t)
	d, direct := c.engine(t)
	defer os.RemoveAll(e.Dir)
	defer os.RemoveAll(d.Dir)
	start := r.Text()
	a, b := c.Plan(t, "A"), c.Plan(t, "B")
	_ = r.Commands()
	if _, err := e.Preview(context.Background(), a); err != nil {
		t.Fatalf("preview: %v", err)
	}
	if ran := r.Commands(); len(ran) > 0 || r.Text() != start {
		t.Fatalf("a backend changed something by itself: %q", ran)
	}
	begin(t, e, a)
	begin(t, e, b)
	_ = r.Commands()
	begin(t, e, b)
	if ran := r.Commands(); len(ran) > 0 {
		t.Fatalf("applied twice, it ran %q", ran)
	}
	begin(t, d, b)
	if got, want := r.Text(), direct.Text(); got != want {
		t.Fatalf("B after A is not B alone:\n%s\nalone:\n%s", got, want)
	}
	explained(t, e.Backend, b)
	settles(t, e.Backend, b)
	if rapid.IntRange(0, 3).Draw(t, "somebody takes it away") == 0 { // it takes as long as the rest
		drifts(t, d, b)
	}
	revert(t, e, c.WAN)
	if r.Text() != start {
		t.Fatalf("reverted, but it is not as before:\n%s\nbefore:\n%s", r.Text(), start)
	}
}

// explained expects the plan's rates among the shapers of ours that the router
// shows, within 1 %: ALTQ shows two decimals.
func explained(t fataler, b platform.Backend, p plan.Plan) {
	shapers, err := b.Shapers(context.Background(), p.WAN)
	if err != nil {
		t.Fatalf("status: %v", err)
	}
	for _, want := range []unit.Rate{p.DownBps, p.UpBps} {
		if want == 0 || p.AQM == plan.SFQ { // ClearOS's own classes have no rate of their own
			continue
		}
		if !slices.ContainsFunc(shapers, func(s platform.Shaped) bool { return s.Ours && s.Rate <= want+want/100 && s.Rate >= want-want/100 }) {
			t.Fatalf("status shows no shaper of ours at %s: %+v", want, shapers)
		}
	}
	for _, s := range shapers {
		if s.Device == "" || s.Says == "" {
			t.Fatalf("status says nothing: %+v", s)
		}
	}
}

// settles expects that a router that runs what its settings say is settled.
func settles(t fataler, b platform.Backend, p plan.Plan) {
	now, err := b.Observe(context.Background(), p, nil)
	if err != nil {
		t.Fatalf("read the state: %v", err)
	}
	settled, err := b.Settled(now)
	if err != nil {
		t.Fatalf("settle: %v", err)
	}
	if _, diffs, err := b.Compare(now, settled); err != nil || len(diffs) > 0 {
		t.Fatalf("nobody touched it, and yet it would be something else once it loads its settings: %v %q", err, diffs)
	}
	if _, diffs, err := b.Compare(settled, now); err != nil || len(diffs) > 0 {
		t.Fatalf("nobody touched it, and yet it would be something else once it loads its settings: %v %q", err, diffs)
	}
}

// drifts expects no drift if nothing was touched, drift after the applied state was
// removed, and none after the plan was applied again.
func drifts(t fataler, e *apply.Engine, p plan.Plan) {
	drift := func() []string {
		diffs, err := e.Drift(context.Background(), p.WAN)
		if err != nil {
			t.Fatalf("compare with what was applied: %v", err)
		}
		return diffs
	}
	if diffs := drift(); len(diffs) > 0 {
		t.Fatalf("nobody touched it, and yet it differs: %q", diffs)
	}
	dir, err := os.MkdirTemp("", "unbloat-conform-")
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, os.DirFS(e.Dir)); err != nil { // so that the engine keeps its record
		t.Fatalf("%v", err)
	}
	revert(t, &apply.Engine{Backend: e.Backend, Runner: e.Runner, Dir: dir, Watchdog: nobody{}}, p.WAN)
	if diffs := drift(); len(diffs) == 0 {
		t.Fatalf("what was applied is gone, and nobody noticed")
	}
	begin(t, e, p)
	if diffs := drift(); len(diffs) > 0 {
		t.Fatalf("applied again, it differs: %q", diffs)
	}
}

func revert(t fataler, e *apply.Engine, wan string) {
	if _, _, err := e.Revert(context.Background(), apply.Journal{WAN: wan}); err != nil {
		t.Fatalf("revert: %v", err)
	}
}

// failures makes each command in turn fail, before or after its effect, and some
// commands of the undo too.
func (c Case) failures(t *rapid.T) {
	e, r := c.engine(t)
	defer os.RemoveAll(e.Dir)
	if rapid.Bool().Draw(t, "over an earlier plan") {
		begin(t, e, c.Plan(t, "earlier"))
	}
	start := r.Text()
	p := c.Plan(t, "plan")
	undoFails := rapid.IntRange(0, 2).Draw(t, "failures of the undo")
	for n := 1; n < 200; n++ {
		count := 0
		r.SetFail(func([]string) (bool, bool) {
			count++
			return count >= n && count <= n+undoFails, n%2 == 0
		})
		tr, err := e.Begin(context.Background(), p, apply.Options{Confirm: time.Minute})
		r.SetFail(nil)
		if err == nil {
			tr.Close()
			if count >= n {
				t.Fatalf("command %d failed, and nobody noticed", n)
			}
			return // n is beyond the last command
		}
		if count < n {
			t.Fatalf("no command failed, and yet: %v", err)
		}
		var undo *apply.UndoError
		if errors.As(err, &undo) { // three rounds were not enough: the next revert goes on
			revert(t, e, c.WAN)
		}
		if r.Text() != start {
			t.Fatalf("command %d failed (%v), and this is not the old state:\n%s\nbefore:\n%s", n, err, r.Text(), start)
		}
	}
}

// walk goes through 60 states, or with UNBLOAT_LONG=1 through 200: plans, reverts and failures in random order.
func (c Case) walk(t *testing.T) {
	e, r := c.engine(t)
	defer os.RemoveAll(e.Dir)
	start := r.Text()
	steps, most := 0, 60
	if os.Getenv("UNBLOAT_LONG") != "" {
		most = 200
	}
	rapid.Check(t, func(t *rapid.T) {
		if steps >= most {
			return
		}
		for range 20 {
			steps++
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				revert(t, e, c.WAN)
				if r.Text() != start {
					t.Fatalf("state %d: reverted, but it is not as at the start:\n%s\nstart:\n%s", steps, r.Text(), start)
				}
			case 1:
				c.stumble(t, e, r)
			default:
				begin(t, e, c.Plan(t, "next"))
			}
		}
	})
	revert(t, e, c.WAN)
	if r.Text() != start {
		t.Fatalf("after %d states, reverted, but it is not as at the start:\n%s\nstart:\n%s", steps, r.Text(), start)
	}
	if steps < most {
		t.Errorf("%d states, want %d", steps, most)
	}
}

// stumble applies a plan and makes one command fail.
func (c Case) stumble(t *rapid.T, e *apply.Engine, r Router) {
	before := r.Text()
	n, count := rapid.IntRange(1, 8).Draw(t, "fails at"), 0
	r.SetFail(func([]string) (bool, bool) { count++; return count == n, n%2 == 0 })
	tr, err := e.Begin(context.Background(), c.Plan(t, "stumbling"), apply.Options{Confirm: time.Minute})
	r.SetFail(nil)
	if err != nil {
		if r.Text() != before {
			t.Fatalf("it failed (%v), and this is not the state before:\n%s\nbefore:\n%s", err, r.Text(), before)
		}
		return
	}
	defer tr.Close()
	if err := tr.Revert(context.Background()); err != nil {
		t.Fatalf("undo: %v", err)
	}
}
