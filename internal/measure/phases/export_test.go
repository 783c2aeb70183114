package phases

import (
	"context"

	"unbloat/internal/measure/probe"
)

// Moved returns how many bytes the flows have moved.
func (f *Flows) Moved() int64 { return f.moved() }

// Ended reports whether all flows have ended.
func (f *Flows) Ended() bool { return f.ended() }

// Trains is trains.
func (c *Client) Trains(ctx context.Context, dir Direction, specs []probe.TrainSpec) (*probe.TrainsReport, error) {
	return c.trains(ctx, dir, specs)
}
