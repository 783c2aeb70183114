//go:build !omit_ui && !omit_daemon && !omit_store

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"

	"unbloat/internal/reason"
	"unbloat/internal/store"
	"unbloat/internal/ui"
	"unbloat/internal/verdict"
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
	out := ui.Result{ID: e.ID, AtMs: e.Time.UnixMilli(), WAN: e.Interface, Kind: ui.RunKind(e.Kind), Shaped: e.Shaped, Valid: e.Valid, Grade: e.Grade,
		Down: unit.Rate(e.DownBps), Up: unit.Rate(e.UpBps), Invalid: []reason.Reason{}}
	var held struct {
		verdict.Test
		Before, After *verdict.Test
		Kept          bool
	}
	if json.Unmarshal(text, &held) != nil {
		return out
	}
	t := &held.Test
	switch {
	case e.Kind == store.KindTest:
	case held.Kept && held.After != nil:
		t = held.After
	case held.Before != nil:
		t = held.Before
	}
	out.Invalid = append(out.Invalid, t.Reasons...)
	for _, p := range t.Phases() {
		switch p.Name {
		case verdict.PhaseIdle:
			out.IdleMs = p.Latency.RTTMs.P50
		case verdict.PhaseDownload:
			out.DownP95 = p.Latency.IncreaseMs.P95
		case verdict.PhaseUpload:
			out.UpP95 = p.Latency.IncreaseMs.P95
		}
	}
	return out
}
