package apply

import (
	"bytes"
	"context"
	"errors"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
)

// Drift compares what was applied on wan, confirmed or not, with the router's state,
// and returns the differences as text. It changes nothing. It returns nil if there
// are none, if nothing was applied, and while another process changes the WAN.
func (e *Engine) Drift(ctx context.Context, wan string) ([]string, error) {
	f, err := e.inForce(wan)
	if err != nil || f == nil {
		return nil, err
	}
	now, err := e.Backend.Observe(ctx, f.plan, f.wanted)
	if err == nil {
		now, err = e.asSettled(now, f.plan, e.following(f.plan))
	}
	if err != nil {
		return nil, err
	}
	diffs, err := e.drifted(ctx, f, now)
	if err != nil || len(diffs) == 0 {
		return nil, err
	}
	// Reading takes time: what another process has changed meanwhile is not drift.
	if again, err := e.inForce(wan); err != nil || again == nil || again.id != f.id || !bytes.Equal(again.wanted, f.wanted) {
		return nil, err
	}
	return diffs, nil
}

// A force is the change that is in force on a WAN.
type force struct {
	id             string
	plan           plan.Plan
	origin, wanted platform.State
}

// inForce returns the change that is in force on wan, or nil if there is none or it
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

// drifted compares the change in force with now. It computes the wanted state again
// from now: a platform's settings may share a file with other settings, and
// changes of those are not drift.
func (e *Engine) drifted(ctx context.Context, f *force, now platform.State) ([]string, error) {
	if diffs, err := e.Backend.Drift(f.plan, now, f.wanted); !errors.Is(err, errors.ErrUnsupported) {
		return diffs, err
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
