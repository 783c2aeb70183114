package pfsensefake_test

import (
	"strings"
	"testing"

	"unbloat/internal/cure/platform/pfsense"
	"unbloat/testkit/await"
	"unbloat/testkit/conform"
	"unbloat/testkit/pfsensefake"
)

// TestMatrix applies the matrix of plans: rates, styles, classes and names of
// interfaces. Each must be accepted, read back equal, and leave nothing after
// revert.
func TestMatrix(t *testing.T) {
	await.NotShort(t)
	all, err := conform.Matrix("pfsense")
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range all {
		r := pfsensefake.New()
		r.Old = i%2 == 1 // both generations of pfSense
		r.Files[pfsense.Config] = strings.Replace(r.Files[pfsense.Config], "igb0", c.Plan.WAN, 1)
		r.Load()
		start := r.Dnctl.State() + r.Files[pfsense.Config]
		diffs, left, err := conform.Apply(t.Context(), &pfsense.Backend{Runner: r}, r, c, func() {})
		if err != nil || len(diffs)+len(left) > 0 || len(r.Log) > 0 {
			t.Fatalf("%s: %v; not as wanted: %q; left behind: %q; log: %q", c.Name, err, diffs, left, r.Log)
		}
		if end := r.Dnctl.State() + r.Files[pfsense.Config]; end != start {
			t.Fatalf("%s: afterwards it is not as before:\n%s\nbefore:\n%s", c.Name, end, start)
		}
	}
	t.Logf("%d plans", len(all))
}
