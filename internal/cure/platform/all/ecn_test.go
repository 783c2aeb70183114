package all_test

import (
	"regexp"
	"testing"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/all"
	"unbloat/unit"
)

// No platform's text rewrites more of the traffic class than its DSCP: what sets the whole byte
// would erase ECT(1) and CE, and with them what L4S and ECN say. CAKE's wash, nft's `dscp set` and
// sqm's squash leave the ECN field.
func TestECNUntouched(t *testing.T) {
	whole := regexp.MustCompile(`(?i)set[-_ ]tos|\btos set\b|--set-tos|\becn set\b|setdscp|ip6? tclass set|\bpedit\b`)
	seen := 0
	for _, name := range all.Names() {
		facts, err := all.Assume(name, "", "")
		if err != nil {
			t.Fatal(err)
		}
		for _, aqm := range []plan.AQM{"", plan.CAKE, plan.FQCoDel, plan.FIFO, plan.SFQ} {
			for _, use := range []string{"", plan.ClassesOn, plan.ClassesOff} {
				prefs := plan.Preferences{AQM: aqm}
				prefs.Classes.Use = use
				if use == plan.ClassesOn {
					prefs.Classes.DSCP = plan.DSCPPreference{WashUp: true, WashDown: true}
				}
				p, err := plan.Make(plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond}, facts, prefs)
				if err != nil {
					continue // the platform has not this
				}
				text, err := all.Text(p)
				if err != nil {
					t.Fatal(err)
				}
				seen++
				if m := whole.FindString(text); m != "" {
					t.Errorf("%s, %s, classes %q: %q in\n%s", name, p.AQM, use, m, text)
				}
			}
		}
	}
	if seen < 2*len(all.Names()) {
		t.Errorf("%d plans of %d platforms", seen, len(all.Names()))
	}
}
