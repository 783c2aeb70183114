package platform

import (
	"context"
	"errors"
	"net/netip"

	"unbloat/internal/cure/plan"
)

// A Backend knows one platform's states. It changes nothing: it reads the state,
// computes the wanted one, and lists the steps between them. What a platform can't do
// Plain says for it.
type Backend interface {
	// Observe reads everything that the plan may change, and everything that
	// earlier contains.
	Observe(ctx context.Context, p plan.Plan, earlier State) (State, error)
	// Desire returns the state that the plan asks for, or an error that says
	// what prevents it. Settings that only an earlier plan changed are as in
	// origin.
	Desire(ctx context.Context, p plan.Plan, now, origin State) (State, error)
	// Baseline returns the state without unbloat: as in origin (nil: unknown),
	// and for everything not in origin, as now without our parts.
	Baseline(ctx context.Context, now, origin State) (State, error)
	// Compare returns the steps from actual to wanted, and the differences as
	// text for people. Both are empty for equal states.
	Compare(actual, wanted State) (steps []Step, differences []string, err error)
	// Restore returns the steps that lead to before without reading the state: from any
	// on the way to wanted; nil: from any. Some may fail: they remove what is not there.
	Restore(before, wanted State) ([]Step, error)
	// Shapers lists all shapers on the router, ours and others; where they are found by
	// the WAN, those of it.
	Shapers(ctx context.Context, wan string) ([]Shaped, error)
	// Explain turns a failed step's error into one that says what to do.
	Explain(err error) error
	// Settled returns the state in which the router is once it has loaded the settings
	// that it has in s; s itself if it runs what its settings say. Somebody may have
	// changed settings and not loaded them, or have changed what runs by hand. An undo
	// loads the settings, so it can't bring such a state back.
	Settled(s State) (State, error)
	// Drift returns how now differs from what was applied of p, as text; nil if it does
	// not. It is for platforms whose wanted state contains more than what must stay; else
	// the error is errors.ErrUnsupported, and now is compared with what the plan asks for.
	Drift(p plan.Plan, now, applied State) ([]string, error)
	// Flows reads what each connection has carried so far; none if that can't be told.
	Flows(ctx context.Context) ([]Flow, error)
	// Answers returns those addresses that answer a probe which leaves by the interface.
	Answers(ctx context.Context, iface string, addresses []netip.Addr) []netip.Addr
	// Retune returns the commands that give the running shapers of p, which s shows, the
	// rates of to, while the settings that a reboot loads, and all files, stay as they
	// are; none if they have them. The error says why that can't be done:
	// errors.ErrUnsupported, whatever s is, where settings and shapers never differ.
	Retune(s State, p, to plan.Plan) ([]Step, error)
	// Retuned returns s as if the shapers that have the rates of the plan from had those of to.
	Retuned(s State, from, to plan.Plan) (State, error)
}

// A Plain backend can only what every platform can. Others embed it.
type Plain struct{}

// Explain returns the error as it is.
func (Plain) Explain(err error) error { return err }

// Settled returns s: the router runs what its settings say.
func (Plain) Settled(s State) (State, error) { return s, nil }

// Drift returns errors.ErrUnsupported: a plan's state is all that must stay.
func (Plain) Drift(plan.Plan, State, State) ([]string, error) { return nil, errors.ErrUnsupported }

// Flows returns none: it can't be told.
func (Plain) Flows(context.Context) ([]Flow, error) { return nil, nil }

// Answers returns none.
func (Plain) Answers(context.Context, string, []netip.Addr) []netip.Addr { return nil }

// Retune returns errors.ErrUnsupported: other rates are other settings.
func (Plain) Retune(State, plan.Plan, plan.Plan) ([]Step, error) { return nil, errors.ErrUnsupported }

// Retuned returns s: no shaper has other rates than the settings.
func (Plain) Retuned(s State, _, _ plan.Plan) (State, error) { return s, nil }

// A Flow is a connection by the interface of the router through which its other end is
// reached.
type Flow struct {
	Interface string
	Key       string     // that tells it from others
	Far       netip.Addr // its other end; the zero one is not known
	Out, In   int64      // packets so far
}
