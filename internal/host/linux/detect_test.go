package linux_test

import (
	"strings"
	"testing"

	"unbloat/internal/host/linux"
	"unbloat/internal/host/linux/fakekernel"
	"unbloat/internal/plan"
	"unbloat/unit"
)

// TestDetectRules: without skbedit a plan has no rules and says why; with it,
// it has them.
func TestDetectRules(t *testing.T) {
	for _, missing := range []bool{false, true} {
		k := fakekernel.New()
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
		p, err := plan.Make(plan.Line{}, f, plan.Wishes{Up: plan.RateWish{Rate: 5 * unit.MbitPerSecond}})
		if err != nil {
			t.Fatal(err)
		}
		why, _ := p.Why("up.tins")
		if (len(p.Up.PacketRules) == 0) != missing || strings.Contains(why.Why, "skbedit") != missing {
			t.Errorf("skbedit missing: %v, rules %v, tins %s: %s", missing, p.Up.PacketRules, p.Up.Tins, why.Why)
		}
	}
}
