//go:build !router

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	kept "unbloat/internal/keep/config"
	"unbloat/internal/keep/daemon"
	"unbloat/internal/keep/incident"
	"unbloat/internal/keep/metrics"
	"unbloat/internal/keep/page"
	"unbloat/internal/keep/tell"
	"unbloat/internal/show/store"
	"unbloat/unit"
)

// newRoomyCommands returns the commands of the whole program, for which a router has no
// room: those of results and of test servers.
func newRoomyCommands() []*cobra.Command {
	return []*cobra.Command{
		newReportCommand(), newHistoryCommand(), newCompareCommand(), newExportCommand(), newImportCommand(),
		newServeCommand(), newServersCommand(),
	}
}

// offerArchive gives the daemon what keeps the history of lines on a disk, and what tells
// people of incidents.
func offerArchive(o *daemon.Options) {
	o.Archive, o.Send, o.MQTT = lineArchive{}, tell.Send, tell.MQTT
}

// checkArchive refuses a history that this build can't keep.
func checkArchive(kept.Config, string) error { return nil }

// A lineArchive keeps what lines did in files of results. Each is open only while it
// is used: other processes wait for it.
type lineArchive struct{}

// Add implements daemon.Archive.
func (lineArchive) Add(ctx context.Context, file string, did []daemon.Period) (err error) {
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
func (lineArchive) Read(ctx context.Context, file, wan string, from, to time.Time, each func(daemon.Period)) (err error) {
	s, err := store.OpenExisting(ctx, file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.Lines(ctx, wan, from, to, func(x store.LineStep) {
		d := daemon.Period{WAN: x.WAN, At: x.At, Step: x.Step}
		for i, w := range x.Way {
			d.Moment.Way[i] = metrics.MomentWay{Rate: float32(w.Rate), Capacity: float32(w.Capacity), Carried: float32(w.Carried), Delay: float32(w.Delay), DelayMax: float32(w.DelayMax)}
		}
		each(d)
	})
}

// AddIncidents implements daemon.Archive.
func (lineArchive) AddIncidents(ctx context.Context, file string, ended []incident.Incident) (err error) {
	s, err := store.Open(ctx, file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.AddIncidents(ctx, ended, time.Now())
}

// Incidents implements daemon.Archive.
func (lineArchive) Incidents(ctx context.Context, file, id string, from, to time.Time) (out []incident.Incident, err error) {
	s, err := store.OpenExisting(ctx, file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.Incidents(ctx, id, from, to)
}

// mostPageResults are what the page shows of the history.
const mostPageResults = 50

// pageResults returns what reads the kept tests and tunings from the daemon's file;
// nil: the configuration names none.
func pageResults(file string) func(context.Context) ([]page.Result, error) {
	if file == "" {
		return nil
	}
	return func(ctx context.Context) (out []page.Result, err error) {
		s, err := store.OpenExisting(ctx, file)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		entries, err := s.List(ctx, store.Filter{Limit: mostPageResults})
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.Kind != store.KindTest && e.Kind != store.KindTune {
				continue
			}
			r, err := s.Get(ctx, e.ID)
			if err != nil {
				return nil, err
			}
			out = append(out, pageResult(e, r.Result))
		}
		return out, nil
	}
}

// pageResult is a result as the page shows it.
func pageResult(e store.Entry, text json.RawMessage) page.Result {
	out := page.ResultOf(page.RunKind(e.Kind), text)
	out.ID, out.AtMs, out.WAN, out.Shaped, out.Valid, out.Grade = e.ID, e.Time.UnixMilli(), e.Interface, e.Shaped, e.Valid, e.Grade
	out.Down, out.Up = unit.Rate(e.DownBps), unit.Rate(e.UpBps)
	return out
}
