package apply

import (
	"context"
	"errors"
	"fmt"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/unit"
)

// Rates are the rates of the shapers on one WAN. The settled ones were asked for, put in
// place and read back: they are what the WAN's Record, an undo, a reboot and the next
// process know. The running ones are in the kernel now; they differ while a line is
// followed, and only this process knows them. Where a platform can't keep them apart, the
// Record has the running ones. Engines of the same WAN share its Rates. They are for one
// goroutine.
type Rates struct {
	settled *plan.Plan // nil: nothing was put in place yet
	running *plan.Plan // nil: as settled
	record  string     // ID of the Record: under another, somebody else has changed the WAN
}

// Settled returns the plan with the settled rates; nil if nothing was put in place yet.
func (r *Rates) Settled() *plan.Plan { return r.settled }

// Running returns the plan with the running rates; nil if nothing was put in place yet.
func (r *Rates) Running() *plan.Plan {
	if r.running != nil {
		return r.running
	}
	return r.settled
}

// Record returns the ID of the Record of the settled rates, as these engines wrote or found
// it; "" if nothing was put in place yet.
func (r *Rates) Record() string { return r.record }

// Forget says that the running rates are of no account any more: what is there now is
// somebody else's, or is for another plan. The next Mend gives the settled ones.
func (r *Rates) Forget() { r.running = nil }

// at returns a plan with other rates, and nothing else.
func at(p plan.Plan, rates [2]unit.Rate) plan.Plan {
	down, up := *p.Down, *p.Up
	down.Rate, up.Rate = rates[0], rates[1]
	p.DownBps, p.UpBps, p.Down, p.Up = rates[0], rates[1], &down, &up
	return p
}

// following returns p with the running rates; nil if they are p's.
func (e *Engine) following(p plan.Plan) *plan.Plan {
	r := e.Rates
	if r == nil || r.running == nil || p.Down == nil || p.Up == nil {
		return nil
	}
	if id, err := e.RecordID(p.WAN); err != nil || id != r.record {
		return nil
	}
	q := at(p, [2]unit.Rate{r.running.DownBps, r.running.UpBps})
	return &q
}

// apart reports whether the running shapers of p can have other rates than are settled.
func (e *Engine) apart(p plan.Plan) bool {
	_, err := e.Backend.Retune(nil, p, p)
	return !errors.Is(err, errors.ErrUnsupported)
}

// Retune gives the running shapers other rates: down, up. What is settled stays, so
// nothing is written. Without set they are changed by commands and read back; where a
// platform can't keep the rates apart, the whole plan is applied. With set the caller
// changes each interface whose rate is another. After an error the shapers may have
// either rates; Mend puts that right.
func (e *Engine) Retune(ctx context.Context, rates [2]unit.Rate, set func(device string, rate unit.Rate) error) error {
	r := e.Rates
	if r == nil || r.settled == nil || r.settled.Down == nil || r.settled.Up == nil {
		return errors.New("change the rates of a line: no plan that shapes both its directions is in place")
	}
	p, to := *r.settled, at(*r.settled, rates)
	if set != nil {
		is := r.Running()
		var errs []error
		for d, x := range [2]struct{ is, want *plan.Shaper }{{is.Down, to.Down}, {is.Up, to.Up}} {
			if x.is.Rate == x.want.Rate {
				continue
			}
			if err := set(x.want.Device, x.want.Rate); err != nil {
				errs, rates[d] = append(errs, err), x.is.Rate
			}
		}
		to = at(p, rates)
		r.running = &to
		return errors.Join(errs...)
	}
	if id, err := e.RecordID(p.WAN); err != nil || id != r.record {
		return errors.Join(fmt.Errorf("change the rates of %s: somebody else has changed it", p.WAN), err)
	}
	if !e.apart(p) {
		_, err := e.put(ctx, p, &to)
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
	if err := e.retune(ctx, p, to, nil); err != nil {
		return err
	}
	r.running = &to
	return nil
}

// Settle gives the running shapers the settled rates again, if they have others, so that
// everybody else finds what is recorded.
func (e *Engine) Settle(ctx context.Context) error {
	r := e.Rates
	if r == nil || r.running == nil {
		return nil
	}
	defer r.Forget()
	p := *r.settled
	if e.following(p) == nil { // what somebody else has put there stays
		return nil
	}
	if !e.apart(p) {
		_, err := e.put(ctx, p, nil)
		return err
	}
	return e.Retune(ctx, [2]unit.Rate{p.DownBps, p.UpBps}, nil)
}

// settle is Settle within a transaction. Where it fails, an undo finds what is there.
func (e *Engine) settle(ctx context.Context) {
	r := e.Rates
	if r == nil || r.running == nil {
		return
	}
	if p := *r.settled; e.following(p) != nil && e.apart(p) {
		_ = e.retune(ctx, p, p, nil)
		r.Forget()
	}
}

// retune gives the running shapers of p, which the state now shows, the rates of to, and
// reads them back. Without now it is read. The caller holds the lock.
func (e *Engine) retune(ctx context.Context, p, to plan.Plan, now platform.State) (err error) {
	for tries := 0; ; tries++ {
		if now == nil {
			if now, err = e.Backend.Observe(ctx, p, nil); err != nil {
				return err
			}
		}
		steps, err := e.Backend.Retune(now, p, to)
		if err != nil || len(steps) == 0 {
			return err
		}
		if tries > 0 {
			return &VerifyError{WAN: p.WAN, Differences: []string{fmt.Sprintf("the shapers do not have %s down and %s up", to.DownBps, to.UpBps)}}
		}
		for _, s := range steps {
			if e.OnStep != nil {
				e.OnStep(s)
			}
			if err := runStep(ctx, e.Runner, s); err != nil {
				return e.Backend.Explain(err)
			}
		}
		now = nil
	}
}

// asSettled returns an observed state as if the shapers that have the rates of running
// had those of p.
func (e *Engine) asSettled(now platform.State, p plan.Plan, running *plan.Plan) (platform.State, error) {
	if running == nil {
		return now, nil
	}
	return e.Backend.Retuned(now, *running, p)
}
