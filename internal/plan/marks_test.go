package plan_test

import (
	"slices"
	"strings"
	"testing"

	"unbloat/internal/plan"
	"unbloat/internal/platform/all"
	"unbloat/internal/reason"
	"unbloat/unit"
)

// Where other rules take the bits of marks, a plan sets none: classes are left out, asked for or
// not, and with the BPF program, which needs none, only the rules that name traffic. The
// plan names those rules in its reasons and its warnings, in each language.
func TestOthersMarks(t *testing.T) {
	rule := plan.Rule{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 5060, To: 5061}}}
	bpf := plan.ClassPreferences{Classifier: plan.ByBPF}
	named := bpf
	named.Rules = []plan.Rule{rule}
	for _, x := range []struct {
		name, platform string
		ask            plan.Preferences
		classes        bool
		warns          reason.Code
	}{
		{"unasked", "linux", plan.Preferences{}, false, reason.ClassesNone},
		{"asked", "linux", plan.Preferences{Classes: plan.ClassPreferences{Use: plan.ClassesOn, Rules: []plan.Rule{rule}}}, false, reason.ClassesNone},
		{"behind HTB", "linux", plan.Preferences{AQM: plan.FQCoDel, Classes: plan.ClassPreferences{Use: plan.ClassesOn}}, false, reason.ClassesNone},
		{"on the LAN's side", "linux", plan.Preferences{Side: plan.SideLAN}, false, reason.ClassesNone},
		{"on OpenWrt", "openwrt", plan.Preferences{}, false, reason.ClassesNone},
		{"by iptables", "clearos", plan.Preferences{Classes: plan.ClassPreferences{Use: plan.ClassesOn}}, false, reason.ClassesNone},
		{"by the program", "linux", plan.Preferences{Classes: bpf}, true, ""},
		{"by the program, and a rule", "linux", plan.Preferences{Classes: named}, true, reason.ClassesLeftOut},
		{"by the program, which can't", "linux", plan.Preferences{Only: plan.DirectionUp, Classes: bpf}, false, reason.ClassesNone},
		{"not wanted", "linux", plan.Preferences{Classes: plan.ClassPreferences{Use: plan.ClassesOff}}, false, ""},
	} {
		facts, err := all.Assume(x.platform, "wan0", "lan0")
		if err != nil {
			t.Fatal(err)
		}
		facts.OthersMarks = []string{"table ip v: meta mark set ct mark", "ip rule: not from all fwmark 0xca6c lookup 51820"}
		p, err := plan.Make(plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond}, facts, x.ask)
		if err != nil {
			t.Errorf("%s: %v", x.name, err)
			continue
		}
		at := slices.IndexFunc(p.Warnings, func(w reason.Reason) bool { return strings.Contains(w.String(), facts.OthersMarks[1]) })
		if p.SetsMarks() || (p.Classes != nil) != x.classes || (at >= 0) != (x.warns != "") || at >= 0 && p.Warnings[at].Code != x.warns {
			t.Errorf("%s: sets marks: %v, classes %+v, warnings %v", x.name, p.SetsMarks(), p.Classes, p.Warnings)
		}
		if why, _ := p.Why("classes"); x.warns == reason.ClassesNone && (why.Why.Code != reason.OthersMarks || strings.Contains(p.Explain(), "iptables gives")) {
			t.Errorf("%s: explained as\n%s", x.name, p.Explain())
		}
		for _, l := range reason.Languages() {
			if at >= 0 && !strings.Contains(p.Warnings[at].Text(l, reason.Page), facts.OthersMarks[0]) {
				t.Errorf("%s: in %s: %s", x.name, l.Tag, p.Warnings[at].Text(l, reason.Page))
			}
		}
	}
}
