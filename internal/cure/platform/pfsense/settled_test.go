package pfsense_test

import (
	"testing"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/pfsense"
	"unbloat/testkit/conform"
	"unbloat/testkit/pfsensefake"
	"unbloat/unit"
)

// TestUndoOfDamage: an unconfirmed change of a router that ran something else than
// its config.xml says is undone: config.xml is as before, and pfSense runs what it
// says. The undo says what ran before.
func TestUndoOfDamage(t *testing.T) {
	rates := func(down, up unit.Rate) plan.Plan {
		return make5(t, plan.Preferences{Down: plan.RatePreference{Rate: down * unit.MbitPerSecond}, Up: plan.RatePreference{Rate: up * unit.MbitPerSecond}})
	}
	config := pfsensefake.New().Files[pfsense.Config]
	for name, c := range map[string]struct {
		by       func(r *pfsensefake.Router)
		asBefore bool // as before unbloat; otherwise as it was applied
		lost     string
	}{
		"config.xml is put back, and not loaded": {func(r *pfsensefake.Router) { r.Files[pfsense.Config] = config }, true, "it does not run `kernel: pipe 7001"},
		"the kernel has another rate": {func(r *pfsensefake.Router) {
			if _, errOut, err := r.Run(t.Context(), []string{"dnctl", "pipe", "7001", "config", "bw", "3Mb"}, nil); err != nil {
				t.Fatalf("%v: %s", err, errOut)
			}
		}, false, "it does not run `kernel: pipe 7001"},
	} {
		t.Run(name, func(t *testing.T) {
			router := conform.Case{WAN: "igb0", New: func() (conform.Router, platform.Backend) {
				r := pfsensefake.New()
				return r, &pfsense.Backend{Runner: r}
			}}
			start, applied, undone, lost := router.AfterDamage(t, rates(40, 8), rates(20, 4), func(r conform.Router) { c.by(r.(*pfsensefake.Router)) })
			want := applied
			if c.asBefore {
				want = start
			}
			conform.CheckUndone(t, undone, want, lost, c.lost)
		})
	}
}
