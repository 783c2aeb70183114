package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/keep/delay"
	"unbloat/internal/keep/follow"
	"unbloat/internal/keep/steer"
	"unbloat/internal/keep/supervise"
	"unbloat/internal/measure/netio"
	"unbloat/testkit/await"
	"unbloat/testkit/fake"
	"unbloat/unit"
)

// A brook is a line whose capacity goes up and down, with a greedy load in some
// minutes, as a gauge measures it. Its own queue is what the rates leave over.
type brook struct {
	mu      sync.Mutex
	clock   *netio.Clock
	at      unit.Instant
	rates   [2]float64 // of the shapers, bit/s
	queue   [2]float64 // bits
	carried [2]float64 // bytes
	answers []delay.Sample
	broken  bool
	opened  int // gauges that are open
}

// capacity is what the line carries at an instant, for a direction's usual rate.
func capacity(at unit.Instant, usual float64) float64 {
	minutes := time.Duration(at).Minutes()
	return usual * (0.7 + 0.3*math.Sin(minutes) + 0.15*math.Sin(minutes*17))
}

func (b *brook) advance(now unit.Instant) {
	const grain = 20 * time.Millisecond
	if now.Sub(b.at) > time.Second {
		b.at = now.Add(-time.Second) // nobody measured meanwhile
	}
	for ; b.at < now; b.at = b.at.Add(grain) {
		for d, usual := range [2]float64{45e6, 9e6} {
			load := 0.02
			if int(time.Duration(b.at).Minutes())%10 < 2 {
				load = 1
			}
			step := grain.Seconds()
			sent := b.rates[d] * load * step
			through := min(capacity(b.at, usual)*step, b.queue[d]+sent)
			b.queue[d] = min(max(b.queue[d]+sent-through, 0), usual)
			b.carried[d] += through / 8
		}
	}
}

func (b *brook) Ask(now unit.Instant, target int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken {
		return errors.New("the network is down")
	}
	b.advance(now)
	wait := [2]time.Duration{}
	for d, usual := range [2]float64{45e6, 9e6} {
		wait[d] = time.Duration(b.queue[d] / capacity(now, usual) * 1e9)
	}
	s := delay.Sample{Kind: delay.Stamp, Index: target, RTT: 20*time.Millisecond + wait[0] + wait[1], OneWay: true, Down: wait[0], Up: wait[1]}
	s.At = now.Add(s.RTT)
	b.answers = append(b.answers, s)
	return nil
}

func (b *brook) Read(now unit.Instant, receive func(delay.Sample)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answers = slices.DeleteFunc(b.answers, func(s delay.Sample) bool {
		if s.At <= now {
			receive(s)
		}
		return s.At <= now
	})
	return nil
}

func (b *brook) Count(now unit.Instant) (steer.Counts, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.broken {
		return steer.Counts{}, nil
	}
	b.advance(now)
	c := steer.Counts{At: now}
	c.Link.Index, c.Link.RxBytes, c.Link.TxBytes = 1, uint64(b.carried[0]), uint64(b.carried[1])
	return c, nil
}

func (b *brook) Stats() steer.GaugeStats { return steer.GaugeStats{} }
func (b *brook) Reset()                  {}
func (b *brook) Close() error            { b.open(-1); return nil }

// open counts gauges.
func (b *brook) open(more int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opened += more
	return b.opened
}

// byTC gives CAKE other rates, as netlink does.
type byTC struct{ platform.Runner }

func (r byTC) Set(device string, rate unit.Rate) error {
	_, _, err := r.Run(context.Background(), []string{"tc", "qdisc", "change", "dev", device, "root", "cake", "bandwidth", fmt.Sprintf("%dbit", rate)}, nil)
	return err
}
func (byTC) Port() uint32 { return 0 }
func (byTC) Close() error { return nil }

// follow follows a daemon's line on the brook.
func (b *brook) follow(c steer.Config) (Follower, error) {
	c.Clock, c.Sleeper, c.Open = b.clock, netio.NewTimerSleeper(b.clock), func() (steer.Gauge, error) { b.open(1); return b, nil }
	for i := range 6 {
		c.Targets = append(c.Targets, delay.Target{Addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)}), Operator: fmt.Sprint(i / 2), Kind: delay.Echo})
	}
	set := func(rates [2]unit.Rate) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.rates = [2]float64{float64(rates[0]), float64(rates[1])}
	}
	set([2]unit.Rate{c.Params.Rates[0].Usual, c.Params.Rates[1].Usual})
	change := c.Set
	c.Set = func(ctx context.Context, rates [2]unit.Rate) error {
		err := change(ctx, rates)
		if err == nil {
			set(rates)
		}
		return err
	}
	return steer.New(c)
}

// holds are what a daemon holds of this machine.
type holds struct {
	heap       uint64 // bytes
	goroutines int
	files      int // descriptors
	gauges     int
	state      string // names of the files in its directory
}

// holds fills what the daemon remembers up to its bounds first, so that it takes as
// much at any time.
func (x *town) holds(b *brook) (h holds) {
	x.t.Helper()
	w := x.only()
	for i := range max(mostEvents, MostDecisions) {
		w.happened(EventMended, "somebody", UndoneYes, "", "a queue has another rate")
		w.decided(follow.Why{Direction: follow.Direction(i % 2), Cause: [2]follow.Cause{follow.Room, follow.Queue}[i/2%2]})
	}
	if r, ok := x.router.at.(interface{ Commands() []string }); ok {
		r.Commands() // a stand-in's own notes
	}
	if r, ok := x.router.at.(*fake.ClearOS); ok {
		r.Log = nil // the same
	}
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	h.heap, h.goroutines, h.gauges = m.HeapAlloc, runtime.NumGoroutine(), b.open(0)
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		h.files = len(open)
	}
	names, err := os.ReadDir(x.dir)
	if err != nil {
		x.t.Fatal(err)
	}
	for _, n := range names {
		h.state += n.Name() + " "
	}
	return h
}

// TestSoak: 24 hours of a router that goes, fails, lies and stalls, of people and
// programs who change it, and of a line that varies and is followed, end with the
// memory, the goroutines, the descriptors and the files of half that time. In the
// second half the daemon is not killed, so what it gathers counts. It is an hour of one
// platform unless UNBLOAT_LONG=1. UNBLOAT_SEED gives another seed.
func TestSoak(t *testing.T) {
	await.NotShort(t)
	names, hours := []string{"freebsd"}, 1
	if os.Getenv("UNBLOAT_LONG") != "" {
		names, hours = slices.Sorted(maps.Keys(standIns())), 24
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			dir := inMemory(t)
			synctest.Test(t, func(t *testing.T) { soaks(t, name, dir, hours) })
		})
	}
}

func soaks(t *testing.T, name, dir string, hours int) {
	seed := seedOf(t, 7)
	x := newTown(t, name, dir, seed)
	b := &brook{clock: netio.NewClock()}
	x.setter = byTC{x.router}
	followed := x.driver.Retune != nil
	if followed && !x.follows {
		x.write("follow = true\n")
	}
	x.follow, x.follows = b.follow, false // random rates would only disturb
	x.start()
	defer func() { x.stop() }()
	rest := func() { // the router is fine, and its line is followed
		t.Helper()
		b.mu.Lock()
		b.broken = false
		b.mu.Unlock()
		x.settle()
		if s, _ := x.only().snapshot(); s.State == supervise.Waiting || s.State == supervise.Failing {
			x.afresh(name)
		}
		w := x.only()
		_, _ = w.call(t.Context(), func(ctx context.Context) (any, error) { return w.on(ctx, &Caller{does: "test"}, OnParams{}) })
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if s, _ := w.snapshot(); s.State != supervise.InPlace || (w.following.line() != nil) != followed {
			t.Fatalf("the router is fine, and the line is %+v", s)
		}
	}
	var first, last holds
	changes, events := 0, 0
	start := time.Now()
	begin := start
	var heaps []uint64 // kB, by the hour
	half := hours / 2
	for h := 0; h <= hours; h++ {
		for time.Since(begin) < time.Duration(h)*time.Hour {
			x.happen()
			events++
			b.mu.Lock()
			b.broken = x.random.IntN(8) == 0
			before := b.rates
			b.mu.Unlock()
			time.Sleep(time.Duration(1+x.random.IntN(120)) * time.Second)
			b.mu.Lock()
			if b.rates != before {
				changes++
			}
			b.mu.Unlock()
		}
		rest()
		last = x.holds(b)
		heaps = append(heaps, last.heap>>10)
		if h == half {
			first, x.lasting = last, true
		}
	}
	t.Logf("%v and %d events: %+v, then %+v; the heap by the hour is %d kB; the rates changed in %d of the pauses", time.Since(start), events, first, last, heaps, changes)
	if followed && changes < 3*hours {
		t.Errorf("the line was hardly followed: %d changes", changes)
	}
	const share, slack = 0.03, 96 << 10 // of the heap, and bytes more
	if float64(last.heap) > float64(first.heap)*(1+share)+slack {
		t.Errorf("the heap grew from %d to %d bytes", first.heap, last.heap)
	}
	if last.goroutines != first.goroutines || last.files > first.files || last.gauges != first.gauges {
		t.Errorf("left over: %+v, then %+v", first, last)
	}
	if strings.Contains(last.state, ".journal.json") || len(last.state) > len(first.state)+len(x.wan+".watchdog ") {
		t.Errorf("files are left over: %q, then %q", first.state, last.state)
	}
	w := x.only()
	if _, err := w.call(t.Context(), func(ctx context.Context) (any, error) { return w.revert(ctx, &Caller{does: "test"}) }); err != nil {
		t.Fatal(err)
	}
	now, err := x.backend.Observe(t.Context(), plan.Plan{WAN: x.wan}, nil)
	if err != nil {
		t.Fatal(err)
	}
	to, err := x.backend.Baseline(t.Context(), now, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, left, err := x.backend.Compare(now, to); err != nil || len(left) > 0 {
		t.Errorf("reverted, there is still %v %q", err, left)
	}
	if j, err := (&apply.Engine{Dir: dir}).Pending(x.wan); err != nil || j != nil {
		t.Errorf("a change is left open: %v %v", j, err)
	}
}
