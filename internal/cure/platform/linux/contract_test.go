package linux_test

import (
	"testing"

	"pgregory.net/rapid"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux"
	"unbloat/testkit/conform"
	"unbloat/testkit/fake"
	"unbloat/unit"
)

// TestContract checks the contract of every backend. OpenWrt without
// sqm-scripts (--own-tc) uses this backend too.
func TestContract(t *testing.T) {
	conform.Run(t, conform.Case{
		WAN: "wan",
		New: func() (conform.Router, platform.Backend) {
			f := fake.NewLinux()
			f.WithDnsmasq()
			return f, &linux.Backend{Runner: f}
		},
		Plan: func(t *rapid.T, name string) plan.Plan {
			w := conform.AnyPreferences(t, name, 10*unit.GbitPerSecond, plan.FQCoDel, plan.FIFO)
			w.Side = rapid.SampledFrom([]plan.Side{plan.SideIFB, plan.SideLAN}).Draw(t, name+" side")
			switch rapid.IntRange(0, 4).Draw(t, name+" classes") {
			case 4:
				w.FlowTable, w.Side = true, plan.SideLAN
			case 0:
				w.Classes.Use = plan.ClassesOn
			case 1:
				w.Classes.Rules = []plan.Rule{{Class: plan.Voice, Domain: []string{rapid.SampledFrom([]string{"zoom.us", "meet.example"}).Draw(t, name+" name")}}}
			}
			p, err := plan.Make(plan.Line{}, plan.Capabilities{Language: linux.Language(), WAN: "wan", LAN: "lan", IFB: true}, w)
			if err != nil {
				t.Fatal(err)
			}
			return p
		},
	})
}
