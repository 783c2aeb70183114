package freebsd_test

import (
	"testing"

	"pgregory.net/rapid"

	"unbloat/internal/apply"
	"unbloat/internal/apply/conform"
	"unbloat/internal/host/fake"
	"unbloat/internal/host/freebsd"
	"unbloat/internal/plan"
)

func anyPlan(t *rapid.T, name string) plan.Plan {
	w := conform.AnyWishes(t, name, 4294967294, plan.FIFO)
	w.Style = rapid.SampledFrom([]plan.Style{"", plan.StyleSeed}).Draw(t, name+" style")
	p, err := plan.Make(plan.Line{}, plan.Facts{Platform: plan.FreeBSD, WAN: "igb0", LAN: "igb1"}, w)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestContract: the contract of every backend.
func TestContract(t *testing.T) {
	conform.Run(t, conform.Case{
		WAN: "igb0",
		New: func() (conform.Router, apply.Backend) {
			f := fake.NewFreeBSD()
			return f, &freebsd.Backend{Runner: f}
		},
		Plan: anyPlan,
	})
}
