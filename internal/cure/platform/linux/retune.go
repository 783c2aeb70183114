package linux

import (
	"fmt"

	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
)

// Retune returns the tc(8) commands that give CAKE other rates in place; what waits in it
// stays. While a line is followed, netlink does so without a command.
func (b *Backend) Retune(now platform.State, p, to plan.Plan) ([]platform.Step, error) {
	s, err := decode(now)
	if err != nil {
		return nil, err
	}
	want := s.State
	for _, x := range []*plan.Shaper{to.Down, to.Up} {
		if x == nil {
			continue
		}
		var ok bool
		if want, ok = want.AtRate(*x); !ok {
			return nil, fmt.Errorf("change the rates of %s: %s has no CAKE of ours", p.WAN, x.Device)
		}
	}
	return b.queueSteps(tc.Commands(s.State, want)), nil
}

// Retuned returns the state with the CAKEs of to in place of those of from.
func (b *Backend) Retuned(state platform.State, from, to plan.Plan) (platform.State, error) {
	s, err := decode(state)
	if err != nil {
		return nil, err
	}
	for _, x := range [2]struct{ from, to *plan.Shaper }{{from.Down, to.Down}, {from.Up, to.Up}} {
		if x.from == nil || x.to == nil {
			continue
		}
		if s.Device(x.from.Device).Tree.Rate() == int64(x.from.Rate) {
			s.State, _ = s.State.AtRate(*x.to)
		}
	}
	return encode(s)
}
