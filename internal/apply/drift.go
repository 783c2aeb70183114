package apply

import (
	"bytes"
	"context"
	"errors"

	"unbloat/internal/plan"
	"unbloat/internal/platform"
)

// A Drifter is a Backend that itself tells what was applied from what is there
// now: where the state that was wanted holds more than what must last, or where
// a device that is gone has to be told of.
type Drifter interface {
	// Drift says in words where now is not what was applied of p; nil if it is.
	Drift(p plan.Plan, now, applied platform.State) ([]string, error)
}

// Drift compares what is in force on wan, kept or waiting for confirmation, with
// what the router shows, and says the differences in words. It changes nothing.
// It returns nil if there are none, if nothing is in force, and while another
// process is at work there.
func (e *Engine) Drift(ctx context.Context, wan string) ([]string, error) {
	f, err := e.inForce(wan)
	if err != nil || f == nil {
		return nil, err
	}
	now, err := e.Backend.Observe(ctx, f.plan, f.wanted)
	if err != nil {
		return nil, err
	}
	diffs, err := e.drifted(ctx, f, now)
	if err != nil || len(diffs) == 0 {
		return nil, err
	}
	// Looking takes its time: what another process has changed meanwhile is no drift.
	if again, err := e.inForce(wan); err != nil || again == nil || again.id != f.id || !bytes.Equal(again.wanted, f.wanted) {
		return nil, err
	}
	return diffs, nil
}

// A force is what should be there.
type force struct {
	id             string
	plan           plan.Plan
	origin, wanted platform.State
}

// inForce returns what should be there on wan, nil if nothing should, or if that
// is just being changed.
func (e *Engine) inForce(wan string) (*force, error) {
	if j, err := e.Pending(wan); err != nil || j != nil {
		if err != nil || j.Phase != Armed {
			return nil, err
		}
		return &force{j.ID, j.Plan, j.Origin, j.Wanted}, nil
	}
	r, err := e.Record(wan)
	if err != nil || r == nil {
		return nil, err
	}
	return &force{r.ID, r.Plan, r.Origin, r.Wanted}, nil
}

// drifted compares what should be there with now. Where a platform's settings
// share their files with others', the plan is worked out again on what is there,
// so that what others have changed in them since is none of it.
func (e *Engine) drifted(ctx context.Context, f *force, now platform.State) ([]string, error) {
	if d, ok := e.Backend.(Drifter); ok {
		return d.Drift(f.plan, now, f.wanted)
	}
	wanted := f.wanted
	origin, err := e.Backend.Baseline(ctx, now, f.origin)
	if err != nil {
		return nil, err
	}
	again, err := e.Backend.Desire(ctx, f.plan, now, origin)
	switch {
	case err == nil:
		wanted = again
	case ctx.Err() != nil || errors.Is(err, platform.ErrUnreachable):
		return nil, err
	}
	_, diffs, err := e.Backend.Compare(now, wanted)
	return diffs, err
}
