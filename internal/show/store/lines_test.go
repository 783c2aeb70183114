package store

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"unbloat/unit"
)

// TestLines: what lines did is read as it was written; what is old is joined to
// quarters of an hour with the same mean and worst delay, and what is very old is
// removed; writing the same again changes nothing.
func TestLines(t *testing.T) {
	ctx := context.Background()
	s, err := Open(ctx, filepath.Join(t.TempDir(), "lines.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	step := func(minute int) LineStep {
		x := LineStep{WAN: "eth0", At: start.Add(time.Duration(minute) * time.Minute), Step: time.Minute}
		x.Way[0] = LineWay{Rate: unit.Rate(1e6 * (minute%15 + 1)), Carried: 3e6, Delay: 2.5, DelayMax: float64(minute % 15)}
		if minute%2 == 0 {
			x.Way[0].Capacity = 9e6
		}
		x.Way[1].Rate, x.Way[1].Delay, x.Way[1].DelayMax = 5e5, -1, -1
		if minute >= 45 && minute%3 == 0 {
			x.Way[1].Delay, x.Way[1].DelayMax = 4, 6
		}
		return x
	}
	read := func(wan string) (out []LineStep) {
		t.Helper()
		if err := s.Lines(ctx, wan, start, start.Add(100*24*time.Hour), func(x LineStep) { out = append(out, x) }); err != nil {
			t.Fatal(err)
		}
		return out
	}
	var all []LineStep
	for m := range 60 {
		all = append(all, step(m))
	}
	for range 2 {
		if err := s.AddLines(ctx, all, start.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if got := read("eth0"); len(got) != 60 || got[59] != all[59] || got[0] != all[0] {
		t.Fatalf("%d steps: %+v", len(got), got)
	}
	if got := read("eth1"); len(got) != 0 {
		t.Errorf("another line has %+v", got)
	}
	other := step(0)
	other.WAN = "eth1"
	if err := s.AddLines(ctx, []LineStep{other}, start.Add(LineMinutes+30*time.Minute)); err != nil {
		t.Fatal(err)
	}
	got := read("eth0")
	want := LineStep{WAN: "eth0", At: start, Step: 15 * time.Minute}
	want.Way[0] = LineWay{Rate: 8e6, Capacity: 9e6, Carried: 3e6, Delay: 2.5, DelayMax: 14}
	want.Way[1].Rate, want.Way[1].Delay, want.Way[1].DelayMax = 5e5, -1, -1
	if len(got) != 32 || got[0] != want || got[2] != all[30] {
		t.Errorf("%d steps, the first of which is\n%+v, want\n%+v", len(got), got[0], want)
	}
	if wans, err := s.LineWANs(ctx); err != nil || len(wans) != 2 {
		t.Errorf("%q %v", wans, err)
	}
	if err := s.AddLines(ctx, nil, start.Add(LineQuarters+time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := read("eth0"); len(got) != 0 {
		t.Errorf("very old: %+v", got)
	}
}
