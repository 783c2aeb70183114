//go:build !omit_store && !omit_daemon

package main

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"unbloat/internal/daemon"
	kept "unbloat/internal/daemon/config"
	"unbloat/internal/metrics"
	"unbloat/internal/store"
	"unbloat/unit"
)

// offerArchive gives the daemon what keeps the history of lines on a disk.
func offerArchive(o *daemon.Options) { o.Archive = lineArchive{} }

// checkArchive refuses a history that this build can't keep.
func checkArchive(kept.Config, string) error { return nil }

// A lineArchive keeps what lines did in files of results. Each is open only while it
// is used: other processes wait for it.
type lineArchive struct{}

// Add implements daemon.Archive.
func (lineArchive) Add(ctx context.Context, file string, did []daemon.Did) (err error) {
	s, err := store.Open(ctx, file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var steps []store.LineStep
	for _, d := range did {
		x := store.LineStep{WAN: d.WAN, At: d.At, Step: d.Step}
		for i, w := range d.Moment.Way {
			x.Way[i] = store.LineWay{Rate: unit.Rate(w.Rate), Capacity: unit.Rate(w.Capacity), Carried: unit.Rate(w.Carried), Delay: float64(w.Delay), DelayMax: float64(w.DelayMax)}
		}
		steps = append(steps, x)
	}
	return s.AddLines(ctx, steps, time.Now())
}

// Read implements daemon.Archive.
func (lineArchive) Read(ctx context.Context, file, wan string, from, to time.Time, each func(daemon.Did)) (err error) {
	s, err := store.OpenExisting(ctx, file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.Lines(ctx, wan, from, to, func(x store.LineStep) {
		d := daemon.Did{WAN: x.WAN, At: x.At, Step: x.Step}
		for i, w := range x.Way {
			d.Moment.Way[i] = metrics.MomentWay{Rate: float32(w.Rate), Capacity: float32(w.Capacity), Carried: float32(w.Carried), Delay: float32(w.Delay), DelayMax: float32(w.DelayMax)}
		}
		each(d)
	})
}
