package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"unbloat/internal/keep/incident"
	"unbloat/reason"
	"unbloat/testkit/await"
	"unbloat/unit"
)

// fullIncident is one of the size that incidents have at most.
func fullIncident(n int, begin time.Time) incident.Incident {
	x := incident.Incident{ID: fmt.Sprint("i", n), WAN: "eth0", Kind: incident.Loss, Part: incident.Line, Severity: incident.Major, Begin: begin, End: begin.Add(10 * time.Minute), Far: []string{"a", "b", "c"}}
	x.What, x.Why = reason.Of(reason.IncidentLoss, "loss", 0.5, "asked", float64(600)), reason.Of(reason.BlameUnknown)
	for i := range 700 {
		s := incident.Second{At: begin.Add(time.Duration(i) * time.Second), Far: make([]incident.Answers, 3), CPU: 0.25}
		s.Way[0].Carried = unit.Rate((i*7919 + n*104729) % 50_000_000)
		s.Far[i%3] = incident.Answers{Asked: 1, Answered: 1, RTT: unit.Milliseconds(time.Duration((i*n)%90000) * 10 * time.Microsecond)}
		x.Samples = append(x.Samples, s)
	}
	x.Digest = incident.Digest(incident.CSV(x.Samples, x.Far))
	return x
}

// TestIncidents: incidents are read as they were written, with their samples if one is
// asked for; writing one again changes nothing; what is older than 90 days is removed.
func TestIncidents(t *testing.T) {
	ctx := context.Background()
	s, err := Open(ctx, filepath.Join(t.TempDir(), "incidents.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	var all []incident.Incident
	for i := range 3 {
		all = append(all, fullIncident(i, start.Add(time.Duration(i)*24*time.Hour)))
	}
	for range 2 {
		if err := s.AddIncidents(ctx, all, start.Add(4*24*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Incidents(ctx, "", start.Add(12*time.Hour), start.Add(30*24*time.Hour))
	if err != nil || len(got) != 2 || got[0].ID != "i1" || got[0].Samples != nil || got[0].What.String() != all[1].What.String() {
		t.Fatalf("%+v, %v", got, err)
	}
	one, err := s.Incidents(ctx, "i2", start, start)
	if err != nil || len(one) != 1 || !reflect.DeepEqual(incident.CSV(one[0].Samples, one[0].Far), incident.CSV(all[2].Samples, all[2].Far)) {
		t.Fatalf("%+v, %v", one, err)
	}
	if err := s.AddIncidents(ctx, nil, start.Add(IncidentDays+36*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got, err = s.Incidents(ctx, "", start, start.Add(300*24*time.Hour)); err != nil || len(got) != 1 {
		t.Errorf("%d are left, %v", len(got), err)
	}
}

// TestIncidentsStaySmall: ninety days with far more incidents than a bad line has stay
// within 20 MB: the oldest lose their samples, not their record.
func TestIncidentsStaySmall(t *testing.T) {
	await.NotShort(t)
	ctx := context.Background()
	file := filepath.Join(t.TempDir(), "incidents.db")
	s, err := Open(ctx, file)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	const n = 1000
	var all []incident.Incident
	for i := range n {
		all = append(all, fullIncident(i, start.Add(time.Duration(i)*time.Hour)))
	}
	if err := s.AddIncidents(ctx, all, start.Add(80*24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	got, err := s.Incidents(ctx, "", start, start.Add(90*24*time.Hour))
	if err != nil || len(got) != n {
		t.Fatalf("%d of %d are there, %v", len(got), n, err)
	}
	first, _ := s.Incidents(ctx, "i0", start, start)
	last, _ := s.Incidents(ctx, fmt.Sprint("i", n-1), start, start)
	if len(first) != 1 || len(first[0].Samples) != 0 || len(last) != 1 || len(last[0].Samples) != 700 {
		t.Error("the wrong ones lost their samples")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d incidents of 700 samples: %.1f MB", n, float64(info.Size())/1e6)
	if info.Size() > 20e6 {
		t.Errorf("%.1f MB", float64(info.Size())/1e6)
	}
}
