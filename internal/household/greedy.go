package household

import (
	"context"
	"time"

	"unbloat/internal/measure"
	"unbloat/internal/probe"
	"unbloat/internal/scenario"
	"unbloat/unit"
)

// Sizes of the loads that are not greedy.
const (
	voipInterval = 20 * time.Millisecond // G.711: 50 packets a second
	// VoIPBytes is the UDP payload of a G.711 packet: 160 of sound and 12 of
	// RTP; 214 bytes on Ethernet.
	VoIPBytes  = 160 + 12
	gameBytes  = 100
	udpBytes   = 1200
	udpHeaders = 14 + 20 + 8 // Ethernet, IPv4, UDP
)

// native are the loads that `unbloat serve` itself is the far side of.
type native struct {
	task   Task
	client *measure.Client
}

func (n *native) prepare(ctx context.Context) (err error) {
	n.client, err = measure.Dial(ctx, n.task.Home.Server, measure.Options{Agent: "lab " + n.task.Load.Kind})
	return err
}

func (n *native) close() {
	if n.client != nil {
		n.client.Close()
	}
}

func (n *native) run(ctx context.Context, d time.Duration) (*Outcome, error) {
	switch l := n.task.Load; {
	case l.Kind == scenario.Upload || l.Kind == scenario.Download:
		return n.greedy(ctx, d)
	case l.Kind == scenario.VoIP:
		return n.echoed(ctx, measure.ProbeSpec{Interval: voipInterval, Size: VoIPBytes}, d)
	case l.Kind == scenario.Game:
		return n.echoed(ctx, measure.ProbeSpec{Interval: time.Second / time.Duration(l.PPS), Size: sizeOf(l, gameBytes)}, d)
	case l.Direction == "down":
		return n.streamDown(ctx, d)
	}
	return n.streamUp(ctx, d)
}

func (n *native) greedy(ctx context.Context, d time.Duration) (*Outcome, error) {
	l := n.task.Load
	dir := measure.Up
	if l.Kind == scenario.Download {
		dir = measure.Down
	}
	f, err := n.client.StartFlows(ctx, measure.FlowSpec{Dir: dir, Flows: l.Flows, CC: l.CC, Limit: d})
	if err != nil {
		return nil, err
	}
	if err := sleep(ctx, d); err != nil {
		return nil, err
	}
	r, err := f.Stop(ctx)
	return &Outcome{Flows: &r}, err
}

// echoed is a stream both ways: the server sends every packet back.
func (n *native) echoed(ctx context.Context, spec measure.ProbeSpec, d time.Duration) (*Outcome, error) {
	var o Outcome
	reports, err := n.probes(ctx, spec, d)
	for _, r := range reports {
		o.Samples = append(o.Samples, r.Samples...)
	}
	return &o, err
}

func (n *native) streamUp(ctx context.Context, d time.Duration) (*Outcome, error) {
	size, interval := pace(n.task.Load)
	reports, err := n.probes(ctx, measure.ProbeSpec{Interval: interval, Size: size, OneWay: true}, d)
	var o Outcome
	for _, r := range reports {
		o.Sent += len(r.Samples)
		o.Received += r.ServerReceived
		o.Goodput += unit.Rate(float64(r.ServerBytes) * 8 / d.Seconds())
	}
	return &o, err
}

// probes runs the load's streams of probes side by side for d.
func (n *native) probes(ctx context.Context, spec measure.ProbeSpec, d time.Duration) ([]measure.ProbeReport, error) {
	running := make([]*measure.Probe, 0, n.task.Load.Flows)
	for range n.task.Load.Flows {
		p, err := n.client.StartProbe(ctx, spec)
		if err != nil {
			return nil, err
		}
		running = append(running, p)
	}
	if err := sleep(ctx, d); err != nil {
		return nil, err
	}
	var out []measure.ProbeReport
	for _, p := range running {
		r, err := p.Stop(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

func (n *native) streamDown(ctx context.Context, d time.Duration) (*Outcome, error) {
	size, interval := pace(n.task.Load)
	var running []*measure.Stream
	for range n.task.Load.Flows {
		s, err := n.client.StartStream(ctx, measure.StreamSpec{Interval: interval, Size: size, Limit: d})
		if err != nil {
			return nil, err
		}
		running = append(running, s)
	}
	if err := sleep(ctx, d); err != nil {
		return nil, err
	}
	var o Outcome
	for _, s := range running {
		r, err := s.Stop(ctx)
		if err != nil {
			return nil, err
		}
		o.Sent += r.Sent
		o.Received += r.Received
		o.Goodput += r.Goodput()
	}
	return &o, nil
}

// pace returns the packets of a udp load: its rate counts Ethernet frames.
func pace(l scenario.Load) (unit.Size, time.Duration) {
	size := sizeOf(l, udpBytes)
	return size, max(l.Rate.Time(size+udpHeaders), 100*time.Microsecond)
}

// sizeOf returns the payload of a load's packets, or its kind's own.
func sizeOf(l scenario.Load, own unit.Size) unit.Size {
	if l.Bytes != 0 {
		own = unit.Size(l.Bytes)
	}
	return min(max(own, probe.MinSize), probe.MaxSize)
}

// PacketBytes returns the UDP payload of a call's or a game's packets.
func PacketBytes(l scenario.Load) unit.Size {
	if l.Kind == scenario.VoIP {
		return VoIPBytes
	}
	return sizeOf(l, gameBytes)
}
