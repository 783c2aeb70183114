package apply

import (
	"context"
	"errors"
	"fmt"

	"unbloat/internal/plan"
	"unbloat/internal/platform"
)

// Retune gives the running shapers of p, which is in place, the rates of to, if they
// have others, and reads them back. What a reboot loads stays, and nothing is
// written: an undo, and the next process, know only p. If it returns an error, the
// shapers may have either rates; MendAt puts that right. The backend is a
// platform.Retuner.
func (e *Engine) Retune(ctx context.Context, p, to plan.Plan) error {
	r, ok := e.Backend.(platform.Retuner)
	if !ok {
		return fmt.Errorf("change the rates of %s: %w", p.WAN, errors.ErrUnsupported)
	}
	if err := checkName(p.WAN); err != nil {
		return err
	}
	lock, err := e.lock(p.WAN)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	if err := e.recoverStale(ctx, p.WAN); err != nil {
		return err
	}
	missing := func() ([]platform.Step, error) {
		now, err := e.Backend.Observe(ctx, p, nil)
		if err != nil {
			return nil, err
		}
		return r.Retune(now, p, to)
	}
	steps, err := missing()
	if err != nil || len(steps) == 0 {
		return err
	}
	for _, s := range steps {
		if e.OnStep != nil {
			e.OnStep(s)
		}
		if err := runStep(ctx, e.Runner, s); err != nil {
			return e.Backend.Explain(err)
		}
	}
	if steps, err = missing(); err != nil {
		return err
	}
	if len(steps) > 0 {
		return &VerifyError{WAN: p.WAN, Differences: []string{fmt.Sprintf("the shapers do not have %s down and %s up", to.DownBps, to.UpBps)}}
	}
	return nil
}

// MendAt is Mend for a router whose running shapers were given the rates of is, with
// Retune. They stay as long as nothing else has to be mended; mending may give them
// those of p.
func (e *Engine) MendAt(ctx context.Context, p, is plan.Plan) (Mended, error) {
	return e.mend(ctx, p, &is)
}

// asPlanned returns an observed state as if the shapers that have the rates of
// running had those of p.
func (e *Engine) asPlanned(now platform.State, p plan.Plan, running *plan.Plan) (platform.State, error) {
	r, ok := e.Backend.(platform.Retuner)
	if running == nil || !ok {
		return now, nil
	}
	return r.Retuned(now, *running, p)
}
