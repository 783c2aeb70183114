package plan_test

import (
	"slices"
	"testing"

	"unbloat/internal/plan"
	"unbloat/internal/platform/all"
	"unbloat/internal/reason"
	"unbloat/unit"
)

// Whoever asks for the BPF program gets it where it can be, and nftables with the
// reason where it cannot. Nobody gets it unasked, but a plan says of the choice.
func TestClassifier(t *testing.T) {
	rule := plan.Rule{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 5060, To: 5061}}}
	for _, x := range []struct {
		name, platform, lan string
		ask                 plan.Preferences
		why                 reason.Code // "": a program
	}{
		{"where it can be", "linux", "lan0", plan.Preferences{}, ""},
		{"no LAN", "linux", "", plan.Preferences{}, reason.BPFNeedsLAN},
		{"a rule", "linux", "lan0", plan.Preferences{Classes: plan.ClassPreferences{Rules: []plan.Rule{rule}}}, ""},
		{"HTB", "linux", "lan0", plan.Preferences{AQM: plan.FQCoDel, Classes: plan.ClassPreferences{Use: plan.ClassesOn}}, reason.BPFNeedsCAKE},
		{"the LAN's side", "linux", "lan0", plan.Preferences{Side: plan.SideLAN}, reason.BPFNeedsBoth},
		{"one direction", "linux", "lan0", plan.Preferences{Only: plan.DirectionUp}, reason.BPFNeedsBoth},
		{"another platform", "openwrt", "br-lan", plan.Preferences{}, reason.BPFNotThere},
	} {
		facts, err := all.Assume(x.platform, "wan0", x.lan)
		if err != nil {
			t.Fatal(err)
		}
		facts.LAN = x.lan
		line := plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond}
		if p, err := plan.Make(line, facts, x.ask); err != nil || p.Classes.ByBPF() {
			t.Errorf("%s: unasked: %v, %+v", x.name, err, p.Classes)
		} else if said, ok := p.Why("classes.classifier"); ok != (x.why == "") || ok && said.Why.Code != reason.NFTClassifies {
			t.Errorf("%s: unasked: explained as\n%s", x.name, p.Explain())
		}
		x.ask.Classes.Classifier = plan.ByBPF
		p, err := plan.Make(line, facts, x.ask)
		if err != nil {
			t.Errorf("%s: %v", x.name, err)
			continue
		}
		said, _ := p.Why("classes.classifier")
		if x.why == "" {
			policy := p.Policy()
			want := reason.BPFClassifies
			if len(p.Classes.Rules) > 0 {
				want = reason.BPFBesideNFT
			}
			if !p.Up.NAT || !p.Down.NAT {
				t.Errorf("%s: CAKE does not look for machines, and some may be behind another interface", x.name)
			}
			facts.OneLAN = true
			one, err := plan.Make(line, facts, x.ask)
			if up, _ := one.Why("up.nat"); err != nil || one.Up.NAT || one.Down.NAT || up.Why.Code != reason.NATNumbered {
				t.Errorf("%s, with all machines behind the LAN: %v: CAKE looks for them itself:\n%s", x.name, err, one.Explain())
			}
			if !p.Classes.ByBPF() || p.Classes.LAN != x.lan || said.Why.Code != want || !policy.Apart || policy.DownByMark {
				t.Errorf("%s: %+v, explained as\n%s", x.name, p.Classes, p.Explain())
			}
			continue
		}
		warned := slices.ContainsFunc(p.Warnings, func(w reason.Reason) bool { return w.Code == reason.BPFLeftOut && w.Causes[0].Code == x.why })
		if p.Classes.ByBPF() || said.Why.Code != x.why || !warned {
			t.Errorf("%s: %+v, explained as\n%s", x.name, p.Classes, p.Explain())
		}
	}
}
