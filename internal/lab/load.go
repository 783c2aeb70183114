package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"unbloat/internal/measure"
	"unbloat/internal/probe"
	"unbloat/internal/scenario"
	"unbloat/unit"
)

// Sizes of the loads that are not greedy.
const (
	voipInterval = 20 * time.Millisecond // G.711: 50 packets a second
	voipBytes    = 172                   // of UDP payload: 214 bytes on Ethernet
	udpBytes     = 1200
	udpHeaders   = 14 + 20 + 8 // Ethernet, IPv4, UDP
)

// loadTask is one load of the household, handed to the process that makes it.
type loadTask struct {
	Load  scenario.Load `json:"load"`
	Phase time.Duration `json:"phase"` // how long the loaded phase lasts
}

// loadOutcome is what became of a load, in the clock that all of the guest shares.
type loadOutcome struct {
	Flows    *measure.FlowReport `json:"flows,omitempty"`
	Samples  []probe.Sample      `json:"samples,omitempty"` // of calls
	Sent     int                 `json:"sent"`              // datagrams of one-way streams
	Received int                 `json:"received"`
	Goodput  unit.Rate           `json:"goodput_bps"` // of one-way streams
}

// ready is the line by which a load's process says that it is connected; it
// starts when it reads a line itself.
const ready = "ready"

// RunLoad is the process that makes one load: it connects, says ready on out,
// waits for a line on in, makes the load, and writes the outcome as JSON.
func RunLoad(ctx context.Context, task string, in io.Reader, out io.Writer) error {
	var t loadTask
	if err := json.Unmarshal([]byte(task), &t); err != nil {
		return fmt.Errorf("read the load: %w", err)
	}
	c, err := measure.Dial(ctx, Server(), measure.Options{Agent: "lab " + t.Load.Kind})
	if err != nil {
		return err
	}
	defer c.Close()
	fmt.Fprintln(out, ready)
	if _, err := bufio.NewReader(in).ReadString('\n'); err != nil {
		return fmt.Errorf("wait for the start: %w", err)
	}
	if err := sleep(ctx, t.Load.Start); err != nil {
		return err
	}
	d := t.Phase - t.Load.Start
	if t.Load.Stop > 0 {
		d = t.Load.Stop - t.Load.Start
	}
	o, err := makeLoad(ctx, c, t.Load, d)
	if err != nil {
		return fmt.Errorf("load %s of %s: %w", t.Load.Kind, Host(t.Load.Host), err)
	}
	return json.NewEncoder(out).Encode(o)
}

func makeLoad(ctx context.Context, c *measure.Client, l scenario.Load, d time.Duration) (*loadOutcome, error) {
	switch l.Kind {
	case scenario.Upload, scenario.Download:
		return greedy(ctx, c, l, d)
	case scenario.VoIP:
		return call(ctx, c, l, d)
	case scenario.UDP:
		if l.Direction == "down" {
			return streamDown(ctx, c, l, d)
		}
		return streamUp(ctx, c, l, d)
	}
	return nil, fmt.Errorf("kind %q is not one the lab can make", l.Kind)
}

func greedy(ctx context.Context, c *measure.Client, l scenario.Load, d time.Duration) (*loadOutcome, error) {
	dir := measure.Up
	if l.Kind == scenario.Download {
		dir = measure.Down
	}
	f, err := c.StartFlows(ctx, measure.FlowSpec{Dir: dir, Flows: l.Flows, CC: l.CC, Limit: d})
	if err != nil {
		return nil, err
	}
	if err := sleep(ctx, d); err != nil {
		return nil, err
	}
	r, err := f.Stop(ctx)
	return &loadOutcome{Flows: &r}, err
}

// call is G.711 both ways: the server sends every packet back.
func call(ctx context.Context, c *measure.Client, l scenario.Load, d time.Duration) (*loadOutcome, error) {
	var o loadOutcome
	reports, err := probes(ctx, c, l.Flows, measure.ProbeSpec{Interval: voipInterval, Size: voipBytes}, d)
	for _, r := range reports {
		o.Samples = append(o.Samples, r.Samples...)
	}
	return &o, err
}

func streamUp(ctx context.Context, c *measure.Client, l scenario.Load, d time.Duration) (*loadOutcome, error) {
	size, interval := pace(l)
	reports, err := probes(ctx, c, l.Flows, measure.ProbeSpec{Interval: interval, Size: size, OneWay: true}, d)
	var o loadOutcome
	for _, r := range reports {
		o.Sent += len(r.Samples)
		o.Received += r.ServerReceived
		o.Goodput += unit.Rate(float64(r.ServerBytes) * 8 / d.Seconds())
	}
	return &o, err
}

// probes runs n streams of probes side by side for d.
func probes(ctx context.Context, c *measure.Client, n int, spec measure.ProbeSpec, d time.Duration) ([]measure.ProbeReport, error) {
	running := make([]*measure.Probe, 0, n)
	for range n {
		p, err := c.StartProbe(ctx, spec)
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

func streamDown(ctx context.Context, c *measure.Client, l scenario.Load, d time.Duration) (*loadOutcome, error) {
	size, interval := pace(l)
	var running []*measure.Stream
	for range l.Flows {
		s, err := c.StartStream(ctx, measure.StreamSpec{Interval: interval, Size: size, Limit: d})
		if err != nil {
			return nil, err
		}
		running = append(running, s)
	}
	if err := sleep(ctx, d); err != nil {
		return nil, err
	}
	var o loadOutcome
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
	size := unit.Size(l.Bytes)
	if size == 0 {
		size = udpBytes
	}
	size = min(max(size, probe.MinSize), probe.MaxSize)
	return size, max(l.Rate.Time(size+udpHeaders), 100*time.Microsecond)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
