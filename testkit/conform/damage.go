package conform

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
)

// AfterDamage applies a and keeps it, does the damage, applies b, which nobody
// confirms, and undoes b. It returns what the router was at the start, with a, and
// after the undo, and what the undo could not bring back. The undo is tried first on
// a router on which no command has an effect: it must fail then.
func (c Case) AfterDamage(t *testing.T, a, b plan.Plan, damage func(Router)) (start, applied, undone string, lost []string) {
	t.Helper()
	e, r := c.engine(t)
	defer os.RemoveAll(e.Dir)
	start = r.Text()
	begin(t, e, a)
	applied = r.Text()
	damage(r)
	tr, err := e.Begin(t.Context(), b, apply.Options{Confirm: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	tr.Close()
	e.Runner = deaf{}
	if did, _, err := e.Revert(t.Context(), apply.Journal{WAN: c.WAN}); err == nil {
		t.Fatalf("no command has an effect, and it says that it is undone: %+v", did)
	}
	if j, err := e.Pending(c.WAN); err != nil || j == nil {
		t.Fatalf("the undo failed, and nothing is left to be undone: %v", err)
	}
	e.Runner = r
	did, _, err := e.Revert(t.Context(), apply.Journal{WAN: c.WAN})
	if err != nil {
		t.Fatal(err)
	}
	if j, err := e.Pending(c.WAN); err != nil || j != nil {
		t.Fatalf("it is undone, and something is left to be undone: %v", err)
	}
	return start, applied, r.Text(), did.Lost
}

// CheckUndone compares what a router is after an undo with what it is to be, and
// looks for a text among what the undo says that it could not bring back.
func CheckUndone(t *testing.T, undone, want string, lost []string, says string) {
	t.Helper()
	if undone != want {
		t.Errorf("it is\n%s\nand not\n%s", undone, want)
	}
	if !strings.Contains(strings.Join(lost, "\n"), says) {
		t.Errorf("%q, want %q", lost, says)
	}
}

// deaf is a router on which every command succeeds and has no effect.
type deaf struct{}

func (deaf) Run(context.Context, []string, []byte) (stdout, stderr []byte, err error) {
	return nil, nil, nil
}
