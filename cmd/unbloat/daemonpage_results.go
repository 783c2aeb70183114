//go:build !omit_ui && !omit_daemon && !omit_store

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"

	"unbloat/internal/store"
	"unbloat/internal/ui"
	"unbloat/internal/ui/source"
	"unbloat/unit"
)

// mostPageResults are what the page shows of the history.
const mostPageResults = 50

// pageResults returns what reads the kept tests and tunings from the daemon's file;
// nil: the configuration names none.
func pageResults(file string) func(context.Context) ([]ui.Result, error) {
	if file == "" {
		return nil
	}
	return func(ctx context.Context) (out []ui.Result, err error) {
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
func pageResult(e store.Entry, text json.RawMessage) ui.Result {
	out := source.ResultOf(ui.RunKind(e.Kind), text)
	out.ID, out.AtMs, out.WAN, out.Shaped, out.Valid, out.Grade = e.ID, e.Time.UnixMilli(), e.Interface, e.Shaped, e.Valid, e.Grade
	out.Down, out.Up = unit.Rate(e.DownBps), unit.Rate(e.UpBps)
	return out
}
