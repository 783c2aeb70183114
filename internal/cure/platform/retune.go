package platform

import (
	"errors"
	"fmt"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/unit"
)

// RetuneEvery is the least time between two changes of a rate where each takes
// programs, and the system makes something anew for it.
const RetuneEvery = 2 * time.Second

// Round returns rates as they can be set: by netlink in whole bytes a second, which are
// CAKE's; programs write, and show, kbit/s.
func (r Retune) Round(rates [2]unit.Rate) [2]unit.Rate {
	grain := unit.KbitPerSecond
	if r.Netlink {
		grain = 8 * unit.BitPerSecond
	}
	for i := range rates {
		rates[i] = max(rates[i]/grain, 1) * grain
	}
	return rates
}

// BothShaped says why a plan's line can't be followed where there is one shaper
// without classes for each direction; nil: it can. Shares of classes would have to
// change with the rate.
func BothShaped(p plan.Plan) error {
	switch {
	case p.Down == nil || p.Up == nil:
		return errors.New("it takes both directions shaped; give down and up")
	case p.Classes != nil:
		return fmt.Errorf("on %s it takes a plan without classes; use classes = %q, or follow = false, which holds the rates", p.Platform, plan.ClassesOff)
	case p.Down.AQM == plan.FIFO || p.Up.AQM == plan.FIFO:
		return fmt.Errorf("on %s it takes aqm = %q; with a plain queue its own delay can't be told from the line's", p.Platform, plan.FQCoDel)
	}
	return nil
}
