package openbsd_test

import (
	"testing"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/openbsd"
	"unbloat/testkit/conform"
	"unbloat/testkit/fake"
	"unbloat/testkit/pfctl"
	"unbloat/unit"
)

// TestUndoOfDamage: an unconfirmed change of a router that ran something else than
// its pf.conf says is undone: the files are as before, and pf has the queues of the
// files. The undo says which it had before.
func TestUndoOfDamage(t *testing.T) {
	for name, old := range map[string]bool{"today": false, "ALTQ": true} {
		language, grammar := openbsd.Language(), pfctl.Today
		if old {
			language, grammar = openbsd.LanguageAltq(), pfctl.ALTQWithMatch
		}
		of := func(down, up unit.Rate) plan.Plan {
			p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: language, WAN: "em0", LAN: "em1"},
				plan.Preferences{Down: plan.RatePreference{Rate: down * unit.MbitPerSecond}, Up: plan.RatePreference{Rate: up * unit.MbitPerSecond}})
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		router := conform.Case{WAN: "em0", New: func() (conform.Router, platform.Backend) {
			r := fake.NewOpenBSD(grammar)
			return r, &openbsd.Backend{Runner: r, Altq: old}
		}}
		fresh := fake.NewOpenBSD(grammar).Files[openbsd.PfConf]
		t.Run(name, func(t *testing.T) {
			unloaded := func(r conform.Router) { r.(*fake.OpenBSD).Files[openbsd.PfConf] = fresh }
			_, _, loaded, _ := router.AfterDamage(t, of(40, 8), of(20, 4), func(r conform.Router) {
				unloaded(r)
				if _, errOut, err := r.Run(t.Context(), []string{"pfctl", "-f", openbsd.PfConf}, nil); err != nil {
					t.Fatalf("%v: %s", err, errOut)
				}
			})
			_, _, undone, lost := router.AfterDamage(t, of(40, 8), of(20, 4), unloaded)
			conform.CheckUndone(t, undone, loaded, lost, "on em0 ")
		})
	}
}
