package follow

import (
	"math"
	"testing"
	"time"

	"unbloat/unit"
)

// lossy is a line whose queue holds so little that no delay tells of it.
func lossy(t *testing.T) *fluid {
	f := newFluid(t, usual())
	f.oneWay = false
	f.room = 8 * time.Millisecond
	return f
}

// A line that falls and drops what does not fit, in place of letting it wait, is cut to
// what comes through within two seconds, and stays there; what was too much is not tried
// again at once. When it has more again, it is found.
func TestLosing(t *testing.T) {
	for d := Down; d <= Up; d++ {
		f := lossy(t)
		f.load[d] = 1e9
		f.run(20 * time.Second)
		capacity := f.capacity[d]
		f.capacity[d] /= 2
		f.changes = nil
		f.run(2 * time.Second)
		least := math.Inf(1)
		for _, x := range f.changes {
			least = min(least, float64(x.Rate[d]))
		}
		if least > f.capacity[d] || least < 0.85*f.capacity[d] {
			t.Errorf("%v: %.1f Mbit/s, the line has %.1f", d, least/1e6, f.capacity[d]/1e6)
		}
		seen, lost, bytes := f.seen[d], f.lost[d], f.bytes[d]
		f.run(time.Minute)
		share := (f.lost[d] - lost) / (f.seen[d] - seen)
		used := (f.bytes[d] - bytes) * 8 / 60 / f.capacity[d]
		t.Logf("%v: lost %.4f, used %.3f", d, share, used)
		if share > 0.01 || used < 0.88 {
			t.Errorf("%v: %.4f are lost, %.3f used", d, share, used)
		}
		f.capacity[d] = capacity
		f.run(15 * time.Second)
		if r := float64(f.last.Rate[d]); r < 0.85*capacity {
			t.Errorf("%v: %.1f Mbit/s when the line has %.1f again", d, r/1e6, capacity/1e6)
		}
	}
}

// What a line loses whatever it carries cuts nothing: once two lower rates are tried,
// and taken back.
func TestRadioLoss(t *testing.T) {
	for d := Down; d <= Up; d++ {
		f := newFluid(t, usual())
		f.load[d] = 1e9
		f.run(20 * time.Second)
		bytes := f.bytes[d]
		f.run(time.Minute)
		clean := f.bytes[d] - bytes
		f.radio, bytes = 0.01, f.bytes[d]
		f.run(time.Minute)
		tried := 0
		for _, x := range f.changes {
			if x.Change[d] && x.Why[d].Cause == Loss {
				tried++
			}
		}
		if share := (f.bytes[d] - bytes) / clean; share < 0.98 || tried > 2 {
			t.Errorf("%v: %.3f of what it carries without loss, %d cuts", d, share, tried)
		}
		if own := f.c.ways[d].loss.own; own < 0.008 || own > 0.015 {
			t.Errorf("%v: %.4f is taken for its own", d, own)
		}
		f.radio = 0
		f.run(30 * time.Second)
		if own := f.c.ways[d].loss.own; own > 0.003 {
			t.Errorf("%v: %.4f is taken for its own on a line that loses no more", d, own)
		}
	}
}

// An outage loses as much at once as a queue in seconds, and is over; what is lost while
// packets wait is a full buffer's.
func TestLossOfOther(t *testing.T) {
	for d := Down; d <= Up; d++ {
		f := newFluid(t, usual())
		f.load[d] = 1e9
		f.run(20 * time.Second)
		f.changes = nil
		f.lost[d] += 500
		f.run(10 * time.Second)
		f.capacity[d] /= 2
		f.room = 300 * time.Millisecond
		f.run(10 * time.Second)
		for _, x := range f.changes {
			if x.Change[d] && x.Why[d].Cause == Loss {
				t.Errorf("%v: cut to %v for what was lost", d, x.Rate[d])
			}
		}
	}
}

// What is lost is in the log, and decides the same again.
func TestReplayLoss(t *testing.T) {
	f := lossy(t)
	replays(t, f, func() {
		f.load = [2]float64{1e9, 1e9}
		f.run(10 * time.Second)
		f.capacity = [2]float64{20e6, 4e6}
		f.run(10 * time.Second)
	})
	for d := Down; d <= Up; d++ {
		if r := f.last.Rate[d]; r > unit.Rate(1.05*f.capacity[d]) {
			t.Errorf("%v: %v", d, r)
		}
	}
}

// Where reflectors tell round trips only, connections' stamps tell whose queue it is: with
// load in both directions the one that does not queue is left alone.
func TestPartByFlows(t *testing.T) {
	for d := Down; d <= Up; d++ {
		f := newFluid(t, usual())
		f.oneWay = false
		f.greedy()
		f.answer = func(at unit.Instant, _ int, x *Delay) bool {
			for flow := range uint32(2) {
				p := *x
				p.Passive, p.Source, p.Operator, p.OneWay = true, 100+flow, 100+flow, true
				f.waiting = append(f.waiting, p)
			}
			return true
		}
		f.run(20 * time.Second)
		f.capacity[d] /= 2
		f.changes = nil
		f.run(5 * time.Second)
		other := 1 - d
		for _, x := range f.changes {
			if x.Change[other] && float64(x.Rate[other]) < 0.8*f.capacity[other] {
				t.Errorf("%v queues, and %v is cut to %v", d, other, x.Rate[other])
			}
		}
		if r := float64(f.last.Rate[d]); r > 1.05*f.capacity[d] || r < 0.8*f.capacity[d] {
			t.Errorf("%v: %.1f Mbit/s, the line has %.1f", d, r/1e6, f.capacity[d]/1e6)
		}
	}
}

// Who has never answered tells of no outage: the timestamps that a daemon asks for first
// are not answered everywhere.
func TestNoOutageWithoutAnswers(t *testing.T) {
	f := newFluid(t, usual())
	f.answer = func(unit.Instant, int, *Delay) bool { return false }
	f.run(5 * time.Second)
	for _, x := range f.changes {
		if x.Why[Up].Cause == Outage {
			t.Fatalf("an outage: %+v", x.Why[Up])
		}
	}
}
