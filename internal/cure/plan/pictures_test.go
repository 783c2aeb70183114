package plan_test

import (
	"testing"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/all"
	"unbloat/unit"
)

// CAKE's interval for an upload lets a call's pictures pass, where there are classes
// by which calls go first; a faster line needs no other than the usual one.
func TestPictures(t *testing.T) {
	for _, x := range []struct {
		up   unit.Rate
		vary bool
		ask  plan.Preferences
		want time.Duration // 0: CAKE's own
	}{
		{5 * unit.MbitPerSecond, false, plan.Preferences{}, 250 * time.Millisecond},
		{5 * unit.MbitPerSecond, true, plan.Preferences{}, 0},
		{25 * unit.MbitPerSecond, false, plan.Preferences{}, 240 * time.Millisecond},
		{60 * unit.MbitPerSecond, false, plan.Preferences{}, 0},
		{400 * unit.KbitPerSecond, false, plan.Preferences{}, 0}, // no flow is steady
		{5 * unit.MbitPerSecond, false, plan.Preferences{Classes: plan.ClassPreferences{Use: plan.ClassesOff}}, 0},
		{5 * unit.MbitPerSecond, false, plan.Preferences{Interval: 80 * time.Millisecond}, 80 * time.Millisecond},
	} {
		capabilities, err := all.Assume("linux", "wan0", "lan0")
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.Make(plan.Line{Down: 10 * x.up, Up: x.up, Varies: x.vary}, capabilities, x.ask)
		if err != nil {
			t.Fatal(err)
		}
		if p.Up.Interval != x.want {
			t.Errorf("%v up, %+v: interval %v, want %v", x.up, x.ask, p.Up.Interval, x.want)
		}
		if p.Policy().Varies != x.vary {
			t.Errorf("%v up: the classes' line varies: %v", x.up, !x.vary)
		}
	}
}
