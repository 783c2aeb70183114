package platform_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/all"
	"unbloat/unit"
)

// A resident is a minimal program that keeps a WAN in its wanted state: it
// knows a driver's backend and a Runner, but no platform.
type resident struct {
	backend platform.Backend
	run     platform.Runner
	wanted  platform.State
	plan    plan.Plan
}

// want sets the plan to keep from now on.
func (r *resident) want(ctx context.Context, p plan.Plan, origin platform.State) error {
	now, err := r.backend.Observe(ctx, p, r.wanted)
	if err != nil {
		return err
	}
	wanted, err := r.backend.Desire(ctx, p, now, origin)
	if err == nil {
		r.plan, r.wanted = p, wanted
	}
	return err
}

// reconcile reads the state and corrects what differs. It returns the number of
// commands.
func (r *resident) reconcile(ctx context.Context) (int, error) {
	now, err := r.backend.Observe(ctx, r.plan, r.wanted)
	if err != nil {
		return 0, err
	}
	steps, _, err := r.backend.Compare(now, r.wanted)
	if err != nil {
		return 0, err
	}
	for _, s := range steps {
		if _, said, err := r.run.Run(ctx, s.Argv, []byte(s.Stdin)); err != nil {
			return 0, r.backend.Explain(fmt.Errorf("%s: %w: %s", s, err, said))
		}
	}
	if now, err = r.backend.Observe(ctx, r.plan, r.wanted); err != nil {
		return 0, err
	}
	if _, differences, err := r.backend.Compare(now, r.wanted); err != nil || len(differences) > 0 {
		return 0, fmt.Errorf("after %d commands it is not as it is wanted: %v %q", len(steps), err, differences)
	}
	return len(steps), nil
}

// disturb changes the router behind the resident's back: it begins to set other
// rates or to remove the shaping, skips commands, and stops anywhere.
func (r *resident) disturb(ctx context.Context, random *rand.Rand, origin platform.State, other plan.Plan) (string, error) {
	now, err := r.backend.Observe(ctx, r.plan, r.wanted)
	if err != nil {
		return "", err
	}
	what, to := "other rates", platform.State(nil)
	if random.IntN(2) == 0 {
		what = "no shaping"
		to, err = r.backend.Baseline(ctx, now, origin)
	} else {
		to, err = r.backend.Desire(ctx, other, now, origin)
	}
	if err != nil {
		return what, err
	}
	steps, _, err := r.backend.Compare(now, to)
	if err != nil {
		return what, err
	}
	ran := 0
	for _, s := range steps[:random.IntN(len(steps)+1)] {
		if random.IntN(4) > 0 {
			_, _, _ = r.run.Run(ctx, s.Argv, []byte(s.Stdin)) // some fail because an earlier one was skipped
			ran++
		}
	}
	return fmt.Sprintf("%s, %d of %d commands", what, ran, len(steps)), nil
}

// lanOf is the LAN of a stand-in with an interface of its own for it; "": the usual one.
func lanOf(platform string) string {
	if platform == "linux" || platform == "openwrt" {
		return "lan"
	}
	return ""
}

// TestReconcile: on every platform a loop of Observe, Compare and Apply
// restores the wanted state after any disturbance, and runs no command if
// nothing differs. The seed is printed; UNBLOAT_SEED gives another.
func TestReconcile(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("UNBLOAT_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("UNBLOAT_SEED=%d", seed)
	for _, d := range all.Drivers() {
		t.Run(d.Name(), func(t *testing.T) {
			ctx, random := t.Context(), rand.New(rand.NewPCG(seed, 1))
			router, wan := standIn(t, d.Name())
			backend, err := d.Backend(platform.Options{Runner: router, API: d.Scheme != ""})
			if err != nil {
				t.Fatal(err)
			}
			anyPlan := func() plan.Plan {
				rate := func() plan.RatePreference {
					return plan.RatePreference{Rate: unit.Rate(1+random.IntN(100)) * unit.MbitPerSecond}
				}
				p, err := plan.Make(plan.Line{}, d.Language.Assume(wan, lanOf(d.Name())), plan.Preferences{Down: rate(), Up: rate()})
				if err != nil {
					t.Fatal(err)
				}
				return p
			}
			r := &resident{backend: backend, run: router}
			p := anyPlan()
			origin, err := backend.Observe(ctx, p, nil)
			if err != nil {
				t.Fatal(err)
			}
			for round := range 12 {
				said := "other rates are wanted"
				if round%4 == 0 {
					err = r.want(ctx, anyPlan(), origin)
				} else {
					said, err = r.disturb(ctx, random, origin, anyPlan())
				}
				if err != nil {
					t.Fatalf("round %d: %s: %v", round, said, err)
				}
				if _, err := r.reconcile(ctx); err != nil {
					t.Fatalf("round %d: %s: %v", round, said, err)
				}
				if n, err := r.reconcile(ctx); n != 0 || err != nil {
					t.Fatalf("round %d: %s: once more takes %d commands: %v", round, said, n, err)
				}
			}
		})
	}
}
