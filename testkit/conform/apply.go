package conform

import (
	"context"
	"fmt"

	"unbloat/internal/cure/platform"
)

// Apply applies a plan to a router, calls applied, and takes the plan back. It
// returns how the state that was read back differed from the wanted one
// (diffs), and what was left at the end: both are empty if the plan was
// accepted, stored and read back equal. The error is about a router that could
// not be read or a plan that was refused.
func Apply(ctx context.Context, b platform.Backend, r platform.Runner, c MatrixCase, applied func()) (diffs, left []string, err error) {
	fail := func(doing string, err error) ([]string, []string, error) {
		return nil, nil, fmt.Errorf("%s: %s: %w", c.Name, doing, err)
	}
	before, err := b.Observe(ctx, c.Plan, nil)
	if err != nil {
		return fail("read the router", err)
	}
	origin, err := b.Baseline(ctx, before, nil)
	if err != nil {
		return fail("work out the state without unbloat", err)
	}
	want, err := b.Desire(ctx, c.Plan, before, origin)
	if err != nil {
		return fail("make the state that the plan asks for", err)
	}
	if diffs, err = reach(ctx, b, r, c, want); err != nil || len(diffs) > 0 {
		return diffs, nil, err
	}
	applied()
	now, err := b.Observe(ctx, c.Plan, nil)
	if err != nil {
		return fail("read the router", err)
	}
	if origin, err = b.Baseline(ctx, now, before); err != nil {
		return fail("make the state without it", err)
	}
	left, err = reach(ctx, b, r, c, origin)
	return nil, left, err
}

// reach runs the steps to a state, and returns the differences that remain.
func reach(ctx context.Context, b platform.Backend, r platform.Runner, c MatrixCase, want platform.State) ([]string, error) {
	now, err := b.Observe(ctx, c.Plan, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: read the router: %w", c.Name, err)
	}
	steps, _, err := b.Compare(now, want)
	if err != nil {
		return nil, fmt.Errorf("%s: find the way: %w", c.Name, err)
	}
	for _, s := range steps {
		if _, errOut, err := r.Run(ctx, s.Argv, []byte(s.Stdin)); err != nil {
			return []string{fmt.Sprintf("%s: %v: %s", s, err, errOut)}, nil
		}
	}
	if now, err = b.Observe(ctx, c.Plan, nil); err != nil {
		return nil, fmt.Errorf("%s: read the router: %w", c.Name, err)
	}
	_, diffs, err := b.Compare(now, want)
	return diffs, err
}
