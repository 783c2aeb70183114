package apply_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/freebsd"
	"unbloat/testkit/fake"
	"unbloat/unit"
)

// A stuck runner's commands that change something never end.
type stuck struct {
	platform.Runner
	now atomic.Bool
}

func (s *stuck) Run(ctx context.Context, argv []string, stdin []byte) ([]byte, []byte, error) {
	if s.now.Load() && slices.Contains([]string{"dnctl", "ipfw", "tee", "mv", "rm"}, argv[0]) && !slices.Contains(argv, "show") && !slices.Contains(argv, "list") {
		<-ctx.Done()
		return nil, nil, ctx.Err()
	}
	return s.Runner.Run(ctx, argv, stdin)
}

// TestUndoEnds: an undo whose programs never end is given up, and says so; the
// journal stays, and the next process undoes the change.
func TestUndoEnds(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		router := fake.NewFreeBSD()
		before := router.Text()
		r := &stuck{Runner: router}
		e := &apply.Engine{Backend: &freebsd.Backend{Runner: r}, Runner: r, Dir: dir, Watchdog: silent{}}
		p, err := plan.Make(plan.Line{Down: 50 * unit.MbitPerSecond, Up: 10 * unit.MbitPerSecond}, freebsd.Language().Assume("igb0", ""), plan.Preferences{})
		if err != nil {
			t.Fatal(err)
		}
		tr, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Hour, Hold: true})
		if err != nil {
			t.Fatal(err)
		}
		r.now.Store(true)
		start := time.Now()
		err = tr.Revert(context.Background())
		if err == nil || !strings.Contains(err.Error(), "did not end within 2m0s") || !strings.Contains(err.Error(), "unbloat revert") {
			t.Errorf("%v", err)
		}
		if took := time.Since(start); took > 3*time.Minute {
			t.Errorf("it took %v", took)
		}
		tr.Close()
		r.now.Store(false)
		if j, err := e.Pending("igb0"); err != nil || j == nil {
			t.Fatalf("the journal is gone: %v", err)
		}
		if _, _, err := e.Revert(t.Context(), apply.Journal{WAN: "igb0"}); err != nil || router.Text() != before {
			t.Errorf("%v: undone, it is\n%s\nbefore:\n%s", err, router.Text(), before)
		}
	})
}

// silent is a watchdog that never acts.
type silent struct{}

func (silent) Arm(context.Context, *apply.Journal) error   { return nil }
func (silent) Renew(context.Context, *apply.Journal) error { return nil }
func (silent) Alive(context.Context, *apply.Journal) bool  { return true }
func (silent) Close(context.Context, *apply.Journal) error { return nil }
