package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"unbloat/internal/keep/config"
	"unbloat/internal/keep/incident"
	"unbloat/internal/keep/metrics"
	"unbloat/internal/keep/steer"
	"unbloat/internal/keep/supervise"
	"unbloat/unit"
)

// A shelf is an archive in memory, which may be full.
type shelf struct {
	full   bool
	writes int
	did    []Period

	incidents []incident.Incident
}

func (s *shelf) Add(_ context.Context, file string, did []Period) error {
	s.writes++
	if s.full {
		return errors.New("write to " + file + ": no space is left")
	}
	s.did = append(s.did, did...)
	return nil
}

func (s *shelf) AddIncidents(_ context.Context, file string, ended []incident.Incident) error {
	if s.full {
		return errors.New("write to " + file + ": no space is left")
	}
	s.incidents = append(s.incidents, ended...)
	return nil
}

func (s *shelf) Incidents(context.Context, string, string, time.Time, time.Time) ([]incident.Incident, error) {
	return s.incidents, nil
}

func (s *shelf) Read(_ context.Context, _, wan string, from, to time.Time, each func(Period)) error {
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
			o.Archive, o.Log, o.Trouble = disk, &log, &log
			o.Now = func() time.Time { return time.Now().Add(step).Round(0) }
		})
		defer func() { x.stop() }()
		c := &Caller{d: x.d}
		w := x.only()
		feed := func(seconds int, rate float32) {
			for range seconds {
				m := metrics.Moment{}
				m.Way[0] = metrics.MomentWay{Rate: rate, Carried: rate / 2, Delay: 2, DelayMax: 5}
				w.past.notes().Add(x.d.instant(x.d.now()), m)
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
		if err != nil || h.Step != 1 || len(h.At) != 600 || h.Down.Rate[599] != 3e6 || *h.Down.DelayMax[0] != 5 || h.Up.Capacity[3] != 0 {
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

// TestHistoryHeld: of a line whose rates are fixed the rates are told, and what its
// interface carries. Its delay is not known, which is not 0. A WAN that is off has no
// rate, one elsewhere no counters.
func TestHistoryHeld(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		disk := &shelf{}
		bytes := uint64(0)
		x := linuxTown(t, dir, "history = \"/disk/history.db\"\n"+oneWAN, func(o *Options) {
			o.Archive = disk
			o.Count = func(device string) (uint64, uint64, bool) {
				bytes += 125_000 // a megabit in each second
				return bytes, bytes / 2, device == "wan"
			}
		})
		defer func() { x.stop() }()
		x.d.loops.Go(func() { x.d.watchHeld(x.d.running) })
		x.d.loops.Go(func() { x.d.keepHistory(x.d.running) })
		c, w := &Caller{d: x.d}, x.only()
		time.Sleep(30*time.Minute + time.Second/2)
		for _, step := range []int{1, 60} {
			h, err := ask[History](t, c, MethodHistory, HistoryParams{From: x.d.now().Add(-20 * time.Minute).Format(time.RFC3339), Step: step})
			if err != nil || len(h.At) < 1190/step {
				t.Fatalf("%d steps: %v", len(h.At), err)
			}
			for i := range h.At {
				if h.Down.Rate[i] != int64(w.plan.DownBps) || h.Up.Rate[i] != int64(w.plan.UpBps) || h.Down.Carried[i] != 1e6 || h.Up.Carried[i] != 5e5 || h.Down.Delay[i] != nil || h.Up.DelayMax[i] != nil {
					t.Fatalf("step %d: %d %d, %d %d, %v %v", i, h.Down.Rate[i], h.Up.Rate[i], h.Down.Carried[i], h.Up.Carried[i], h.Down.Delay[i], h.Up.DelayMax[i])
				}
			}
			if text, err := json.Marshal(h); err != nil || !strings.Contains(string(text), `"delay_ms":[null,null,`) {
				t.Errorf("%v %.300s", err, text)
			}
		}
		if n := len(disk.did); n < 25 || disk.did[n-1].Moment.Way[0].Delay >= 0 {
			t.Errorf("%d minutes are on the disk: %+v", n, disk.did[max(n-1, 0):])
		}
		if _, err := w.call(t.Context(), func(ctx context.Context) (any, error) { return w.revert(ctx, c) }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		h, err := ask[History](t, c, MethodHistory, HistoryParams{From: x.d.now().Add(-time.Minute).Format(time.RFC3339)})
		if err != nil || len(h.At) < 59 || h.Down.Rate[50] != 0 || h.Down.Carried[50] != 1e6 {
			t.Errorf("off: %d steps, %v", len(h.At), err)
		}
		w.routerName = "ssh://elsewhere"
		if w.count() != (tally{}) {
			t.Error("another router's interface is counted here")
		}
		w.routerName = ""
	})
}

// TestHistoryUnknown: of a line of which nothing is known yet that is said.
func TestHistoryUnknown(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		x := linuxTown(t, dir, oneWAN, func(*Options) {})
		defer func() { x.stop() }()
		_, err := ask[History](t, &Caller{d: x.d}, MethodHistory, nil)
		refused(t, err, CodePrecondition)
	})
}

// TestHeldIsMeasured: the delay of a line whose rates are held is measured while it is in
// place, and told by status and metrics; not of one that is followed, elsewhere, off, or
// whose configuration says no. Metrics name no rate of what is not there.
func TestHeldIsMeasured(t *testing.T) {
	for name, c := range map[string]struct {
		more string
		want bool
	}{"held": {"", true}, "no": {"watch = false\n", false}, "followed": {"follow = true\n", false}} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			var made []steer.Config
			x := linuxTown(t, dir, oneWAN+c.more, func(o *Options) {
				o.Gauge = func(c steer.Config) (Follower, error) {
					made = append(made, c)
					return newPuppet(c)
				}
			})
			defer func() { x.stop() }()
			time.Sleep(2 * time.Minute) // it is looked at again
			w := x.only()
			s, _ := w.snapshot()
			if (s.Measured != nil) != c.want || (len(made) == 1) != c.want {
				t.Fatalf("%s: measured %v, made %d times", name, s.Measured, len(made))
			}
			m := x.d.metrics().WANs[0]
			if m.State != supervise.InPlace || m.Way[0].Rate != s.Down || m.Way[0].Rate == 0 {
				t.Errorf("%s: %+v", name, m)
			}
			if !c.want {
				return
			}
			for d, r := range [2]unit.Rate{w.plan.DownBps, w.plan.UpBps} {
				if b := made[0].Params.Rates[d]; b.Least != r || b.Usual != r || b.Most != r {
					t.Errorf("measured with bounds %+v, and %v holds", b, r)
				}
			}
			if _, err := w.call(t.Context(), func(ctx context.Context) (any, error) { return w.revert(ctx, &Caller{d: x.d}) }); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if s, _ := w.snapshot(); s.Measured != nil || s.State != supervise.Suspended {
				t.Errorf("off: %s, measured %v", s.State, s.Measured)
			}
			var text strings.Builder
			now := x.d.metrics()
			metrics.Write(&text, &now)
			if strings.Contains(text.String(), "unbloat_shaper_rate_bytes_per_second{") || !strings.Contains(text.String(), `unbloat_in_place{wan="wan"} 0`) {
				t.Errorf("%s", text.String())
			}
		})
	}
}

// TestPast: of a line that is not followed what is known is noted: rates that hold, and what is
// carried as far as two tallies tell it. What nobody knows is not noted, nor is it 0.
func TestPast(t *testing.T) {
	const mega = 125_000 // bytes
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	var p past
	for i, x := range []struct {
		is             supervise.State
		received, sent uint64 // in all; 0: not known
		pause          bool   // before
		want           string // rates and what is carried, in Mbit/s; "": nothing is noted
	}{
		{supervise.Starting, 0, 0, false, ""},
		{supervise.Starting, mega, mega, false, ""}, // since when?
		{supervise.Starting, 3 * mega, 2 * mega, false, "0 0 2 1"},
		{supervise.InPlace, 4 * mega, 2 * mega, false, "50 10 1 0"},
		{supervise.InPlace, 0, 0, false, "50 10 0 0"},
		{supervise.InPlace, 8 * mega, 4 * mega, false, "50 10 2 1"}, // in two seconds
		{supervise.Suspended, 9 * mega, 4 * mega, false, "0 0 1 0"},
		{supervise.Suspended, mega, 5 * mega, false, ""},        // it is another interface
		{supervise.InPlace, 2 * mega, mega, false, "50 10 0 0"}, // and another
		{supervise.InPlace, 3 * mega, 2 * mega, false, "50 10 1 1"},
		{supervise.InPlace, 90 * mega, 90 * mega, true, "50 10 0 0"}, // it was followed meanwhile
		{supervise.Failing, 91 * mega, 92 * mega, false, "0 0 1 2"},
		{supervise.Failing, 0, 0, true, ""},
		{supervise.Failing, 99 * mega, 99 * mega, false, ""},
	} {
		if x.pause {
			p.pause()
		}
		var now tally
		if x.received != 0 {
			now = tally{at(i), x.received, x.sent}
		}
		had := p.ring.Load() != nil
		p.hold(unit.Instant(at(i).UnixNano()), WANStatus{State: x.is, Down: 50 * mbit, Up: 10 * mbit}, now)
		got := ""
		if had = had || x.want != ""; had != (p.ring.Load() != nil) {
			t.Fatalf("%d: there is a ring: %t", i, !had)
		}
		if had {
			p.ring.Load().Seconds(unit.Instant(at(i).UnixNano()), unit.Instant(at(i+1).UnixNano()), func(_ unit.Instant, m metrics.Moment) {
				got = fmt.Sprint(m.Way[0].Rate/1e6, m.Way[1].Rate/1e6, m.Way[0].Carried/1e6, m.Way[1].Carried/1e6)
				if m.Way[0].Delay >= 0 || m.Way[1].DelayMax >= 0 || m.Way[0].Capacity != 0 {
					t.Errorf("%d: %+v", i, m)
				}
			})
		}
		if got != x.want {
			t.Errorf("%d: %q is noted, want %q", i, got, x.want)
		}
	}
	kept := p.ring.Load()
	var wait sync.WaitGroup
	var other past
	for _, of := range []*past{&p, &other} { // whoever notes gets the same
		var all [4]*metrics.Ring
		for i := range all {
			wait.Go(func() { all[i] = of.notes() })
		}
		wait.Wait()
		for _, r := range all {
			if r == nil || r != of.ring.Load() {
				t.Error("another ring")
			}
		}
	}
	if p.ring.Load() != kept || other.ring.Load() == kept {
		t.Error("the ring was replaced")
	}
}

// TestArchiver: each minute of each line is written once, that of a line which is new as well, and
// what a full disk did not take comes later.
func TestArchiver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &shelf{}
		d := &Daemon{since: time.Now(), o: Options{Archive: disk}, config: config.Config{History: "F"}, wans: map[string]*wan{}}
		add := func(name string) {
			d.config.WANs = append(d.config.WANs, config.WAN{Interface: name})
			d.wans[name] = &wan{d: d, key: name, name: name}
		}
		minutes := func(n int) {
			for range n * 60 {
				for _, w := range d.all() {
					w.past.notes().Add(d.instant(d.now()), metrics.Moment{})
				}
				time.Sleep(time.Second)
			}
			d.writeHistory(t.Context())
		}
		begun := time.Now()
		time.Sleep(20 * time.Second)
		add("eth0")
		minutes(5)
		add("eth1")
		disk.full = true
		minutes(5)
		disk.full = false
		minutes(5)
		add("eth2") // nothing is known of it
		minutes(0)
		minutes(2)
		want := map[string][2]int{"eth0": {0, 17}, "eth1": {5, 12}, "eth2": {15, 2}} // from minute, and how many
		for _, p := range disk.did {
			x := want[p.WAN]
			if !p.At.Equal(begun.Truncate(time.Minute).Add(time.Duration(x[0]) * time.Minute)) {
				t.Errorf("%s: %s is written, want minute %d", p.WAN, p.At, x[0])
			}
			want[p.WAN] = [2]int{x[0] + 1, x[1] - 1}
		}
		for name, x := range want {
			if x[1] != 0 {
				t.Errorf("%s: %d minutes are missing", name, x[1])
			}
		}
	})
}
