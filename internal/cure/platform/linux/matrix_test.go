package linux_test

import (
	"testing"

	"unbloat/internal/cure/platform/linux"
	"unbloat/testkit/await"
	"unbloat/testkit/conform"
	"unbloat/testkit/linuxfake"
)

// TestMatrix applies the matrix of plans: rates, styles, classes and names of
// interfaces. The fake kernel accepts each one, it is read back equal, and
// revert leaves nothing.
func TestMatrix(t *testing.T) {
	await.NotShort(t)
	cases, err := conform.Matrix(linux.Name)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		k := linuxfake.New()
		for _, d := range k.Devices {
			switch d.Name {
			case "wan":
				d.Name = c.Plan.WAN
			case "lan":
				d.Name = c.Plan.LAN
			}
		}
		start := k.Text()
		diffs, left, err := conform.Apply(t.Context(), &linux.Backend{Runner: k}, k, c, func() {})
		if err != nil || len(diffs)+len(left) > 0 {
			t.Fatalf("%s: %v; not as wanted: %q; left behind: %q", c.Name, err, diffs, left)
		}
		if end := k.Text(); end != start {
			t.Fatalf("%s: afterwards it is not as before:\n%s\nbefore:\n%s", c.Name, end, start)
		}
	}
	t.Logf("%d plans", len(cases))
}
