package plan_test

import (
	"slices"
	"testing"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/all"
	"unbloat/reason"
	"unbloat/unit"
)

// A BPF program judges how flows behave by default, on Linux and OpenWrt, behind CAKE and
// HTB. Where it can't, or would cost much, the plan has fair queues and the rules, says so
// and why. nftables as the classifier means the default.
func TestClassifier(t *testing.T) {
	rule := plan.Rule{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 5060, To: 5061}}}
	none := func(*plan.Capabilities) {}
	for _, x := range []struct {
		name, platform, lan string
		ask                 plan.Preferences
		router              func(*plan.Capabilities)
		why                 reason.Code // "": a program
	}{
		{"where it can be", "linux", "lan0", plan.Preferences{}, none, ""},
		{"asked for", "linux", "lan0", plan.Preferences{Classes: plan.ClassPreferences{Classifier: plan.ByBPF}}, none, ""},
		{"nftables", "linux", "lan0", plan.Preferences{Classes: plan.ClassPreferences{Classifier: plan.ByNFT}}, none, ""},
		{"OpenWrt", "openwrt", "br-lan", plan.Preferences{}, none, ""},
		{"a rule", "linux", "lan0", plan.Preferences{Classes: plan.ClassPreferences{Rules: []plan.Rule{rule}}}, none, ""},
		{"HTB", "linux", "lan0", plan.Preferences{AQM: plan.FQCoDel, Classes: plan.ClassPreferences{Use: plan.ClassesOn}}, none, ""},
		{"no ctinfo", "linux", "lan0", plan.Preferences{}, func(f *plan.Capabilities) { f.NoMarks = true }, ""},
		{"marks of others", "linux", "lan0", plan.Preferences{Classes: plan.ClassPreferences{Rules: []plan.Rule{rule}}}, func(f *plan.Capabilities) { f.OthersMarks = []string{"x"} }, ""},
		{"no LAN", "linux", "", plan.Preferences{}, none, reason.BPFNeedsLAN},
		{"the LAN's side", "linux", "lan0", plan.Preferences{Side: plan.SideLAN}, none, reason.BPFNeedsBoth},
		{"one direction", "linux", "lan0", plan.Preferences{Only: plan.DirectionUp}, none, reason.BPFNeedsBoth},
		{"no cls_bpf", "linux", "lan0", plan.Preferences{}, func(f *plan.Capabilities) { f.NoBPF = "no cls_bpf" }, reason.ClassesUnable},
		{"no cls_bpf, and a rule", "openwrt", "br-lan", plan.Preferences{Classes: plan.ClassPreferences{Rules: []plan.Rule{rule}}}, func(f *plan.Capabilities) { f.NoBPF = "no cls_bpf" }, reason.ClassesUnable},
		{"no JIT", "linux", "lan0", plan.Preferences{}, func(f *plan.Capabilities) { f.SlowBPF = "no JIT" }, reason.BPFSlow},
		{"no JIT, asked for", "linux", "lan0", plan.Preferences{Classes: plan.ClassPreferences{Classifier: plan.ByBPF}}, func(f *plan.Capabilities) { f.SlowBPF = "no JIT" }, ""},
	} {
		capabilities, err := all.Assume(x.platform, "wan0", x.lan)
		if err != nil {
			t.Fatal(err)
		}
		capabilities.LAN = x.lan
		x.router(&capabilities)
		line := plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond}
		p, err := plan.Make(line, capabilities, x.ask)
		if err != nil {
			t.Errorf("%s: %v", x.name, err)
			continue
		}
		warned := func(code, cause reason.Code) bool {
			return slices.ContainsFunc(p.Warnings, func(w reason.Reason) bool {
				return w.Code == code && (cause == "" || w.Causes[0].Code == cause)
			})
		}
		if told := warned(reason.NFTNotChosen, ""); told != (x.ask.Classes.Classifier == plan.ByNFT) {
			t.Errorf("%s: warned of nftables: %v", x.name, told)
		}
		if x.why != "" {
			if p.Classes.ByBPF() || p.ByBehaviour() || !warned(reason.BPFLeftOut, x.why) || (p.Classes != nil) != (x.ask.Classes.Rules != nil) {
				t.Errorf("%s: %+v, explained as\n%s", x.name, p.Classes, p.Explain())
			}
			continue
		}
		said, _ := p.Why("classes.classifier")
		want := reason.BPFClassifies
		if len(x.ask.Classes.Rules) > 0 {
			want = reason.BPFBesideNFT
		}
		if !p.Classes.ByBPF() || p.Classes.LAN != x.lan || said.Why.Code != want || !p.ByBehaviour() || p.SetsMarks() || warned(reason.BPFLeftOut, "") {
			t.Errorf("%s: %+v, explained as\n%s", x.name, p.Classes, p.Explain())
		}
		if p.AQM != plan.CAKE {
			continue
		}
		if two, _ := p.Why("up.nat"); !p.Up.NAT || !p.Down.NAT || two.Why.Code != reason.NATUnnumbered {
			t.Errorf("%s: CAKE does not look for machines, and some may be behind another interface", x.name)
		}
		capabilities.OneLAN = true
		one, err := plan.Make(line, capabilities, x.ask)
		if up, _ := one.Why("up.nat"); err != nil || one.Up.NAT || one.Down.NAT || up.Why.Code != reason.NATNumbered {
			t.Errorf("%s, with all machines behind the LAN: %v: CAKE looks for them itself:\n%s", x.name, err, one.Explain())
		}
	}
}
