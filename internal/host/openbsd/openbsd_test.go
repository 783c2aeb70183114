package openbsd_test

import (
	"testing"

	"pgregory.net/rapid"

	"unbloat/internal/apply"
	"unbloat/internal/apply/conform"
	"unbloat/internal/host/fake"
	"unbloat/internal/host/openbsd"
	"unbloat/internal/plan"
	"unbloat/unit"
)

// TestContract: the contract of every backend, for both grammars.
func TestContract(t *testing.T) {
	for _, platform := range []string{plan.OpenBSD, plan.OpenBSDAltq} {
		t.Run(platform, func(t *testing.T) {
			old, most := platform == plan.OpenBSDAltq, 10*unit.GbitPerSecond
			if old {
				most = 4294967295 // 32 bits
			}
			conform.Run(t, conform.Case{
				WAN: "em0",
				New: func() (conform.Router, apply.Backend) {
					o := fake.NewOpenBSD(old)
					return o, &openbsd.Backend{Runner: o, Altq: old}
				},
				Plan: func(t *rapid.T, name string) plan.Plan {
					wishes := conform.AnyWishes(t, name, most, plan.FIFO)
					if rapid.Bool().Draw(t, name+" classes") {
						wishes.Classes.Rules = []plan.Rule{{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 19302, To: 19309}}}}
					}
					p, err := plan.Make(plan.Line{}, plan.Facts{Platform: platform, WAN: "em0", LAN: rapid.SampledFrom([]string{"em1", "vlan100"}).Draw(t, name+" lan")}, wishes)
					if err != nil {
						t.Fatal(err)
					}
					return p
				},
			})
		})
	}
}
