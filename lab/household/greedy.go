package household

import (
	"context"
	"errors"
	"sync"
	"time"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/probe"
	"unbloat/lab/scenario"
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
	task    Task
	clients []*phases.Client // one a stream, so that none waits for another's start; greedy flows need one
}

func (n *native) prepare(ctx context.Context) error {
	count := n.task.Load.Flows
	if k := n.task.Load.Kind; k == scenario.Upload || k == scenario.Download {
		count = 1
	}
	for range count {
		c, err := phases.Dial(ctx, n.task.Home.Server, phases.Options{Agent: "lab " + n.task.Load.Kind})
		if err != nil {
			return err
		}
		n.clients = append(n.clients, c)
	}
	return nil
}

func (n *native) close() {
	for _, c := range n.clients {
		c.Close()
	}
}

func (n *native) run(ctx context.Context, d time.Duration) (*Outcome, error) {
	switch l := n.task.Load; {
	case l.Kind == scenario.Upload || l.Kind == scenario.Download:
		return n.greedy(ctx, d)
	case l.Kind == scenario.VoIP:
		return n.echoed(ctx, phases.ProbeSpec{Interval: voipInterval, Size: VoIPBytes}, d)
	case l.Kind == scenario.Game:
		return n.echoed(ctx, phases.ProbeSpec{Interval: time.Second / time.Duration(l.PPS), Size: sizeOf(l, gameBytes)}, d)
	case l.Direction == "down":
		return n.streamDown(ctx, d)
	}
	return n.streamUp(ctx, d)
}

func (n *native) greedy(ctx context.Context, d time.Duration) (*Outcome, error) {
	l := n.task.Load
	dir := phases.Up
	if l.Kind == scenario.Download {
		dir = phases.Down
	}
	f, err := n.clients[0].StartFlows(ctx, phases.FlowSpec{Dir: dir, Flows: l.Flows, CC: l.CC, Limit: d})
	if err != nil {
		return nil, err
	}
	if err := phases.Sleep(ctx, d); err != nil {
		return nil, err
	}
	r, err := f.Stop(ctx)
	return &Outcome{Flows: &r}, err
}

// echoed is a stream both ways: the server sends every packet back.
func (n *native) echoed(ctx context.Context, spec phases.ProbeSpec, d time.Duration) (*Outcome, error) {
	var o Outcome
	reports, err := n.probes(ctx, spec, d)
	for _, r := range reports {
		o.Samples = append(o.Samples, r.Samples...)
	}
	return &o, err
}

func (n *native) streamUp(ctx context.Context, d time.Duration) (*Outcome, error) {
	size, interval := pace(n.task.Load)
	reports, err := n.probes(ctx, phases.ProbeSpec{Interval: interval, Size: size, OneWay: true}, d)
	var o Outcome
	for _, r := range reports {
		o.Sent += len(r.Samples)
		o.Received += r.ServerReceived
		o.Goodput += unit.Rate(float64(r.ServerBytes) * 8 / d.Seconds())
	}
	return &o, err
}

// probes runs the load's streams of probes side by side until d is over.
func (n *native) probes(ctx context.Context, spec phases.ProbeSpec, d time.Duration) ([]phases.ProbeReport, error) {
	return beside(n.clients, func(c *phases.Client) (r phases.ProbeReport, err error) {
		end := time.Now().Add(d)
		p, err := c.StartProbe(ctx, spec)
		if err != nil {
			return r, err
		}
		if err := phases.Sleep(ctx, time.Until(end)); err != nil {
			return r, err
		}
		return p.Stop(ctx)
	})
}

func (n *native) streamDown(ctx context.Context, d time.Duration) (*Outcome, error) {
	size, interval := pace(n.task.Load)
	reports, err := beside(n.clients, func(c *phases.Client) (r phases.StreamReport, err error) {
		end := time.Now().Add(d)
		s, err := c.StartStream(ctx, phases.StreamSpec{Interval: interval, Size: size, Limit: d})
		if err != nil {
			return r, err
		}
		if err := phases.Sleep(ctx, time.Until(end)); err != nil {
			return r, err
		}
		return s.Stop(ctx)
	})
	var o Outcome
	for _, r := range reports {
		o.Sent += r.Sent
		o.Received += r.Received
		o.Goodput += r.Goodput()
	}
	return &o, err
}

// beside runs one stream for each client at the same time, and returns their
// reports or the first error.
func beside[R any](clients []*phases.Client, run func(*phases.Client) (R, error)) ([]R, error) {
	reports, errs := make([]R, len(clients)), make([]error, len(clients))
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() { reports[i], errs[i] = run(c) })
	}
	wg.Wait()
	return reports, errors.Join(errs...)
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

// AnswerBytes returns the UDP payload of the packets that answer a call's or a
// game's.
func AnswerBytes(l scenario.Load) unit.Size {
	if l.BytesDown != 0 {
		return unit.Size(l.BytesDown)
	}
	return PacketBytes(l)
}
