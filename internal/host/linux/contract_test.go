package linux_test

import (
	"testing"

	"pgregory.net/rapid"

	"unbloat/internal/apply"
	"unbloat/internal/apply/conform"
	"unbloat/internal/host/fake"
	"unbloat/internal/host/linux"
	"unbloat/internal/plan"
	"unbloat/unit"
)

// TestContract: the contract of every backend. OpenWrt without sqm-scripts
// (--own-tc) is this one.
func TestContract(t *testing.T) {
	conform.Run(t, conform.Case{
		WAN: "wan",
		New: func() (conform.Router, apply.Backend) {
			f := fake.NewLinux()
			return f, &linux.Backend{Runner: f}
		},
		Plan: func(t *rapid.T, name string) plan.Plan {
			w := conform.AnyWishes(t, name, 10*unit.GbitPerSecond, plan.FQCoDel, plan.FIFO)
			w.Side = rapid.SampledFrom([]plan.Side{plan.SideIFB, plan.SideLAN}).Draw(t, name+" side")
			p, err := plan.Make(plan.Line{}, plan.Facts{Platform: plan.Linux, WAN: "wan", LAN: "lan", IFB: true}, w)
			if err != nil {
				t.Fatal(err)
			}
			return p
		},
	})
}
