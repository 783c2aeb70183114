package openwrt_test

import (
	"testing"

	"pgregory.net/rapid"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/openwrt"
	"unbloat/testkit/conform"
	"unbloat/testkit/fake"
	"unbloat/unit"
)

func anyPlan(t *rapid.T, name string) plan.Plan {
	p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: openwrt.Language(), WAN: "wan", LAN: "lan", IFB: true}, conform.AnyPreferences(t, name, 10*unit.GbitPerSecond, plan.FQCoDel))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestContract: the contract of every backend.
func TestContract(t *testing.T) {
	conform.Run(t, conform.Case{
		WAN: "wan",
		New: func() (conform.Router, platform.Backend) {
			o := fake.NewOpenWrt()
			return o, &openwrt.Backend{Runner: o}
		},
		Plan: anyPlan,
	})
}
