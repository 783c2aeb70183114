package plan_test

import (
	"strings"
	"testing"

	"unbloat/internal/plan"
	"unbloat/unit"
)

// A platform that cannot divide traffic says why, and plans without.
func TestClassesThatCannotBe(t *testing.T) {
	rule := plan.Rule{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 5060, To: 5061}}}
	for platform, why := range map[string]string{
		plan.FreeBSD: "looks at no weight", plan.PfSense: "looks at no weight", plan.OPNsense: "looks at no weight",
		plan.OpenBSDAltq: "one short FIFO", plan.ClearOS: "cannot mark flows",
	} {
		facts, err := plan.AssumedFacts(platform, "", "")
		if err != nil {
			t.Fatal(err)
		}
		for _, rules := range [][]plan.Rule{nil, {rule}} { // who asks for none is told too
			p, err := plan.Make(plan.Line{Down: 25 * unit.MbitPerSecond, Up: unit.MbitPerSecond}, facts,
				plan.Wishes{Classes: plan.ClassWishes{Rules: rules}})
			if err != nil {
				t.Errorf("%s: %v", platform, err)
				continue
			}
			if warned := strings.Contains(strings.Join(p.Warnings, "\n"), why); p.Classes != nil || !strings.Contains(p.Explain(), why) || warned != (rules != nil) {
				t.Errorf("%s: classes %+v, explained as\n%s", platform, p.Classes, p.Explain())
			}
		}
	}
}
