package plan_test

import (
	"slices"
	"strings"
	"testing"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/all"
	"unbloat/reason"
	"unbloat/unit"
)

// A platform that cannot divide traffic says why, and plans without classes.
func TestClassesThatCannotBe(t *testing.T) {
	rule := plan.Rule{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 5060, To: 5061}}}
	for platform, why := range map[string]reason.Code{
		"clearos": reason.ClearOSClassesUnasked,
	} {
		capabilities, err := all.Assume(platform, "", "")
		if err != nil {
			t.Fatal(err)
		}
		for _, rules := range [][]plan.Rule{nil, {rule}} { // with and without rules of the user's
			p, err := plan.Make(plan.Line{Down: 25 * unit.MbitPerSecond, Up: unit.MbitPerSecond}, capabilities,
				plan.Preferences{Classes: plan.ClassPreferences{Rules: rules}})
			if err != nil {
				t.Errorf("%s: %v", platform, err)
				continue
			}
			warned := slices.ContainsFunc(p.Warnings, func(w reason.Reason) bool { return w.Code == reason.ClassesUntold && w.Causes[0].Code == why })
			said, _ := p.Why("classes")
			if p.Classes != nil || warned != (rules != nil) || (said.Why.Code == why) != (rules == nil) {
				t.Errorf("%s: classes %+v, explained as\n%s", platform, p.Classes, p.Explain())
			}
		}
	}
}

// On a platform with explicit rules only, a plan without rules says why it has no
// classes, and a plan with rules says what they lack.
func TestClassesOfRulesOnly(t *testing.T) {
	rules := []plan.Rule{
		{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 5060, To: 5061}}},
		{Class: plan.Voice, Domain: []string{"zoom.us"}},
		{Class: plan.Voice, Home: []string{"02:00:00:00:00:07"}},
		{Class: plan.Interactive, Protocol: "tcp", Below: 1e6},
		{Class: plan.Voice, Home: []string{"192.168.1.7"}},
	}
	limit := []plan.SharePreference{{Class: plan.Bulk, Limit: plan.RatePreference{Fraction: 0.5}}, {Class: plan.Voice, Guarantee: plan.RatePreference{Fraction: 0.2}}}
	for platform, kept := range map[string]int{"freebsd": 1, "opnsense": 1, "pfsense": 1, "openbsd": 2, "openbsd-altq": 2} {
		capabilities, err := all.Assume(platform, "", "")
		if err != nil {
			t.Fatal(err)
		}
		line := plan.Line{Down: 25 * unit.MbitPerSecond, Up: 2 * unit.MbitPerSecond}
		p, err := plan.Make(line, capabilities, plan.Preferences{})
		if err != nil {
			t.Fatal(err)
		}
		if p.Classes != nil || !strings.Contains(p.Explain(), "does not know how a flow behaves") && !strings.Contains(p.Explain(), "looks at no weight") || !strings.Contains(p.Explain(), "--rule") {
			t.Errorf("%s, unasked: %+v\n%s", platform, p.Classes, p.Explain())
		}
		if p, err = plan.Make(line, capabilities, plan.Preferences{Classes: plan.ClassPreferences{Rules: rules, Shares: limit}}); err != nil {
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
		weights := platform != "openbsd" && platform != "openbsd-altq"
		if weights != strings.Contains(said, "WF2Q+ serves these by weight") || (platform == "openbsd") != strings.Contains(said, "bytes of every other flow") {
			t.Errorf("%s: what shares the line is not said, or what does not is:\n%s", platform, said)
		}
		if first := voice.First == voice.Guarantee; first != (platform != "openbsd") {
			t.Errorf("%s: voice goes first up to %s, and is sure of %s", platform, voice.First, voice.Guarantee)
		}
		if len(p.Classes.Rules) != kept || voice.Guarantee != p.UpBps/5 || (bulk.Limit == 0) != weights ||
			strings.Contains(said, "192.168.1.7\" is left out") && !weights || strings.Contains(said, "limit of bulk is left out") != weights {
			t.Errorf("%s: %+v\n%s", platform, p.Classes, said)
		}
	}
}

// The plan warns of what a rule misses: pf takes DSCP 0 for any and looks at a
// connection's first packet only, and NAT hides machines and changes ports.
func TestPartsOfRules(t *testing.T) {
	ssh := []plan.PortRange{{From: 22, To: 22}}
	for _, c := range []struct {
		platform string
		rule     plan.Rule
		kept     int
		said     string
	}{
		{"openbsd", plan.Rule{DSCP: []string{"cs1", "df"}}, 0, "takes a mark of 0 for any"},
		{"openbsd", plan.Rule{DSCP: []string{"cs1"}}, 1, "first packet, which decides for both directions"},
		{"openbsd", plan.Rule{Home: []string{"192.168.1.7"}}, 1, "opened from outside"},
		{"openbsd", plan.Rule{Home: []string{"192.168.1.7"}, Direction: plan.DirectionDown}, 1, ""},
		{"openbsd", plan.Rule{Home: []string{"2001:db8::7"}}, 1, ""},
		{"openbsd-altq", plan.Rule{DSCP: []string{"cs1", "df"}}, 0, "takes a mark of 0 for any"},
		{"openbsd-altq", plan.Rule{DSCP: []string{"cs1"}}, 1, "first packet, which decides for both directions"},
		{"openbsd-altq", plan.Rule{Home: []string{"192.168.1.7"}}, 1, "opened from outside"},
		{"freebsd", plan.Rule{Protocol: "tcp", HomePort: ssh}, 1, "NAT may have given"},
		{"freebsd", plan.Rule{DSCP: []string{"df"}}, 1, ""},
		{"pfsense", plan.Rule{DSCP: []string{"ef"}}, 0, "words for marks"},
		{"pfsense", plan.Rule{Protocol: "tcp", Direction: plan.DirectionUp}, 0, "both directions"},
		{"pfsense", plan.Rule{Protocol: "tcp"}, 1, ""},
	} {
		capabilities, err := all.Assume(c.platform, "", "")
		if err != nil {
			t.Fatal(err)
		}
		c.rule.Class = plan.Bulk
		p, err := plan.Make(plan.Line{Down: 25 * unit.MbitPerSecond, Up: 2 * unit.MbitPerSecond}, capabilities, plan.Preferences{Classes: plan.ClassPreferences{Rules: []plan.Rule{c.rule}}})
		if err != nil {
			t.Fatal(err)
		}
		said := ""
		for _, w := range p.Warnings {
			if text := w.String(); strings.Contains(text, "rule ") {
				said += text
			}
		}
		if len(p.Classes.Rules) != c.kept || (said == "") != (c.said == "") || !strings.Contains(said, c.said) {
			t.Errorf("%s: %s: %d kept, said %q", c.platform, c.rule, len(p.Classes.Rules), said)
		}
	}
}

// Guarantees that the user asks for are kept: the default limits and guarantees
// make room for them. The sum never exceeds the rate, since HTB would send it all.
func TestGuaranteesFit(t *testing.T) {
	for _, platform := range []string{"linux", "openwrt", "openbsd", "openbsd-altq", "freebsd", "opnsense", "pfsense"} {
		for _, c := range []struct {
			voice, bulk float64
			warned      bool
		}{{0.6, 0.1, false}, {0.9, 0.08, false}, {0.8, 0.7, true}} {
			capabilities, err := all.Assume(platform, "", "")
			if err != nil {
				t.Fatal(err)
			}
			p, err := plan.Make(plan.Line{Down: 25 * unit.MbitPerSecond, Up: 2 * unit.MbitPerSecond}, capabilities, plan.Preferences{Classes: plan.ClassPreferences{Shares: []plan.SharePreference{
				{Class: plan.Voice, Guarantee: plan.RatePreference{Fraction: c.voice}}, {Class: plan.Bulk, Guarantee: plan.RatePreference{Fraction: c.bulk}}}}})
			if err != nil {
				t.Fatal(platform, err)
			}
			for d, s := range map[plan.Direction]*plan.Shaper{plan.DirectionUp: p.Up, plan.DirectionDown: p.Down} {
				sum := unit.Rate(0)
				for _, class := range plan.AllClasses() {
					sh, _ := p.Classes.Share(d, class)
					sum += sh.Guarantee
				}
				voice, _ := p.Classes.Share(d, plan.Voice)
				if sum > s.Rate || !c.warned && voice.Guarantee != s.Rate.Scale(c.voice) || voice.Limit > 0 && voice.Limit < voice.Guarantee {
					t.Errorf("%s %s, %v asked: voice %+v, together %s of %s", platform, d, c.voice, voice, sum, s.Rate)
				}
			}
			if slices.ContainsFunc(p.Warnings, func(w reason.Reason) bool { return w.Code == reason.GuaranteesShared }) != c.warned {
				t.Errorf("%s, %v: warned of %q", platform, c, p.Warnings)
			}
		}
	}
}
