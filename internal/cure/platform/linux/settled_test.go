package linux_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux"
	"unbloat/testkit/fake"
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
		p, err := plan.Make(plan.Line{}, linux.Language().Assume("wan", "lan"), plan.Preferences{Down: plan.RatePreference{Rate: rate}, Up: plan.RatePreference{Rate: rate}})
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

// TestSettledKeepsOthers: a plan that shapes at the LAN does not look at another's ifb,
// so a filter into it is no ruin.
func TestSettledKeepsOthers(t *testing.T) {
	r := fake.NewLinux()
	for _, line := range []string{"ip link add name ifb4wan type ifb", "ip link set dev ifb4wan up", "tc qdisc add dev wan handle ffff: ingress",
		"tc filter add dev wan parent ffff: protocol all pref 10 u32 classid 1:1 match u32 0 0 at 0 action mirred egress redirect dev ifb4wan"} {
		if _, out, err := r.Run(t.Context(), strings.Fields(line), nil); err != nil {
			t.Fatalf("%s: %s %v", line, out, err)
		}
	}
	b := &linux.Backend{Runner: r, Replace: true}
	p, err := plan.Make(plan.Line{}, linux.Language().Assume("wan", "lan"), plan.Preferences{Side: plan.SideLAN, Down: plan.RatePreference{Rate: unit.MbitPerSecond}, Up: plan.RatePreference{Rate: unit.MbitPerSecond}})
	if err != nil {
		t.Fatal(err)
	}
	was, err := b.Observe(t.Context(), p, nil)
	if err != nil {
		t.Fatal(err)
	}
	settled, err := b.Settled(was)
	if err != nil {
		t.Fatal(err)
	}
	if _, lost, err := b.Compare(settled, was); err != nil || len(lost) > 0 {
		t.Errorf("lost: %q, %v", lost, err)
	}
	// The kernel tells a filter's device as * once that has gone.
	gone := platform.State(strings.ReplaceAll(string(was), "ifb4wan", "*"))
	if settled, err = b.Settled(gone); err != nil {
		t.Fatal(err)
	}
	if _, lost, err := b.Compare(settled, gone); err != nil || len(lost) != 1 {
		t.Errorf("without the device: lost: %q, %v", lost, err)
	}
}

// TestWANThatIsAnIFB: a WAN is never taken away, even if it is of the kind that we make.
func TestWANThatIsAnIFB(t *testing.T) {
	r := fake.NewLinux()
	for _, line := range []string{"ip link add name wan9 type ifb", "ip link set dev wan9 up"} {
		if _, out, err := r.Run(t.Context(), strings.Fields(line), nil); err != nil {
			t.Fatalf("%s: %s %v", line, out, err)
		}
	}
	b := &linux.Backend{Runner: r}
	p, err := plan.Make(plan.Line{}, linux.Language().Assume("wan9", ""), plan.Preferences{Only: plan.DirectionUp, Up: plan.RatePreference{Rate: unit.MbitPerSecond}, Classes: plan.ClassPreferences{Use: plan.ClassesOff}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 { // the second time it has our queue, and nothing is recorded
		e := &apply.Engine{Backend: b, Runner: r, Dir: t.TempDir(), Watchdog: quiet{}}
		m, err := e.Mend(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 && len(m.Differences) > 0 {
			t.Errorf("what is in place is not as it should be: %q", m.Differences)
		}
	}
}

// quiet is a watchdog that never acts.
type quiet struct{}

func (quiet) Arm(context.Context, *apply.Journal) error   { return nil }
func (quiet) Renew(context.Context, *apply.Journal) error { return nil }
func (quiet) Alive(context.Context, *apply.Journal) bool  { return true }
func (quiet) Close(context.Context, *apply.Journal) error { return nil }
