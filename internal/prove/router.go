package prove

import (
	"context"
	"time"

	"unbloat/internal/apply"
	"unbloat/internal/plan"
	"unbloat/internal/platform"
)

// hold bounds how long a side may stay: should this process hang, the watchdog
// undoes everything then. If it dies, the watchdog undoes it at once.
const hold = 10 * time.Minute

// A Held is this machine as the proof sees it: one transaction, held open from
// the first Switch to Revert, in which sides are exchanged. A side without
// shaping is the router without unbloat, as it was before the first apply, not
// a shaper opened wide. It implements Router.
type Held struct {
	engine  apply.Engine
	backend *sideBackend
	scope   plan.Plan
	hold    time.Duration
	open    *apply.Transaction
}

// NewHeld returns a Router that works through the engine on the WAN. The sides
// must be those that Switch will be given; load is how long each stays.
func NewHeld(e *apply.Engine, wan string, sides [2]Side, load time.Duration) *Held {
	h := &Held{engine: *e, backend: &sideBackend{Backend: e.Backend}, scope: scope(wan, sides), hold: hold + 2*load}
	h.engine.Backend = h.backend
	return h
}

// Switch puts the side into effect, in place where the platform can, and reads
// it back. After an error, Revert leaves everything as before the first Switch.
func (h *Held) Switch(ctx context.Context, s Side) error {
	if h.open == nil {
		// The snapshot is taken with the scope of both sides, before either.
		h.backend.side = nil
		t, err := h.engine.Begin(ctx, h.scope, apply.Options{Confirm: h.hold, Hold: true})
		if err != nil {
			return err
		}
		h.open = t
	}
	h.backend.side = s.Plan
	if err := h.open.Retune(ctx, h.scope); err != nil {
		h.open = nil // it has been reverted as a whole
		return err
	}
	return h.open.Extend(h.hold)
}

// Revert undoes everything since the first Switch.
func (h *Held) Revert(ctx context.Context) error {
	if h.open == nil {
		return nil
	}
	t := h.open
	h.open = nil
	err := t.Revert(ctx)
	t.Close()
	return err
}

// scope returns a plan that touches what the two sides touch together, for the
// transaction's snapshot: what one of them changes, the other must find as it was.
func scope(wan string, sides [2]Side) plan.Plan {
	out := plan.Plan{Schema: plan.Schema, WAN: wan}
	for _, s := range sides {
		if s.Plan == nil {
			continue
		}
		offloads := append(out.Offloads, s.Plan.Offloads...)
		out = *s.Plan
		out.Offloads = offloads
	}
	return out
}

// A sideBackend desires the side that is to be shown, whatever plan the
// transaction was given for its scope.
type sideBackend struct {
	apply.Backend
	side *plan.Plan // nil: no shaping
}

// Desire implements apply.Backend.
func (b *sideBackend) Desire(ctx context.Context, _ plan.Plan, now, origin platform.State) (platform.State, error) {
	if b.side == nil {
		return b.Baseline(ctx, now, origin)
	}
	return b.Backend.Desire(ctx, *b.side, now, origin)
}
