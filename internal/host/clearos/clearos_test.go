package clearos_test

import (
	"testing"

	"pgregory.net/rapid"

	"unbloat/internal/apply"
	"unbloat/internal/apply/conform"
	"unbloat/internal/host/clearos"
	"unbloat/internal/host/fake"
	"unbloat/internal/plan"
	"unbloat/unit"
)

func anyPlan(t *rapid.T, name string) plan.Plan {
	w := conform.AnyWishes(t, name, 10*unit.GbitPerSecond)
	if w.Only == "" {
		w.AQM = rapid.SampledFrom([]plan.AQM{"", plan.SFQ}).Draw(t, name+" aqm")
	}
	p, err := plan.Make(plan.Line{}, plan.Facts{Platform: plan.ClearOS, WAN: "wan", LAN: "lan", IFB: true, Offloads: []plan.Offload{}}, w)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestContract: the contract of every backend.
func TestContract(t *testing.T) {
	conform.Run(t, conform.Case{
		WAN: "wan",
		New: func() (conform.Router, apply.Backend) {
			c := fake.NewClearOS()
			return c, &clearos.Backend{Runner: c}
		},
		Plan: anyPlan,
	})
}
