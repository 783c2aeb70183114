package fake_test

import (
	"testing"

	"unbloat/internal/cure/platform/freebsd"
	"unbloat/testkit/conform"
	"unbloat/testkit/fake"
)

// TestMatrix applies the matrix of plans: rates, styles, classes and names of
// interfaces. dnctl and ipfw accept each command, all is read back equal, and
// revert leaves nothing.
func TestMatrix(t *testing.T) {
	all, err := conform.Matrix("freebsd")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		r := fake.NewFreeBSD()
		r.Interfaces = append(r.Interfaces, c.Plan.WAN)
		start := r.Dnctl.State()
		diffs, left, err := conform.Apply(t.Context(), &freebsd.Backend{Runner: r}, r, c, func() {})
		if err != nil || len(diffs)+len(left) > 0 {
			t.Fatalf("%s: %v; not as wanted: %q; left behind: %q", c.Name, err, diffs, left)
		}
		if end := r.Dnctl.State(); end != start {
			t.Fatalf("%s: afterwards it is not as before:\n%s\nbefore:\n%s", c.Name, end, start)
		}
	}
	t.Logf("%d plans", len(all))
}
