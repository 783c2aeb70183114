package simlab

import (
	"time"

	"unbloat/internal/keep/follow"
	"unbloat/unit"
)

// autorate is a model of cake-autorate's rules, for comparison: six reflectors, each
// asked every 0.3 s; one-way delays are half the round trip; a slow average is the
// baseline; three of the last six samples 30 ms above it are bloat, which cuts by 1 to
// 25 % as their mean grows from 30 to 60 ms, at most every 0.3 s; above 75 % of load
// the rate grows by up to 4 % every 0.2 s. It is a model, not the program: the lab runs that.
type autorate struct {
	bounds  [2]follow.Bounds
	rate    [2]float64
	base    [reflectors]float64 // ms, one way
	heard   [reflectors]bool
	deltas  [6]float64
	n       int
	turn    int
	asked   unit.Instant
	load    [2]float64
	last    follow.Counters
	cutAt   [2]unit.Instant
	riseAt  [2]unit.Instant
	decayAt [2]unit.Instant
}

func newAutorate(b [2]follow.Bounds, now unit.Instant) *autorate {
	a := &autorate{bounds: b, asked: now.Add(-time.Second)}
	for d := range a.rate {
		a.rate[d] = float64(b[d].Usual)
	}
	return a
}

func (a *autorate) Ask(now unit.Instant) (int, bool) {
	if now.Sub(a.asked) < 50*time.Millisecond {
		return 0, false
	}
	a.asked = now
	a.turn = (a.turn + 1) % reflectors
	return a.turn, true
}

// Applied is nothing to it: it takes its rates for set.
func (a *autorate) Applied(unit.Instant, follow.Direction, unit.Rate) {}

func (a *autorate) Delay(d follow.Delay) {
	if d.Passive {
		return
	}
	owd := unit.Ms(d.RTT) / 2
	i := d.Source
	if !a.heard[i] {
		a.heard[i], a.base[i] = true, owd
	}
	alpha := 0.001
	if owd < a.base[i] {
		alpha = 0.9
	}
	a.base[i] += alpha * (owd - a.base[i])
	a.deltas[a.n%6] = owd - a.base[i]
	a.n++
}

func (a *autorate) Count(c follow.Counters) {
	if a.last.At != 0 && c.At.Sub(a.last.At) < 200*time.Millisecond {
		return
	}
	for d := range a.load {
		if a.last.At != 0 {
			a.load[d] = float64(c.Way[d].Bytes-a.last.Way[d].Bytes) * 8 / c.At.Sub(a.last.At).Seconds()
		}
	}
	a.last = c
}

func (a *autorate) Step(now unit.Instant) follow.Decision {
	out := follow.Decision{Next: now.Add(50 * time.Millisecond)}
	late, sum := 0, 0.0
	for _, x := range a.deltas {
		if x > 30 {
			late++
		}
		sum += x / 6
	}
	for d := range a.rate {
		b := a.bounds[d]
		share := a.load[d] / a.rate[d]
		next := a.rate[d]
		switch {
		case late >= 3:
			if now.Sub(a.cutAt[d]) >= 300*time.Millisecond {
				next *= 0.99 - 0.24*min(max((sum-30)/30, 0), 1)
				a.cutAt[d], a.decayAt[d] = now, now
			}
		case share > 0.75:
			if now.Sub(a.riseAt[d]) >= 200*time.Millisecond && now.Sub(a.cutAt[d]) >= 300*time.Millisecond {
				next *= 1 + 0.04*(1-min(max(sum, 0)/30, 1))
				a.riseAt[d], a.decayAt[d] = now, now
			}
		case now.Sub(a.decayAt[d]) >= time.Second:
			a.decayAt[d] = now
			if usual := float64(b.Usual); next > usual {
				next = max(next*0.99, usual)
			} else {
				next = min(next*1.01, usual)
			}
		}
		next = min(max(next, float64(b.Least)), float64(b.Most))
		out.Change[d] = unit.Rate(next) != unit.Rate(a.rate[d])
		a.rate[d] = next
		out.Rate[d] = unit.Rate(next)
	}
	return out
}
