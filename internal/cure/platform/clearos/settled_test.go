package clearos_test

import (
	"testing"

	mech "unbloat/internal/cure/lang/clearos"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/clearos"
	"unbloat/testkit/conform"
	"unbloat/testkit/fake"
	"unbloat/unit"
)

// TestUndoOfDamage: an unconfirmed change of a router that ran something else than
// its settings say is undone: the settings are as before, and the router runs what
// they say. The undo says what ran before.
func TestUndoOfDamage(t *testing.T) {
	of := func(down, up unit.Rate) plan.Plan {
		p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: clearos.Language(), WAN: "wan", LAN: "lan", IFB: true, Offloads: []plan.Offload{}},
			plan.Preferences{Down: plan.RatePreference{Rate: down * unit.MbitPerSecond}, Up: plan.RatePreference{Rate: up * unit.MbitPerSecond}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	fresh := fake.NewClearOS()
	for name, c := range map[string]struct {
		by       func(r *fake.ClearOS)
		asBefore bool // as before unbloat; otherwise as it was applied
		lost     string
	}{
		"the files are put back, and the firewall is not started": {func(r *fake.ClearOS) {
			for _, f := range []string{mech.QoSConf, mech.NetworkConf} {
				r.Files[f] = fresh.Files[f]
			}
			delete(r.Files, mech.EngineFile)
		}, true, "it does not run `what leaves wan is held to 8000000 bit/s by htb + fq_codel`"},
		"the ifb is deleted": {func(r *fake.ClearOS) {
			if _, errOut, err := r.Run(t.Context(), []string{"ip", "link", "del", "dev", "ifb4wan"}, nil); err != nil {
				t.Fatalf("%v: %s", err, errOut)
			}
		}, false, "is redirected to ifb4wan, which is gone`"},
		"the upload is no longer shaped": {func(r *fake.ClearOS) {
			if _, errOut, err := r.Run(t.Context(), []string{"tc", "qdisc", "del", "dev", "wan", "root"}, nil); err != nil {
				t.Fatalf("%v: %s", err, errOut)
			}
		}, false, "it runs `what leaves wan is held to 8000000 bit/s by htb + fq_codel`"},
	} {
		t.Run(name, func(t *testing.T) {
			router := conform.Case{WAN: "wan", New: func() (conform.Router, platform.Backend) {
				r := fake.NewClearOS()
				return r, &clearos.Backend{Runner: r}
			}}
			start, applied, undone, lost := router.AfterDamage(t, of(40, 8), of(20, 4), func(r conform.Router) { c.by(r.(*fake.ClearOS)) })
			want := applied
			if c.asBefore {
				want = start
			}
			conform.CheckUndone(t, undone, want, lost, c.lost)
		})
	}
}
