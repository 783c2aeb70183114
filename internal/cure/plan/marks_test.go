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

// Where other rules take the bits of marks, a plan sets none: with a BPF program it never
// does, and without one rules that name what arrives at an ifb are left out. The
// plan names those rules in its reasons and its warnings, in each language.
func TestOthersMarks(t *testing.T) {
	ruled := plan.ClassPreferences{Rules: []plan.Rule{{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 5060, To: 5061}}}}}
	for _, x := range []struct {
		name, platform, without string
		ask                     plan.Preferences
		classes                 bool
		warns                   reason.Code
	}{
		{"by the program", "linux", "", plan.Preferences{}, true, ""},
		{"by the program, and a rule", "linux", "", plan.Preferences{Classes: ruled}, true, ""},
		{"a rule", "linux", "no cls_bpf", plan.Preferences{Classes: ruled}, false, reason.ClassesNone},
		{"a rule behind HTB", "linux", "no cls_bpf", plan.Preferences{AQM: plan.FQCoDel, Classes: ruled}, false, reason.ClassesNone},
		{"a rule on OpenWrt", "openwrt", "no cls_bpf", plan.Preferences{Classes: ruled}, false, reason.ClassesNone},
		{"a rule on the LAN's side", "linux", "no cls_bpf", plan.Preferences{Side: plan.SideLAN, Classes: ruled}, true, ""},
		{"a rule of the upload", "linux", "", plan.Preferences{Only: plan.DirectionUp, Classes: ruled}, true, ""},
		{"not wanted", "linux", "", plan.Preferences{Classes: plan.ClassPreferences{Use: plan.ClassesOff}}, false, ""},
	} {
		capabilities, err := all.Assume(x.platform, "wan0", "lan0")
		if err != nil {
			t.Fatal(err)
		}
		capabilities.NoBPF = x.without
		capabilities.OthersMarks = []string{"table ip v: meta mark set ct mark", "ip rule: not from all fwmark 0xca6c lookup 51820"}
		p, err := plan.Make(plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond}, capabilities, x.ask)
		if err != nil {
			t.Errorf("%s: %v", x.name, err)
			continue
		}
		at := slices.IndexFunc(p.Warnings, func(w reason.Reason) bool { return strings.Contains(w.String(), capabilities.OthersMarks[1]) })
		if p.SetsMarks() || (p.Classes != nil) != x.classes || (at >= 0) != (x.warns != "") || at >= 0 && p.Warnings[at].Code != x.warns {
			t.Errorf("%s: sets marks: %v, classes %+v, warnings %v", x.name, p.SetsMarks(), p.Classes, p.Warnings)
		}
		if why, _ := p.Why("classes"); x.warns == reason.ClassesNone && (why.Why.Code != reason.OthersMarks || strings.Contains(p.Explain(), "iptables gives")) {
			t.Errorf("%s: explained as\n%s", x.name, p.Explain())
		}
		for _, l := range reason.Languages() {
			if at >= 0 && !strings.Contains(p.Warnings[at].Text(l, reason.Page), capabilities.OthersMarks[0]) {
				t.Errorf("%s: in %s: %s", x.name, l.Tag, p.Warnings[at].Text(l, reason.Page))
			}
		}
	}
}
