package steer_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"unbloat/internal/keep/delay"
	"unbloat/internal/keep/follow"
	"unbloat/internal/keep/metrics"
	"unbloat/internal/keep/steer"
	"unbloat/internal/measure/netio"
	"unbloat/unit"
)

// A line is one whose download is greedy, in a bubble of time: what the shaper lets
// through beyond the capacity waits in the provider's queue.
type line struct {
	mu       sync.Mutex
	clock    *netio.Clock
	at       unit.Instant
	capacity float64 // bit/s, of the download
	rate     float64 // of its shaper
	queue    float64 // bits
	arrived  float64 // bytes
	answers  []delay.Sample
	asked    int
	away     bool
	resets   int
	closed   int
	unseen   bool // the shaper's queue is not told
	call     int  // packets that the calls' tin sends in a second
}

// advance lets time pass.
func (l *line) advance() {
	now := l.clock.Now()
	for ; l.at < now; l.at = l.at.Add(time.Millisecond) {
		const step, more = 1e-3, 1.02 // senders far away keep to the shaper's rate, a little more
		sent := l.rate * step * more
		through := min(l.capacity*step, l.queue+sent)
		l.queue = max(l.queue+sent-through, 0)
		l.arrived += through / 8
	}
}

func (l *line) Ask(now unit.Instant, target int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advance()
	l.asked++
	rtt := 20*time.Millisecond + time.Duration(l.queue/l.capacity*1e9)
	l.answers = append(l.answers, delay.Sample{At: now.Add(rtt), Kind: delay.Echo, Index: target, RTT: rtt})
	return nil
}

func (l *line) Read(now unit.Instant, receive func(delay.Sample)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers = slices.DeleteFunc(l.answers, func(s delay.Sample) bool {
		if s.At <= now {
			receive(s)
		}
		return s.At <= now
	})
	return nil
}

func (l *line) Count(now unit.Instant) (steer.Counts, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advance()
	if l.away {
		return steer.Counts{}, nil
	}
	c := steer.Counts{At: now}
	c.Link.Index, c.Link.RxBytes = 1, uint64(l.arrived)
	if l.unseen {
		return c, nil
	}
	c.Inbound.Queue.Rate = unit.Rate(l.rate)
	c.Inbound.Queue.Tins[7] = uint32(int64(l.call) * int64(now) / 1e9)
	if l.rate < l.capacity && l.queue == 0 {
		c.Inbound.Queue.Backlog = 100_000
	}
	return c, nil
}

func (l *line) Stats() steer.GaugeStats { return steer.GaugeStats{ProbeBytes: uint64(l.asked) * 120} }
func (l *line) Reset()                  { l.resets++ }
func (l *line) Close() error            { l.closed++; return nil }

func (l *line) set(capacity float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advance()
	l.capacity = capacity
}

// begun returns a follower that runs until end is called.
func begun(t *testing.T, c steer.Config) (f *steer.Follower, end func()) {
	t.Helper()
	f, err := steer.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	return f, func() { cancel(); <-done }
}

func config(l *line, told *[]string) steer.Config {
	l.clock = netio.NewClock()
	l.at = l.clock.Now()
	c := steer.Config{
		Clock: l.clock, Sleeper: netio.NewTimerSleeper(l.clock), Open: func() (steer.Gauge, error) { return l, nil },
		Set: func(_ context.Context, r [2]unit.Rate) error {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.advance()
			l.rate = float64(r[follow.Down])
			return nil
		},
		Tell: func(text string) {
			l.mu.Lock()
			defer l.mu.Unlock()
			*told = append(*told, text)
		},
	}
	for i, a := range []string{"192.0.2.1", "198.51.100.1", "203.0.113.1"} {
		c.Targets = append(c.Targets, delay.Target{Addr: netip.MustParseAddr(a), Operator: string(rune('a' + i)), Kind: delay.Echo})
	}
	c.Params.Rates[follow.Down] = follow.Bounds{Least: 2 * unit.MbitPerSecond, Usual: 28 * unit.MbitPerSecond, Most: 31 * unit.MbitPerSecond}
	c.Params.Rates[follow.Up] = follow.Bounds{Least: unit.MbitPerSecond, Usual: 5 * unit.MbitPerSecond, Most: 6 * unit.MbitPerSecond}
	return c
}

// The rate goes down with the line and comes back with it, and what others see says so.
func TestFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &line{capacity: 30e6, rate: 28e6}
		var told []string
		f, end := begun(t, config(l, &told))
		time.Sleep(10 * time.Second)
		if r := f.Rates(); r[0] < 25*unit.MbitPerSecond || r[1] != 5*unit.MbitPerSecond {
			t.Errorf("on a steady line: %v", r)
		}
		l.set(10e6)
		time.Sleep(5 * time.Second)
		v := f.View()
		if b := v.Down; b.Rate > 10_500_000 || b.Rate < 6*unit.MbitPerSecond || b.Delay.Ms() > 30 {
			t.Errorf("5 s after the fall to 10 Mbit/s: %+v", b)
		}
		l.set(30e6)
		time.Sleep(20 * time.Second)
		if r := f.Rates(); r[0] < 20*unit.MbitPerSecond {
			t.Errorf("20 s after it came back: %v", r)
		}
		var text bytes.Buffer
		metrics.Write(&text, &metrics.Snapshot{WANs: []metrics.WAN{f.Metrics("eth0")}})
		for _, want := range []string{`unbloat_rate_changes_total{wan="eth0",direction="down",reason="follow_queue"}`, `unbloat_reflector_up{wan="eth0",reflector="192.0.2.1"} 1`,
			`unbloat_line_delay_seconds_bucket{wan="eth0",direction="down",le="0.03"}`} {
			if !strings.Contains(text.String(), want) {
				t.Errorf("there is no %s:\n%s", want, text.String())
			}
		}
		n, worst := 0, float32(0)
		f.Seconds(0, 1<<62, func(_ unit.Instant, m metrics.Moment) { n++; worst = max(worst, m.Way[0].DelayMax) })
		if n < 34 || n > 36 || worst < 15 {
			t.Errorf("%d seconds are kept, the worst delay is %v ms", n, worst)
		}
		f.NewLine()
		time.Sleep(time.Second)
		end()
		if l.resets != 1 || l.closed != 1 || len(told) > 0 {
			t.Errorf("%d resets, %d closed, told %q", l.resets, l.closed, told)
		}
	})
}

// Where programs change the rates, and the system does not tell what waits in the
// shaper, the rate goes down and comes back too, only later.
func TestFollowsSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &line{capacity: 30e6, rate: 28e6, unseen: true}
		var told []string
		var changed []time.Time
		c := config(l, &told)
		c.Slow, c.Params.Every = true, 2*time.Second
		set := c.Set
		c.Set = func(ctx context.Context, r [2]unit.Rate) error {
			time.Sleep(300 * time.Millisecond) // of pfctl and its like
			changed = append(changed, time.Now())
			return set(ctx, r)
		}
		f, end := begun(t, c)
		time.Sleep(20 * time.Second)
		if r := f.Rates(); r[0] < 25*unit.MbitPerSecond || r[1] != 5*unit.MbitPerSecond {
			t.Errorf("on a steady line: %v", r)
		}
		l.set(10e6)
		time.Sleep(10 * time.Second)
		var mean unit.Rate // it drains by a rate that holds for two seconds
		const seconds = 10
		for range seconds {
			time.Sleep(time.Second)
			b := f.View().Down
			mean += b.Rate / seconds
			if b.Rate > 10_500_000 || b.Delay.Ms() > 50 {
				t.Errorf("10 s and more after the fall to 10 Mbit/s: %+v", b)
			}
		}
		t.Logf("from 10 s to 20 s after the fall to 10 Mbit/s it has %s on average", mean)
		if mean < 4*unit.MbitPerSecond {
			t.Error("that is too little")
		}
		l.set(30e6)
		time.Sleep(60 * time.Second)
		if r := f.Rates(); r[0] < 20*unit.MbitPerSecond {
			t.Errorf("60 s after it came back: %v", r)
		}
		end()
		for i := 1; i < len(changed); i++ {
			if apart := changed[i].Sub(changed[i-1]); apart < 2*time.Second {
				t.Errorf("two changes within %v", apart)
			}
		}
		t.Logf("%d changes, told %q", len(changed), told)
	})
}

// What goes wrong is told once, and ends nothing.
func TestTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &line{capacity: 30e6, rate: 28e6}
		var told []string
		c := config(l, &told)
		open := c.Open
		fails := 3
		c.Open = func() (steer.Gauge, error) {
			if fails--; fails >= 0 {
				return nil, errors.New("no right to sockets")
			}
			return open()
		}
		f, err := steer.New(c)
		if err != nil {
			t.Fatal(err)
		}
		go f.Run(t.Context())
		time.Sleep(time.Second)
		heard := func() []string {
			l.mu.Lock()
			defer l.mu.Unlock()
			return slices.Clone(told)
		}
		if v, told := f.View(), heard(); !v.Blind || !slices.Equal(told, []string{"no right to sockets"}) {
			t.Errorf("%+v %q", v, told)
		}
		known := func() (moments, delays int) {
			f.Seconds(0, 1<<62, func(_ unit.Instant, m metrics.Moment) {
				moments++
				if m.Way[0].Delay >= 0 && m.Way[1].DelayMax >= 0 {
					delays++
				}
			})
			return moments, delays
		}
		if n, delays := known(); n == 0 || delays > 0 {
			t.Errorf("nothing is measured, and of %d seconds %d have a delay", n, delays)
		}
		time.Sleep(20 * time.Second)
		if n, delays := known(); delays == 0 || delays > n {
			t.Errorf("it is measured, and of %d seconds %d have a delay", n, delays)
		}
		l.mu.Lock()
		l.away = true
		l.mu.Unlock()
		time.Sleep(3 * time.Second)
		l.mu.Lock()
		l.away = false
		l.mu.Unlock()
		time.Sleep(3 * time.Second)
		want := []string{"no right to sockets", "the line is followed again", "the interface is away", "the line is followed again"}
		if told := heard(); !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}

// logs are what a follower's log is written to, a file after the other.
type logs struct {
	files  []*bytes.Buffer
	closed int
}

type logFile struct {
	*bytes.Buffer
	all *logs
}

func (l logFile) Close() error { l.all.closed++; return nil }

// What a follower measures and decides is written down; run again it decides the same.
// A log that can't be written is told, and the line is followed all the same.
func TestLogOfDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &line{capacity: 30e6, rate: 28e6}
		var told []string
		var out logs
		c := config(l, &told)
		c.Log = func() (io.WriteCloser, error) {
			out.files = append(out.files, &bytes.Buffer{})
			return logFile{out.files[len(out.files)-1], &out}, nil
		}
		follows := func() steer.View {
			f, end := begun(t, c)
			time.Sleep(5 * time.Second)
			l.set(10e6)
			time.Sleep(5 * time.Second)
			f.NewLine()
			time.Sleep(time.Second)
			end()
			return f.View()
		}
		is := follows()
		if len(out.files) != 1 || out.closed != 1 {
			t.Fatalf("%d files, %d closed", len(out.files), out.closed)
		}
		steps, last := 0, [2]unit.Rate{}
		if err := follow.Replay(out.files[0], func(r follow.Replayed) {
			steps++
			if last = r.Decision.Rate; last != r.Recorded {
				t.Fatalf("step %d: %v, it was %v", steps, last, r.Recorded)
			}
		}); err != nil || steps < 100 || last[0] != is.Down.Rate {
			t.Errorf("%d steps, the last is %v, it was %v: %v", steps, last, is.Down.Rate, err)
		}
		c = config(l, &told)
		l.set(30e6)
		c.Log = func() (io.WriteCloser, error) { return nil, errors.New("disk full") }
		if is := follows(); is.Down.Rate > 11*unit.MbitPerSecond {
			t.Errorf("without a log: %+v", is.Down)
		}
		if !slices.Contains(told, "write the log of decisions: disk full") {
			t.Errorf("told %q", told)
		}
	})
}

// A line whose rates are held is measured, and nothing is changed: its probes stay within
// what a day without load may cost, though it is full all the time, and a queue is seen.
func TestMeasures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &line{capacity: 30e6, rate: 28e6}
		var told []string
		c := steer.Measuring(config(l, &told))
		for d := range c.Params.Rates {
			r := c.Params.Rates[d].Usual
			c.Params.Rates[d] = follow.Bounds{Least: r, Usual: r, Most: r}
		}
		f, end := begun(t, c)
		time.Sleep(20 * time.Minute)
		l.mu.Lock()
		asked := l.asked
		l.mu.Unlock()
		const largest = 2 * (14 + 40 + 20) // the most that a question and its answer take on Ethernet
		if a := asked * 72 * largest; asked == 0 || a > delay.BudgetIdle {
			t.Errorf("%d probes in 20 minutes: %d bytes a day", asked, a)
		}
		if v := f.View(); v.Down.Delay.Ms() > 5 {
			t.Errorf("a line without a queue adds %v ms", v.Down.Delay.Ms())
		}
		l.set(25e6) // below the shaper's rate: a queue grows
		time.Sleep(30 * time.Second)
		if v := f.View(); v.Down.Delay.Ms() < 100 || v.Down.Rate != 28*unit.MbitPerSecond {
			t.Errorf("30 s of a queue: %+v", v.Down)
		}
		end()
		if l.rate != 28e6 || len(told) > 0 {
			t.Errorf("the rate is %v; %q", l.rate, told)
		}
	})
}
