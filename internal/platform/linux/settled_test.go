package linux_test

import (
	"context"
	"testing"
	"time"

	"unbloat/internal/apply"
	"unbloat/internal/plan"
	"unbloat/internal/platform/fake"
	"unbloat/internal/platform/linux"
	"unbloat/unit"
)

// TestUndoWithoutIFB: somebody has removed our ifb, and its filter stayed. A change
// that mends that can be undone, though the filter cannot be made again, and the
// next change goes through.
func TestUndoWithoutIFB(t *testing.T) {
	r := fake.NewLinux()
	b := &linux.Backend{Runner: r, Replace: true}
	e := &apply.Engine{Backend: b, Runner: r, Dir: t.TempDir(), Watchdog: quiet{}}
	planOf := func(rate unit.Rate) plan.Plan {
		p, err := plan.Make(plan.Line{}, linux.Language().Assume("wan", ""), plan.Preferences{Down: plan.RatePreference{Rate: rate}, Up: plan.RatePreference{Rate: rate}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := planOf(20 * unit.MbitPerSecond)
	if _, err := e.Mend(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if _, out, err := r.Run(t.Context(), []string{"ip", "link", "del", "dev", "ifb4wan"}, nil); err != nil {
		t.Fatalf("%s %v", out, err)
	}
	tr, err := e.Begin(t.Context(), planOf(30*unit.MbitPerSecond), apply.Options{Confirm: time.Minute, Hold: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Revert(t.Context()); err != nil {
		t.Fatal(err)
	}
	tr.Close()
	if _, err := e.Mend(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

// quiet is a watchdog that never acts.
type quiet struct{}

func (quiet) Arm(context.Context, *apply.Journal) error   { return nil }
func (quiet) Renew(context.Context, *apply.Journal) error { return nil }
func (quiet) Alive(context.Context, *apply.Journal) bool  { return true }
func (quiet) Close(context.Context, *apply.Journal) error { return nil }
