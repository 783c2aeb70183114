package linux_test

import (
	"testing"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/linux"
	"unbloat/reason"
	"unbloat/testkit/linuxfake"
	"unbloat/unit"
)

// TestDetectRules: a plan has rules only if the kernel has skbedit, and
// otherwise says why not.
func TestDetectRules(t *testing.T) {
	for _, missing := range []bool{false, true} {
		k := linuxfake.New()
		if missing {
			k.Missing = []string{"skbedit"}
		}
		f, err := linux.Detect(t.Context(), k, "wan", "lan")
		if err != nil {
			t.Fatal(err)
		}
		if f.NoRules != missing {
			t.Errorf("skbedit missing: %v, but NoRules is %v", missing, f.NoRules)
		}
		p, err := plan.Make(plan.Line{}, f, plan.Preferences{Up: plan.RatePreference{Rate: 5 * unit.MbitPerSecond}, Classes: plan.ClassPreferences{Use: plan.ClassesOff}})
		if err != nil {
			t.Fatal(err)
		}
		why, _ := p.Why("up.tins")
		if (len(p.Up.PacketRules) == 0) != missing || (why.Why.Code == reason.TinsNoRules) != missing {
			t.Errorf("skbedit missing: %v, rules %v, tins %s: %s", missing, p.Up.PacketRules, p.Up.Tins, why.Why)
		}
	}
}

// TestDetectClasses: without BPF filters the plan has no classes, and says so; nftables
// and the ctinfo action are for rules alone.
func TestDetectClasses(t *testing.T) {
	for missing, want := range map[string]struct{ up, down bool }{"": {true, true}, "ctinfo": {true, true}, "nft": {true, true}, "bpf": {false, false}} {
		k := linuxfake.New()
		k.Missing = []string{missing}
		f, err := linux.Detect(t.Context(), k, "wan", "lan")
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.Make(plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond}, f, plan.Preferences{})
		if err != nil {
			t.Fatal(err)
		}
		if up, down := p.Classes.Of(false) != nil, p.Classes.Of(true) != nil; up != want.up || down != want.down {
			t.Errorf("without %q: classes up %v, down %v", missing, up, down)
		}
		if _, said := p.Why("classes"); said != (missing == "bpf") {
			t.Errorf("without %q: said why there are no classes: %v", missing, said)
		}
	}
}
