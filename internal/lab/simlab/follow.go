package simlab

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"unbloat/aqm"
	"unbloat/internal/follow"
	"unbloat/internal/lab/scenario"
	"unbloat/internal/plan"
	"unbloat/sim"
	"unbloat/unit"
)

// The simulated router's own probes: ICMP timestamps of 20 bytes, which tell the two
// ways apart in milliseconds, or echoes.
const (
	probeFrame   = 14 + 20 + 20
	routerHost   = 200 // a number that no machine of the home has
	reflectors   = 6
	stampsOf     = time.Millisecond
	farMost      = 12 * time.Millisecond // a reflector is so much further away than the server, at most
	leastShare   = 10                    // the least rate is a tenth of the usual one
	mostNum      = 12                    // the most is 12/10
	followerSeed = 0x666f_6c6c_6f77_0000
)

// A brain decides the rates of a followed line: follow.Controller, and in tests what
// it is compared with.
type brain interface {
	Ask(now unit.Instant) (reflector int, ok bool)
	Delay(d follow.Delay)
	Count(c follow.Counters)
	Step(now unit.Instant) follow.Decision
}

// follower is the part of the daemon that follows the line, on a simulated router.
type follower struct {
	brain  brain
	probes []*sim.Stream
	seen   []int // datagrams of each that have been dealt with
	next   unit.Instant
	coarse bool // round trips only, as of echoes
	flows  follow.Flows
	told   []follow.Delay // of flows, since the last step
	sent   int            // probes
	// For tests, where not nil.
	bend func(reflector int, d *follow.Delay) bool // changes an answer; false loses it
	note func(now unit.Instant, d follow.Decision)
}

// boundsOf returns the shapers' bounds of a daemon's configuration. The usual rate is
// what a plan for the line would set.
func boundsOf(d *scenario.Daemon) [2]follow.Bounds {
	of := func(least, usual, most unit.Rate, share float64) follow.Bounds {
		b := follow.Bounds{Least: least, Usual: usual.Scale(share), Most: most}
		if b.Least == 0 {
			b.Least = usual / leastShare
		}
		if b.Most == 0 {
			b.Most = usual * mostNum / 10
		}
		b.Usual = max(b.Usual, b.Least)
		return b
	}
	return [2]follow.Bounds{
		follow.Down: of(d.LeastDown, d.Down, d.MostDown, plan.StartDown),
		follow.Up:   of(d.LeastUp, d.Up, d.MostUp, plan.StartUp),
	}
}

// daemon puts the router into the state in which `unbloat daemon` keeps it.
func (h *house) daemon(ctx context.Context, d *scenario.Daemon) (*plan.Plan, error) {
	bounds := boundsOf(d)
	p, err := fix(h.scenario, h.platform, &scenario.Fix{AQM: string(plan.CAKE), Down: bounds[follow.Down].Usual, Up: bounds[follow.Up].Usual})
	if err != nil {
		return nil, err
	}
	if err := h.Shape(ctx, p); err != nil {
		return nil, err
	}
	if !d.Follow {
		return &p, nil
	}
	params := follow.Params{Rates: bounds}
	for i := range reflectors {
		params.Reflectors = append(params.Reflectors, follow.Reflector{Operator: uint32(1 + i/2)})
	}
	c, err := follow.New(params, h.net.Now())
	if err != nil {
		return nil, err
	}
	return &p, h.followBy(c)
}

// followBy lets a brain follow the line from now on.
func (h *house) followBy(b brain) error {
	random := rand.New(rand.NewPCG(h.random.Uint64(), followerSeed))
	f := &follower{brain: b, next: h.net.Now()}
	for range reflectors {
		s, err := h.net.AddStream(sim.StreamParams{
			Direction: sim.Up, Host: routerHost, Frame: probeFrame, Echo: true, Start: h.net.Now(), ECN: aqm.NotECT,
			ExtraRTT: (time.Duration(random.Int64N(int64(farMost)))).Truncate(time.Millisecond),
		})
		if err != nil {
			return err
		}
		f.probes, f.seen = append(f.probes, s), append(f.seen, 0)
	}
	h.follower = f
	h.net.Tap(f.pass)
	return nil
}

// serverNet is the operator of all flows' far ends.
const serverNet = 1000

// pass takes note of a TCP packet on the WAN. Timestamps count milliseconds.
func (f *follower) pass(now unit.Instant, p sim.Stamped) {
	if p.Direction == sim.Up {
		f.flows.Out(now, p.Flow, stampOf(p.Sent))
	} else if p.Echo > 0 {
		if d, ok := f.flows.In(now, p.Flow, serverNet, stampOf(p.Echo)); ok {
			f.told = append(f.told, d)
		}
	}
}

func stampOf(at unit.Instant) uint32 { return uint32(at / unit.Instant(time.Millisecond)) }

// step lets the follower do what is due now.
func (f *follower) step(h *house, now unit.Instant) error {
	f.answers(h, now)
	f.brain.Count(counters(h.net, now))
	d := f.brain.Step(now)
	for {
		i, ok := f.brain.Ask(now)
		if !ok {
			break
		}
		h.net.Send(f.probes[i])
		f.sent++
	}
	for _, w := range []struct {
		of follow.Direction
		is sim.Direction
	}{{follow.Down, sim.Down}, {follow.Up, sim.Up}} {
		if !d.Change[w.of] {
			continue
		}
		if err := h.net.SetRate(w.is, d.Rate[w.of]); err != nil {
			return fmt.Errorf("follow the line: %w", err)
		}
	}
	if f.note != nil {
		f.note(now, d)
	}
	f.next = max(d.Next, now+1)
	return nil
}

// answers hands on the answers that have come, and the flows' round trips, in the order
// in which they came.
func (f *follower) answers(h *house, now unit.Instant) {
	told := f.told
	for {
		first, at := -1, now+1
		for i, s := range f.probes {
			all := s.Sent()
			for f.seen[i] < len(all) && (all[f.seen[i]].Fate == sim.LostOut || all[f.seen[i]].Fate == sim.LostBack) {
				f.seen[i]++
			}
			if k := f.seen[i]; k < len(all) && all[k].Fate == sim.Answered && all[k].Back < at {
				first, at = i, all[k].Back
			}
		}
		for len(told) > 0 && told[0].At < at {
			f.brain.Delay(told[0])
			told = told[1:]
		}
		if first < 0 {
			f.told = f.told[:0]
			return
		}
		g := f.probes[first].Sent()[f.seen[first]]
		f.seen[first]++
		d := follow.Delay{At: g.Back, Source: uint32(first), RTT: g.Back.Sub(g.Sent)}
		if !f.coarse {
			// The far clock has an offset of its own, and milliseconds.
			turn := g.Turn.Add(time.Duration(first+1) * 12345 * time.Microsecond)
			turn -= turn % unit.Instant(stampsOf)
			d.OneWay, d.Up, d.Down = true, turn.Sub(g.Sent), g.Back.Sub(turn)
		}
		if f.bend == nil || f.bend(first, &d) {
			f.brain.Delay(d)
		}
	}
}

// counters reads the router's counters.
func counters(net *sim.Network, now unit.Instant) follow.Counters {
	c := follow.Counters{At: now}
	for _, w := range []struct {
		of    follow.Direction
		is    sim.Direction
		bytes unit.Size
	}{
		{follow.Down, sim.Down, net.Bottleneck(sim.Down).SentBytes},
		{follow.Up, sim.Up, net.Bottleneck(sim.Up).OfferedBytes},
	} {
		s := net.Shaper(w.is)
		c.Way[w.of] = follow.Count{Bytes: w.bytes, Backlog: s.Backlog, Drops: s.Dropped}
	}
	return c
}
