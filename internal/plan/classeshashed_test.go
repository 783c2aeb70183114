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

// Where iptables gives classes by behaviour, a plan has them on request, shapes the
// download at the LAN for them, and says that they need no daemon and what they lack.
func TestClassesByHashes(t *testing.T) {
	make := func(lan string, w plan.Preferences) plan.Plan {
		t.Helper()
		facts, err := all.Assume("clearos", "ppp0", lan)
		if err != nil {
			t.Fatal(err)
		}
		if lan == "" {
			facts.LAN = ""
		}
		p, err := plan.Make(plan.Line{Down: 25 * unit.MbitPerSecond, Up: 2 * unit.MbitPerSecond}, facts, w)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	says := func(p plan.Plan, c reason.Code) bool {
		return slices.ContainsFunc(p.Warnings, func(w reason.Reason) bool { return w.Code == c })
	}
	on := plan.ClassPreferences{Use: plan.ClassesOn}
	p := make("eth1", plan.Preferences{Classes: on})
	if !p.ByBehaviour() || p.Classes.Up == nil || p.Classes.Down == nil || p.Down.Device != "eth1" || p.Classes.Behaviour.Acks != 0 ||
		!strings.Contains(p.Explain(), "they need no daemon") || !says(p, reason.ClassesHashedLack) || says(p, reason.ClassesNeedDaemon) {
		t.Errorf("with a LAN:\n%s", p.Explain())
	}
	for name, p := range map[string]plan.Plan{"no LAN": make("", plan.Preferences{Classes: on}), "an ifb": make("eth1", plan.Preferences{Classes: on, Side: plan.SideIFB})} {
		if !p.ByBehaviour() || p.Classes.Up == nil || p.Classes.Down != nil || p.Down.IngressOf != "ppp0" || !says(p, reason.ClassesHashedIFB) {
			t.Errorf("%s:\n%s", name, p.Explain())
		}
	}
	if p := make("eth1", plan.Preferences{}); p.Classes != nil || p.Down.IngressOf != "ppp0" || !strings.Contains(p.Explain(), "59 % of their packets") {
		t.Errorf("unasked:\n%s", p.Explain())
	}
	on.Rules = []plan.Rule{
		{Class: plan.Bulk, Home: []string{"02:00:00:00:00:01"}}, {Class: plan.Bulk, Domain: []string{"example.org"}}, {Class: plan.Bulk, Far: []string{"2001:db8::1"}},
		{Class: plan.Voice, DSCP: []string{"ef"}}, {Class: plan.Bulk, From: 1 << 20}, {Class: plan.Bulk, Home: []string{"192.168.1.7"}, Direction: plan.DirectionDown},
	}
	if p := make("eth1", plan.Preferences{Classes: on}); len(p.Classes.Rules) != 3 || p.Classes.Rules[0].DSCP == nil || !p.ByBehaviour() {
		t.Errorf("of the rules it keeps %v", p.Classes.Rules)
	}
}
