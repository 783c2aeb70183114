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
		plan.PfSense:     "looks at no weight",
		plan.OpenBSDAltq: "one short FIFO", plan.ClearOS: "--aqm sfq",
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

// Where rules alone can divide traffic, who names none is told why there are no
// classes, and who names some what of them is lost.
func TestClassesOfRulesAlone(t *testing.T) {
	rules := []plan.Rule{
		{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 5060, To: 5061}}},
		{Class: plan.Voice, Domain: []string{"zoom.us"}},
		{Class: plan.Voice, Home: []string{"02:00:00:00:00:07"}},
		{Class: plan.Interactive, Protocol: "tcp", Below: 1e6},
		{Class: plan.Voice, Home: []string{"192.168.1.7"}},
	}
	limit := []plan.ShareWish{{Class: plan.Bulk, Limit: plan.RateWish{Fraction: 0.5}}, {Class: plan.Voice, Guarantee: plan.RateWish{Fraction: 0.2}}}
	for platform, kept := range map[string]int{plan.FreeBSD: 1, plan.OPNsense: 1, plan.OpenBSD: 2} {
		facts, err := plan.AssumedFacts(platform, "", "")
		if err != nil {
			t.Fatal(err)
		}
		line := plan.Line{Down: 25 * unit.MbitPerSecond, Up: 2 * unit.MbitPerSecond}
		p, err := plan.Make(line, facts, plan.Wishes{})
		if err != nil {
			t.Fatal(err)
		}
		if p.Classes != nil || !strings.Contains(p.Explain(), "does not know how a flow behaves") && !strings.Contains(p.Explain(), "looks at no weight") || !strings.Contains(p.Explain(), "--rule") {
			t.Errorf("%s, unasked: %+v\n%s", platform, p.Classes, p.Explain())
		}
		if p, err = plan.Make(line, facts, plan.Wishes{Classes: plan.ClassWishes{Rules: rules, Shares: limit}}); err != nil {
			t.Fatal(err)
		}
		said := p.Explain()
		for _, want := range []string{"zoom.us", "02:00:00:00:00:07", "counts no bytes", "does not know how a flow behaves"} {
			if !strings.Contains(said, want) {
				t.Errorf("%s: %q is not said in\n%s", platform, want, said)
			}
		}
		voice, _ := p.Classes.Share(plan.DirectionUp, plan.Voice)
		bulk, _ := p.Classes.Share(plan.DirectionUp, plan.Bulk)
		weights := platform != plan.OpenBSD
		if len(p.Classes.Rules) != kept || voice.Guarantee != p.UpBps/5 || (bulk.Limit == 0) != weights ||
			strings.Contains(said, "192.168.1.7\" is left out") && !weights || strings.Contains(said, "limit of bulk is left out") != weights {
			t.Errorf("%s: %+v\n%s", platform, p.Classes, said)
		}
	}
}
