package prove

import (
	"context"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
)

// hold limits how long a side may stay: if this process hangs, the watchdog undoes
// everything after it. If the process ends, the watchdog undoes it at once.
const hold = 10 * time.Minute

// A Held switches between the sides in one transaction, which is open from the first
// Switch to Revert. A side without shaping is the router's state before unbloat, not
// a shaper at a very high rate. It implements Router.
type Held struct {
	engine  apply.Engine
	backend *sideBackend
	scope   plan.Plan
	hold    time.Duration
	open    *apply.Transaction
}

// NewHeld returns a Router that uses the engine on the WAN. The sides must be those
// of later calls of Switch; load is how long each stays.
func NewHeld(e *apply.Engine, wan string, sides [2]Side, load time.Duration) *Held {
	h := &Held{engine: *e, backend: &sideBackend{Backend: e.Backend}, scope: scope(wan, sides), hold: hold + 2*load}
	h.engine.Backend = h.backend
	return h
}

// Switch applies the side, in place where the platform can, and reads it back. After
// an error, Revert restores the state before the first Switch.
func (h *Held) Switch(ctx context.Context, s Side) error {
	if h.open == nil {
		// The snapshot covers both sides.
		h.backend.side = nil
		t, err := h.engine.Begin(ctx, h.scope, apply.Options{Confirm: h.hold, Hold: true})
		if err != nil {
			return err
		}
		h.open = t
	}
	h.backend.side = s.Plan
	if err := h.open.Retune(ctx, h.scope); err != nil {
		h.open = nil // the whole transaction has been reverted
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

// scope returns a plan that covers everything that the two sides change, for the
// transaction's snapshot: what one side changes is restored for the other.
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

// A sideBackend wants the state of the present side; the transaction's own plan is
// only the scope.
type sideBackend struct {
	platform.Backend
	side *plan.Plan // nil: no shaping
}

// Flows returns none: the load itself tells whether connections go on.
func (b *sideBackend) Flows(context.Context) ([]platform.Flow, error) { return nil, nil }

// Desire returns the state of the present side.
func (b *sideBackend) Desire(ctx context.Context, _ plan.Plan, now, origin platform.State) (platform.State, error) {
	if b.side == nil {
		return b.Baseline(ctx, now, origin)
	}
	return b.Backend.Desire(ctx, *b.side, now, origin)
}
