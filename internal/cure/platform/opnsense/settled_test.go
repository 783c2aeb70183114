package opnsense_test

import (
	"context"
	"testing"

	"unbloat/internal/cure/lang/dummynet"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/opnsense"
	"unbloat/testkit/conform"
	"unbloat/unit"
)

// TestUndoOfDamage: an unconfirmed change of a router that ran something else than
// what is saved is undone: what is saved is as before, and that runs. The undo says
// what ran before.
func TestUndoOfDamage(t *testing.T) {
	of := func(down, up unit.Rate) plan.Plan {
		p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: opnsense.Language(), WAN: "wan", LAN: "lan"},
			plan.Preferences{Down: plan.RatePreference{Rate: down * unit.MbitPerSecond}, Up: plan.RatePreference{Rate: up * unit.MbitPerSecond}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	post := func(r router, path, body string) {
		if _, errOut, err := r.Run(context.Background(), []string{"POST", path}, []byte(body)); err != nil {
			t.Fatalf("%s: %v: %s", path, err, errOut)
		}
	}
	const reconfigure = "/api/trafficshaper/service/reconfigure"
	rule, pipe := dummynet.UUID("rule up"), dummynet.UUID("pipe up")
	for name, c := range map[string]struct {
		by   func(r router)
		lost string
	}{
		"a rule is deleted, and not applied": {func(r router) {
			post(r, "/api/trafficshaper/settings/delRule/"+rule, "{}")
		}, "it does not run `rule " + rule + "`"},
		"a rate is saved, and not applied": {func(r router) {
			post(r, "/api/trafficshaper/settings/setPipe/"+pipe, `{"pipe":{"bandwidth":"3"}}`)
		}, "it does not run `pipe " + pipe + " bw 8.000 Mbit/s`"},
		"dummynet is empty": {func(r router) { r.Forget() }, "it runs `rule " + rule + "`"},
	} {
		t.Run(name, func(t *testing.T) {
			var loaded string // what the damaged router is once it has loaded what is saved
			shaper := conform.Case{WAN: "wan", New: func() (conform.Router, platform.Backend) {
				r := newRouter(t)
				return r, &opnsense.Backend{Runner: r}
			}}
			_, _, loaded, _ = shaper.AfterDamage(t, of(40, 8), of(20, 4), func(r conform.Router) {
				c.by(r.(router))
				post(r.(router), reconfigure, "{}")
			})
			_, _, undone, lost := shaper.AfterDamage(t, of(40, 8), of(20, 4), func(r conform.Router) { c.by(r.(router)) })
			conform.CheckUndone(t, undone, loaded, lost, c.lost)
		})
	}
}
