package daemon

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"unbloat/internal/metrics"
)

// A shelf is an archive in memory, which may be full.
type shelf struct {
	full   bool
	writes int
	did    []Did
}

func (s *shelf) Add(_ context.Context, file string, did []Did) error {
	s.writes++
	if s.full {
		return errors.New("write to " + file + ": no space is left")
	}
	s.did = append(s.did, did...)
	return nil
}

func (s *shelf) Read(_ context.Context, _, wan string, from, to time.Time, each func(Did)) error {
	for _, d := range s.did {
		if d.WAN == wan && !d.At.Before(from) && d.At.Before(to) {
			each(d)
		}
	}
	return nil
}

// TestHistory: what a line did is told by the second and by the minute, from memory
// and from the disk; a disk that is full is told of once, and gets what it missed
// later; a clock that was set moves what was before.
func TestHistory(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		disk := &shelf{}
		var log strings.Builder
		step := time.Duration(0)
		x := linuxTown(t, dir, "history = \"/disk/history.db\"\n"+oneWAN, func(o *Options) {
			o.Archive, o.Log = disk, &log
			o.Now = func() time.Time { return time.Now().Add(step).Round(0) }
		})
		defer func() { x.stop() }()
		c := &client{d: x.d}
		w := x.only()
		feed := func(seconds int, rate float32) {
			for range seconds {
				m := metrics.Moment{}
				m.Way[0] = metrics.MomentWay{Rate: rate, Carried: rate / 2, Delay: 2, DelayMax: 5}
				w.past().Add(x.d.instant(x.d.now()), m)
				time.Sleep(time.Second)
			}
		}
		x.d.loops.Go(func() { x.d.keepHistory(x.d.running) })
		start := x.d.now()
		feed(600, 1e6)
		disk.full = true
		feed(900, 2e6)
		disk.full = false
		feed(600, 3e6)
		if n := strings.Count(log.String(), "no space is left"); n != 1 || !strings.Contains(log.String(), "history: written again") {
			t.Errorf("it is told of %d times:\n%s", n, log.String())
		}
		if len(disk.did) < 30 || len(disk.did) > 35 || disk.writes > 8 {
			t.Errorf("%d minutes in %d writes", len(disk.did), disk.writes)
		}
		for i, d := range disk.did {
			if want := start.Add(time.Duration(i) * time.Minute).Truncate(time.Minute); !d.At.Equal(want) || d.Step != time.Minute {
				t.Fatalf("minute %d: %+v, want at %s", i, d, want)
			}
		}
		h, err := ask[History](t, c, MethodHistory, HistoryParams{From: x.d.now().Add(-10 * time.Minute).Format(time.RFC3339)})
		if err != nil || h.Step != 1 || len(h.At) != 600 || h.Down.Rate[599] != 3e6 || h.Down.DelayMax[0] != 5 || h.Up.Capacity[3] != 0 {
			t.Errorf("step %d, %d seconds, %v", h.Step, len(h.At), err)
		}
		h, err = ask[History](t, c, MethodHistory, nil)
		if err != nil || h.Step != 60 || len(h.At) < 35 || len(h.At) > 36 || h.Down.Rate[0] != 1e6 || h.Down.Rate[12] != 2e6 {
			t.Errorf("step %d, %d minutes, %v", h.Step, len(h.At), err)
		}
		last := h.At[len(h.At)-1]
		step = 3 * time.Hour // the clock is set
		h, err = ask[History](t, c, MethodHistory, nil)
		if err != nil || h.At[len(h.At)-1]-last != (3*time.Hour).Milliseconds() {
			t.Errorf("the last minute is %d ms later, %v", h.At[len(h.At)-1]-last, err)
		}
		_, err = ask[History](t, c, MethodHistory, HistoryParams{From: "yesterday"})
		refused(t, err, CodeUsage)
	})
}

// TestHistoryUnknown: of a line that is not followed nothing is known, and that is
// said.
func TestHistoryUnknown(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		x := linuxTown(t, dir, oneWAN, func(*Options) {})
		defer func() { x.stop() }()
		_, err := ask[History](t, &client{d: x.d}, MethodHistory, nil)
		refused(t, err, CodePrecondition)
	})
}
