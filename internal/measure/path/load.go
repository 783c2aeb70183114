package path

import (
	"context"
	"errors"
	"fmt"
	"time"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/verdict"
	"unbloat/unit"
)

// A WalkLoad fills the line in the loaded phase.
type WalkLoad struct {
	Client    phases.Tester // whatever protocol it speaks; the caller closes it
	Direction string        // DirDown, DirUp or DirBoth
	Flows     int           // each way
	CC        string        // congestion control of the senders; "" for each system's own

	load phases.Load // nil: nothing flows
}

// Directions of a Load.
const (
	DirDown = "down"
	DirUp   = "up"
	DirBoth = "both"
)

const (
	// stopWithin bounds the end of a load that is interrupted.
	stopWithin = 5 * time.Second
	// mostMore is how much longer than planned a load may last: until the last
	// answers have come through a full line.
	mostMore = 15 * time.Second
)

// start starts the flows. A server that wants to know how long they last hears
// of lasting, and a little more.
func (l *WalkLoad) start(ctx context.Context, lasting time.Duration) error {
	var specs []phases.FlowSpec
	for _, d := range []phases.Direction{phases.Down, phases.Up} {
		if l.Direction == DirBoth || l.Direction == string(d) {
			specs = append(specs, phases.FlowSpec{Dir: d, Flows: l.Flows, CC: l.CC, Limit: lasting + mostMore})
		}
	}
	load, err := l.Client.Open(ctx, specs)
	if err != nil {
		return fmt.Errorf("load the line: %w", err)
	}
	if _, err := load.Begin(ctx); err != nil {
		load.Abandon()
		return fmt.Errorf("load the line: %w", err)
	}
	l.load = load
	return nil
}

// stop ends the flows and returns their goodput between from and to.
func (l *WalkLoad) stop(ctx context.Context, from, to unit.Instant) (*Load, error) {
	if l.load == nil {
		return nil, errors.New("stop a load that was not started")
	}
	if ctx.Err() != nil {
		var cancel func()
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
		defer cancel()
	}
	out := l.report()
	reports, err := l.load.Stop(ctx)
	l.load = nil
	for _, r := range reports {
		out.Broken = append(out.Broken, r.Broken...)
		if goodput := verdict.Goodput(r.Series, from, to); r.Dir == phases.Down {
			out.GoodputDownBps += goodput
		} else {
			out.GoodputUpBps += goodput
		}
	}
	return out, err
}

// report describes the load; its goodput is not known yet.
func (l *WalkLoad) report() *Load {
	return &Load{Server: l.Client.Server(), Direction: l.Direction, Flows: l.Flows}
}

func (l *WalkLoad) phaseName() string {
	switch l.Direction {
	case DirDown:
		return "download"
	case DirUp:
		return "upload"
	}
	return "both"
}
