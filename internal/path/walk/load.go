package walk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"unbloat/internal/measure"
	"unbloat/internal/path"
	"unbloat/internal/verdict"
	"unbloat/unit"
)

// A Load fills the line in the loaded phase.
type Load struct {
	Client    *measure.Client // the caller closes it
	Direction string          // DirDown, DirUp or DirBoth
	Flows     int             // each way
	CC        string          // congestion control of the senders; "" for each system's own

	flows []*measure.Flows
	dirs  []measure.Direction
}

// Directions of a Load.
const (
	DirDown = "down"
	DirUp   = "up"
	DirBoth = "both"
)

// stopWithin limits the time to stop a load that is interrupted.
const stopWithin = 5 * time.Second

// start starts the flows.
func (l *Load) start(ctx context.Context) error {
	for _, d := range []measure.Direction{measure.Down, measure.Up} {
		if l.Direction != DirBoth && l.Direction != string(d) {
			continue
		}
		f, err := l.Client.StartFlows(ctx, measure.FlowSpec{Dir: d, Flows: l.Flows, CC: l.CC})
		if err != nil {
			_, _ = l.stop(ctx, 0, 1)
			return fmt.Errorf("load the line: %w", err)
		}
		l.flows, l.dirs = append(l.flows, f), append(l.dirs, d)
	}
	return nil
}

// stop ends the flows and returns their goodput between from and to.
func (l *Load) stop(ctx context.Context, from, to unit.Instant) (*path.Load, error) {
	if ctx.Err() != nil {
		var cancel func()
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
		defer cancel()
	}
	out := l.report()
	var errs []error
	for i, f := range l.flows {
		r, err := f.Stop(ctx)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out.Broken = append(out.Broken, r.Broken...)
		if goodput := float64(verdict.Goodput(r.Series, from, to)); l.dirs[i] == measure.Down {
			out.GoodputDownBps = goodput
		} else {
			out.GoodputUpBps = goodput
		}
	}
	l.flows, l.dirs = nil, nil
	return out, errors.Join(errs...)
}

// report describes the load; its goodput is not known yet.
func (l *Load) report() *path.Load {
	return &path.Load{Server: l.Client.Server(), Direction: l.Direction, Flows: l.Flows}
}

func (l *Load) phaseName() string {
	switch l.Direction {
	case DirDown:
		return "download"
	case DirUp:
		return "upload"
	}
	return "both"
}
