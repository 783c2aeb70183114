package simlab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/internal/keep/delay"
	"unbloat/internal/keep/follow"
	"unbloat/lab/aqm"
	"unbloat/lab/scenario"
	"unbloat/lab/sim"
	"unbloat/unit"
)

// The simulated router's own probes: ICMP timestamps of 20 bytes, which tell the two
// ways apart in milliseconds, or echoes.
const (
	probeFrame   = 14 + 20 + 20
	routerHost   = 200 // a number that no machine of the home has
	reflectors   = 6
	farMost      = 12 * time.Millisecond // a reflector is so much further away than the server, at most
	followerSeed = 0x666f_6c6c_6f77_0000
)

// follower is the part of the daemon that follows the line, on a simulated router. It
// is its feed's Sources: package delay writes the probes and reads the segments here as
// on a router, and only sockets are simulated.
type follower struct {
	net    *sim.Network
	feed   *follow.Feed
	prober *delay.Prober
	watch  *delay.Watch
	probes []*sim.Stream // to each target
	asked  [][][]byte    // by target and number of the datagram; nil: dealt with
	seen   []int         // datagrams of each that have been dealt with
	next   unit.Instant
	sent   int  // probes
	call   bool // the home has one
	// For tests, where not nil.
	deaf   bool                             // to the flows' own delays
	coarse func(target int) bool            // it answers echoes only
	bend   func(target int, a *answer) bool // changes an answer; false loses it
	note   func(now unit.Instant, d follow.Decision)
}

// An answer is what a reflector sent back.
type answer struct {
	turned unit.Instant // when the probe was there
	at     unit.Instant // when the answer is taken for having come
}

// targets are the reflectors of the simulated router: two of each operator.
func targets() []delay.Target {
	var out []delay.Target
	for i := range reflectors {
		out = append(out, delay.Target{Addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + i)}), Operator: string(rune('a' + i/2)), Kind: delay.Echo})
	}
	return out
}

// boundsOf returns the shapers' bounds of a daemon's configuration. The usual rate is
// what a plan for the line would set.
func boundsOf(d *scenario.Daemon) [2]follow.Bounds {
	return [2]follow.Bounds{
		follow.Down: follow.BoundsOf(d.LeastDown, d.Down, d.MostDown, d.Down.Scale(plan.StartDown)),
		follow.Up:   follow.BoundsOf(d.LeastUp, d.Up, d.MostUp, d.Up.Scale(plan.StartUp)),
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
	c, err := follow.New(follow.ParamsOf(follow.Params{Rates: bounds}, targets()), h.net.Now())
	if err != nil {
		return nil, err
	}
	return &p, h.followBy(c)
}

// followBy lets a controller follow the line from now on.
func (h *house) followBy(c follow.Decider) error {
	random := rand.New(rand.NewPCG(h.random.Uint64(), followerSeed))
	f := &follower{
		net: h.net, feed: follow.NewFeed(c), next: h.net.Now(), asked: make([][][]byte, reflectors), seen: make([]int, reflectors),
		prober: delay.NewProber(targets(), 1, 1), watch: delay.NewWatch(delay.TrackerConfig{}),
	}
	for range reflectors {
		s, err := h.net.AddStream(sim.StreamParams{
			Direction: sim.Up, Host: routerHost, Frame: probeFrame, Echo: true, Start: h.net.Now(), ECN: aqm.NotECT,
			ExtraRTT: (time.Duration(random.Int64N(int64(farMost)))).Truncate(time.Millisecond),
		})
		if err != nil {
			return err
		}
		f.probes = append(f.probes, s)
	}
	for _, l := range h.scenario.Loads {
		f.call = f.call || l.Kind == scenario.WebRTC || l.Kind == scenario.VoIP
	}
	if h.scenario.Line.EchoOnly {
		f.coarse = func(int) bool { return true }
	}
	h.follower = f
	h.net.Tap(f.pass)
	return nil
}

// pass takes note of a TCP packet on the WAN, as a capture with the watch's filter does.
func (f *follower) pass(now unit.Instant, p sim.Stamped) {
	if f.deaf {
		return
	}
	// Stamps count milliseconds.
	stamp := func(at unit.Instant) uint32 { return uint32(at / unit.Instant(time.Millisecond)) }
	home := netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, 1}), uint16(1024+p.Flow%60000))
	server := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, byte(p.Server), 1}), 443)
	from, to := home, server
	if p.Direction == sim.Down {
		from, to = server, home
	}
	s := delay.Segment{
		Src: from.Addr(), Dst: to.Addr(), SrcPort: from.Port(), DstPort: to.Port(), Seq: p.Seq, Ack: p.Ack, Length: p.Length,
		Flags: delay.FlagAck, HasStamp: true, TSval: stamp(p.Sent), TSecr: stamp(p.Echo),
	}
	f.watch.Observe(now, p.Direction == sim.Up, &s)
}

// step lets the follower do what is due now.
func (f *follower) step(h *house, now unit.Instant) error {
	d, err := f.feed.Round(now, f)
	for _, w := range []struct {
		of follow.Direction
		is sim.Direction
	}{{follow.Down, sim.Down}, {follow.Up, sim.Up}} {
		if d.Change[w.of] {
			err = errors.Join(err, h.net.SetRate(w.is, d.Rate[w.of]))
		}
	}
	if err != nil {
		return fmt.Errorf("follow the line: %w", err)
	}
	if f.note != nil {
		f.note(now, d)
	}
	f.next = max(d.Next, now.Add(time.Millisecond))
	return nil
}

// Ask implements follow.Sources.
func (f *follower) Ask(now unit.Instant, i int) error {
	if p, ok := f.prober.Ask(now, i); ok {
		f.net.Send(f.probes[i])
		f.asked[i] = append(f.asked[i], slices.Clone(p.Data))
		f.sent++
	}
	return nil
}

// Read implements follow.Sources.
func (f *follower) Read(now unit.Instant, receive func(delay.Sample)) error {
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
		if first < 0 {
			break
		}
		k := f.seen[first]
		f.seen[first]++
		g, asked := f.probes[first].Sent()[k], f.asked[first][k]
		f.asked[first][k] = nil
		a := answer{g.Turn, g.Back}
		if f.bend != nil && !f.bend(first, &a) {
			continue
		}
		if b := f.reply(first, asked, a.turned); b != nil {
			if s, ok := f.prober.ICMP(a.at, f.prober.Target(first).Addr, b); ok {
				receive(s)
			}
		}
	}
	f.prober.Expire(now)
	f.watch.Collect(now, receive)
	return nil
}

// reply returns what a reflector answers to an ICMP message; nil: nothing.
func (f *follower) reply(i int, asked []byte, at unit.Instant) []byte {
	const echo, echoReply, stampReply, received, left = 8, 0, 14, 12, 16
	b := slices.Clone(asked)
	switch {
	case b[0] == echo:
		b[0] = echoReply
	case f.coarse != nil && f.coarse(i):
		return nil
	default:
		// The far clock has an offset of its own, and milliseconds.
		const day = 24 * time.Hour
		clock := uint32(at.Add(time.Duration(i+1)*12345*time.Microsecond) % unit.Instant(day) / unit.Instant(time.Millisecond))
		b[0] = stampReply
		binary.BigEndian.PutUint32(b[received:], clock)
		binary.BigEndian.PutUint32(b[left:], clock)
	}
	return b
}

// Count implements follow.Sources.
func (f *follower) Count(now unit.Instant) (follow.Reading, error) {
	k := counters(f.net, now)
	for d := range k.Way {
		x := f.watch.Loss(d == int(follow.Up))
		k.Way[d].Seen, k.Way[d].Lost = x.Seen, x.Line
	}
	k.Call = f.call
	return follow.Reading{Counters: k}, nil
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
