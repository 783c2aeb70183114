package main

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"unbloat/internal/keep/page"
	"unbloat/internal/measure/verdict"
	"unbloat/internal/show/store"
)

// The page's history is the tests and tunings of the daemon's file; a tuning shows what
// it kept.
func TestPageResults(t *testing.T) {
	file := filepath.Join(t.TempDir(), "history.db")
	if got, err := pageResults(file)(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("without a file: %v %v", got, err)
	}
	measured := func(grade string, p95 float64) *verdict.Test {
		return &verdict.Test{Schema: verdict.TestSchema, Valid: true, Grade: grade,
			Idle:     &verdict.Phase{Latency: verdict.Latency{RTTMs: verdict.Quantiles{P50: 20}}},
			Download: &verdict.Phase{GoodputDownBps: 40e6, Latency: verdict.Latency{IncreaseMs: verdict.Quantiles{P95: p95}}},
			Upload:   &verdict.Phase{GoodputUpBps: 9e6, Latency: verdict.Latency{IncreaseMs: verdict.Quantiles{P95: p95 / 2}}}}
	}
	now := time.Now()
	for i, x := range []struct {
		kind string
		of   any
	}{
		{store.KindTest, measured("D", 300)},
		{store.KindTune, map[string]any{"schema": "unbloat.tune/1", "before": measured("D", 300), "after": measured("A+", 4), "kept": true}},
	} {
		r, err := store.NewRecord(x.kind, x.of, now.Add(time.Duration(i)*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		r.Interface = "eth0"
		if _, err := store.Save(context.Background(), file, r); err != nil {
			t.Fatal(err)
		}
	}
	got, err := pageResults(file)(t.Context())
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v %v", got, err)
	}
	tuned, tested := got[0], got[1]
	if tuned.Kind != page.RunTune || tuned.Grade != "A+" || tuned.DownP95 != 4 || tuned.UpP95 != 2 || tuned.IdleMs != 20 || tuned.WAN != "eth0" || tuned.Invalid == nil {
		t.Errorf("%+v", tuned)
	}
	if tested.Kind != page.RunTest || tested.Grade != "D" || tested.DownP95 != 300 || tested.Down != 40e6 || tested.Up != 9e6 || !tested.Valid || tested.ID == "" {
		t.Errorf("%+v", tested)
	}
}
