package follow_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"unbloat/internal/keep/delay"
	"unbloat/internal/keep/follow"
	"unbloat/unit"
)

// heard is a controller that only listens.
type heard struct {
	ask     int
	delays  []follow.Delay
	counts  []follow.Counters
	applied map[follow.Direction]unit.Rate
}

func (h *heard) Ask(unit.Instant) (int, bool) { return h.ask, h.ask >= 0 }
func (h *heard) Delay(d follow.Delay)         { h.delays = append(h.delays, d) }
func (h *heard) Count(c follow.Counters)      { h.counts = append(h.counts, c) }
func (h *heard) Applied(_ unit.Instant, d follow.Direction, r unit.Rate) {
	h.applied[d] = r
}
func (h *heard) Step(now unit.Instant) follow.Decision { return follow.Decision{Next: now.Add(1)} }

// given are sources with fixed answers.
type given struct {
	samples []delay.Sample
	reading follow.Reading
	asked   []int
	fails   error
}

func (g *given) Ask(_ unit.Instant, i int) error { g.asked = append(g.asked, i); return nil }
func (g *given) Read(_ unit.Instant, receive func(delay.Sample)) error {
	for _, s := range g.samples {
		receive(s)
	}
	return nil
}
func (g *given) Count(unit.Instant) (follow.Reading, error) { return g.reading, g.fails }

// Both ways of a network's connections are sources of their own, of one operator.
func TestPassiveWays(t *testing.T) {
	h := &heard{ask: 3, applied: map[follow.Direction]unit.Rate{}}
	net := netip.MustParseAddr("198.51.100.0")
	g := &given{samples: []delay.Sample{
		{At: 30, Kind: delay.Passive, Index: -1, Source: net, Way: delay.Up, RTT: 7},
		{At: 10, Kind: delay.Passive, Index: -1, Source: net, Way: delay.Down, RTT: 8},
		{At: 20, Kind: delay.Stamp, Index: 2, Source: net, RTT: 9, OneWay: true, Up: 4, Down: 5},
	}}
	g.reading.Rates[follow.Up] = 5
	if _, err := follow.NewFeed(h).Round(40, g); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(g.asked, []int{3}) || len(h.counts) != 1 || len(h.applied) != 1 || h.applied[follow.Up] != 5 {
		t.Errorf("asked %v, counted %v, applied %v", g.asked, h.counts, h.applied)
	}
	d := h.delays
	if len(d) != 3 || d[0].RTT != 8 || d[1].RTT != 9 || d[2].RTT != 7 {
		t.Fatalf("not in the order in which they came: %+v", d)
	}
	if d[0].Source == d[2].Source || d[0].Operator != d[2].Operator || !d[0].Passive || d[0].OneWay {
		t.Errorf("%+v and %+v", d[0], d[2])
	}
	if x := d[1]; x.Passive || x.Source != 2 || !x.OneWay || x.Up != 4 || x.Down != 5 {
		t.Errorf("%+v", x)
	}
}

// A source that fails is named, and the rest goes on.
func TestSourceFails(t *testing.T) {
	h := &heard{ask: -1}
	fails := errors.New("gone")
	d, err := follow.NewFeed(h).Round(40, &given{fails: fails})
	if !errors.Is(err, fails) || d.Next != 41 || len(h.counts) != 0 {
		t.Errorf("%v, %+v", err, d)
	}
}

// Whatever comes, and in whatever order, the controller hears all of it in order.
func TestInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var g given
		for range rapid.IntRange(0, 40).Draw(t, "samples") {
			g.samples = append(g.samples, delay.Sample{At: unit.Instant(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "at")), Kind: delay.Echo, RTT: 1})
		}
		h := &heard{ask: -1}
		if _, err := follow.NewFeed(h).Round(0, &g); err != nil {
			t.Fatal(err)
		}
		if len(h.delays) != len(g.samples) || !slices.IsSortedFunc(h.delays, func(a, b follow.Delay) int { return int(a.At - b.At) }) {
			t.Fatalf("%+v of %+v", h.delays, g.samples)
		}
	})
}

// What targets there are, and how often they may be asked.
func TestParams(t *testing.T) {
	p := follow.ParamsOf(follow.Params{ProbeIdle: time.Minute}, delay.Choose(delay.Resolvers(), true, false))
	if len(p.Reflectors) != 7 || p.ProbeIdle != time.Minute || p.ProbeBusy < 100*time.Millisecond || p.ProbeBusy > 200*time.Millisecond {
		t.Errorf("%+v", p)
	}
	if last := p.Reflectors[6]; last.Operator != 0 || p.Reflectors[0].Operator == p.Reflectors[1].Operator {
		t.Errorf("operators %+v", p.Reflectors)
	}
}
