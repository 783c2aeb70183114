package verdict

import (
	"math"
	"testing"
	"time"

	"unbloat/internal/measure/probe"
	"unbloat/unit"
)

// senders returns samples of a group every half second. of returns the
// acknowledged bytes, and those behind a hole, after s seconds.
func senders(start unit.Instant, n int, of func(s float64) (acked, sacked int64)) []probe.SenderSample {
	var out []probe.SenderSample
	for i := range n {
		d := time.Duration(i) * 500 * time.Millisecond
		s := probe.SenderSample{At: start.Add(d), Flows: 1, Known: true}
		s.Acked, s.Sacked = of(d.Seconds())
		out = append(out, s)
	}
	return out
}

// A hole that is filled just before the end brings six seconds of data in order
// at once. The delivered rate is the line's even then.
func TestDeliveredBehindAHole(t *testing.T) {
	const start, rate = unit.Instant(1e9), 125000.0 // bytes a second
	g := senders(start, 21, func(s float64) (int64, int64) {
		all := int64(rate * s)
		if s > 1.5 && s < 7.5 { // lost at 1.5 s, sent again at 7.5 s
			return int64(rate * 1.5), all - int64(rate*1.5)
		}
		return all, 0
	})
	from, to := start.Add(2*time.Second), start.Add(7750*time.Millisecond)
	got, ok := Delivered([][]probe.SenderSample{g, g}, from, to)
	if want := 2 * 8 * rate; !ok || math.Abs(got/want-1) > 1e-4 {
		t.Errorf("two groups delivered %.0f bit/s (%v), want %.0f", got, ok, want)
	}
	// The bytes acknowledged in order alone give another figure.
	for i := range g {
		g[i].Sacked = 0
	}
	if in, _ := Delivered([][]probe.SenderSample{g}, from, to); in < 1.05*8*rate && in > 0.95*8*rate {
		t.Errorf("in order alone the line is right too (%.0f bit/s): the test shows nothing", in)
	}
}

// No figure is given if the system does not provide the counts, or too few of
// them.
func TestDeliveredUnknown(t *testing.T) {
	const start = unit.Instant(1e9)
	steady := func(s float64) (int64, int64) { return int64(125000 * s), 0 }
	mute := senders(start, 21, steady)
	mute[9].Known = false
	for name, groups := range map[string][][]probe.SenderSample{
		"no sender":   nil,
		"no samples":  {nil},
		"too few":     {senders(start, leastDelivered-1, steady)},
		"not known":   {mute},
		"one of two":  {senders(start, 21, steady), mute},
		"not counted": {senders(start, 21, func(float64) (int64, int64) { return 0, 0 })},
		"at once":     {make([]probe.SenderSample, 20)},
	} {
		if bps, ok := Delivered(groups, start, start.Add(10*time.Second)); ok {
			t.Errorf("%s: %.0f bit/s", name, bps)
		}
	}
}

// A receiver that cannot distinguish data behind holes from duplicates may see
// a rise where there is none, but the senders' counts show the truth. A rate
// that rises for both is rising.
func TestRisingByTheSendersToo(t *testing.T) {
	const start = unit.Instant(1e9)
	raw := Raw{From: start, To: start.Add(9 * time.Second), Greedy: true, Up: []Series{{Start: start, Bin: time.Second}}}
	for i := range int64(9) {
		raw.Up[0].Bytes = append(raw.Up[0].Bytes, 30000+5000*i)
	}
	for name, c := range map[string]struct {
		of    func(s float64) (int64, int64)
		rises bool
	}{
		"steady":    {func(s float64) (int64, int64) { return int64(20000 * s), int64(70000 * s) }, false},
		"rising":    {func(s float64) (int64, int64) { return int64(20000 * s * s), 0 }, true},
		"not known": {nil, true},
	} {
		raw.UpSenders = nil
		if c.of != nil {
			g := senders(start, 19, c.of)
			for i := range g {
				g[i].Busy = g[i].At.Sub(start)
			}
			raw.UpSenders = [][]probe.SenderSample{g}
		}
		l := raw.direction("up", raw.Up, raw.UpSenders)
		if why := l.unsaturated(); (why != nil) != c.rises {
			t.Errorf("%s: %v", name, why)
		}
	}
}
