package simlab

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sort"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/probe"
	"unbloat/internal/measure/verdict"
	"unbloat/lab/aqm"
	"unbloat/lab/scenario"
	"unbloat/lab/sim"
	"unbloat/unit"
)

const (
	udpHeaders = 14 + 20 + 8 // Ethernet, IPv4, UDP
	grace      = phases.Grace
	lookEvery  = 500 * time.Millisecond // at the senders, as package netio does
	startSpan  = 2 * time.Millisecond   // within which the flows of a group start
	modemBurst = 1600                   // of the lab's modem
	atmBurst   = 2048
)

// house is a simulated home that can be measured like a real one: it is a
// tune.Meter and a tune.Router.
type house struct {
	net      *sim.Network
	scenario *scenario.Scenario
	platform string
	random   *rand.Rand
	interval time.Duration
	probe    *sim.Stream
	settling phases.Settling
	changes  []scenario.Change
	changed  unit.Instant // origin of the changes' times
	queues   uint64       // shapings so far: each has chance of its own
	follower *follower    // nil: the rates stay
	// changing is told of each change of the line, for tests; it may be nil.
	changing func(scenario.Change) error
}

// newHouse builds the home and the line of a scenario.
func newHouse(s *scenario.Scenario, platform string, seed uint64) (*house, error) {
	random := rand.New(rand.NewPCG(seed, 0x756e_626c_6f61_7400))
	wire := sim.Wire{Delay: s.Line.RTT / 2, Jitter: s.Line.Jitter / 2, Loss: s.Line.Loss}
	net, err := sim.New(sim.Params{
		Up: bottleneck(s.Line, s.Line.Up, s.Line.BufferUp), Down: bottleneck(s.Line, s.Line.Down, s.Line.BufferDown),
		UpWire: wire, DownWire: wire, Random: random,
	})
	if err != nil {
		return nil, err
	}
	h := &house{net: net, scenario: s, platform: platform, random: random, interval: s.Probe.Interval}
	if h.interval == 0 {
		h.interval = phases.DefaultInterval
	}
	frame := max(unit.Size(s.Probe.Bytes), probe.MinSize) + udpHeaders
	h.settling.Interval = h.interval
	h.probe, err = net.AddStream(sim.StreamParams{
		Direction: sim.Up, Host: 1, Interval: h.interval, Frame: frame, Echo: true, ExtraRTT: s.Home.AwayOf(1),
		Start: unit.Instant(random.Int64N(int64(h.interval))),
	})
	return h, err
}

// bottleneck is the lab's modem in one direction (lab's wiring.go).
func bottleneck(l scenario.Line, rate unit.Rate, buffer unit.Size) sim.Bottleneck {
	b := sim.Bottleneck{Rate: rate, Buffer: buffer, Burst: modemBurst}
	if l.HeadDrop > 0 {
		b.HeadDrop = l.HeadDropPackets(rate)
	}
	b.Framing.Overhead, b.Framing.Minimum = unit.Size(l.Overhead), unit.Size(l.MPU)
	switch l.LinkLayer {
	case "atm":
		b.Framing.Cells, b.Burst = aqm.ATM, atmBurst
	case "ptm":
		b.Rate = rate * 64 / 65
	}
	return b
}

// run lets time pass, with the line's changes and what follows them.
func (h *house) run(until unit.Instant) error {
	for {
		at := until
		change := len(h.changes) > 0 && !at.Before(h.changed.Add(h.changes[0].At))
		if change {
			at = h.changed.Add(h.changes[0].At)
		}
		if h.follower != nil && h.follower.next < at {
			h.net.RunUntil(h.follower.next)
			if err := h.follower.step(h, h.follower.next); err != nil {
				return err
			}
			continue
		}
		h.net.RunUntil(at)
		if !change {
			return nil
		}
		if err := h.change(h.changes[0]); err != nil {
			return err
		}
		h.changes = h.changes[1:]
	}
}

// change lets the line have other rates.
func (h *house) change(c scenario.Change) error {
	l := h.scenario.Line
	if c.Down > 0 || c.Exact {
		if err := h.net.SetBottleneck(sim.Down, bottleneck(l, c.Down, l.BufferDown)); err != nil {
			return err
		}
	}
	if c.Up > 0 || c.Exact {
		if err := h.net.SetBottleneck(sim.Up, bottleneck(l, c.Up, l.BufferUp)); err != nil {
			return err
		}
	}
	if h.changing != nil {
		return h.changing(c)
	}
	return nil
}

// vary lets the line change from now on as the scenario says.
func (h *house) vary() { h.changes, h.changed = h.scenario.Line.Vary, h.net.Now() }

// Shape implements tune.Router.
func (h *house) Shape(_ context.Context, p plan.Plan) error {
	h.queues++
	k := newClassifier(p)
	up := h.net.Shape(sim.Up, shaping(p.Platform, p.Up, k.mark(sim.Up), 2*h.queues))
	down := h.net.Shape(sim.Down, shaping(p.Platform, p.Down, k.mark(sim.Down), 2*h.queues+1))
	return errors.Join(up, down)
}

// Commit implements tune.Router.
func (h *house) Commit(context.Context, plan.Plan) error { return nil }

// Revert implements tune.Router.
func (h *house) Revert(context.Context) error {
	return h.Shape(context.Background(), plan.Plan{})
}

// Now is the simulated time, for package tune.
func (h *house) Now() time.Time { return time.Unix(0, int64(h.net.Now())).UTC() }

// Judge implements tune.Meter.
func (h *house) Judge(label string, raws []phases.RawPhase) *verdict.Test {
	return verdict.Judge(verdict.Meta{Time: h.Now().Format(time.RFC3339), Label: label, Server: "simulated"}, raws)
}

// Phase implements tune.Meter.
func (h *house) Phase(ctx context.Context, spec phases.PhaseSpec) (*phases.RawPhase, error) {
	start := h.net.Now()
	raw := spec.WithDefaults().Raw(start, h.interval)
	var groups []*group
	for _, d := range []struct {
		direction sim.Direction
		flows     int
	}{{sim.Down, spec.FlowsDown}, {sim.Up, spec.FlowsUp}} {
		if d.flows == 0 {
			continue
		}
		from := start
		if d.direction == sim.Up && spec.FlowsDown > 0 {
			// Asking the server to send takes a round trip before asking it to
			// receive takes another.
			from = start.Add(h.scenario.Line.RTT * 3 / 2)
		}
		g, err := h.greedy(d.direction, d.flows, 1, spec.CC, false, from, raw.End)
		if err != nil {
			return nil, err
		}
		groups = append(groups, g)
	}
	if err := h.during(ctx, raw.End, groups); err != nil {
		return nil, err
	}
	for _, g := range groups {
		g.file(raw)
	}
	if err := h.settle(ctx, raw.End, len(groups) > 0); err != nil {
		return nil, err
	}
	raw.Samples = h.samples(h.probe, raw.Start, raw.End)
	if spec.Name == verdict.PhaseIdle {
		h.settling.Learn(raw)
	}
	return raw, nil
}

// during lets time pass and looks at the senders meanwhile.
func (h *house) during(ctx context.Context, until unit.Instant, groups []*group) error {
	for {
		for _, g := range groups {
			g.look(h.net.Now())
		}
		now := h.net.Now()
		if !now.Before(until) {
			return nil
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := h.run(min(now.Add(lookEvery), until)); err != nil {
			return err
		}
	}
}

// settle waits as a phase does in its end.
func (h *house) settle(ctx context.Context, end unit.Instant, loaded bool) error {
	return h.settling.Wait(h, end, loaded, h.net.Now, func(d time.Duration) error {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		return h.run(h.net.Now().Add(d))
	})
}

// Settled implements phases.Probes: every probe sent before end has met its fate, or is
// too old to count.
func (h *house) Settled(end unit.Instant) (bool, error) {
	now := h.net.Now()
	for _, d := range slices.Backward(h.probe.Sent()) {
		if d.Sent < end && now.Sub(d.Sent) > grace {
			break
		}
		if d.Sent < end && (d.Fate == sim.UnderWay || d.Fate == sim.Arrived) {
			return false, nil
		}
	}
	return true, nil
}

// Samples implements phases.Probes.
func (h *house) Samples(from, to unit.Instant) ([]probe.Sample, []probe.Skip) {
	return h.samples(h.probe, from, to), nil
}

// samples returns the datagrams of a stream sent in [from, to) as probes.
func (h *house) samples(s *sim.Stream, from, to unit.Instant) []probe.Sample {
	all := s.Sent()
	fates := map[sim.Fate]probe.Fate{
		sim.UnderWay: probe.LostUp, sim.Arrived: probe.LostDown, sim.Answered: probe.Answered,
		sim.LostOut: probe.LostUp, sim.LostBack: probe.LostDown,
	}
	first := sort.Search(len(all), func(i int) bool { return !all[i].Sent.Before(from) })
	var out []probe.Sample
	for i := first; i < len(all) && all[i].Sent.Before(to); i++ {
		d := &all[i]
		out = append(out, probe.Sample{
			Seq: uint32(i), Scheduled: d.Sent, Sent: d.Sent, Received: d.Back,
			ServerReceived: d.Turn, ServerSent: d.Turn, Fate: fates[d.Fate],
		})
	}
	return out
}
