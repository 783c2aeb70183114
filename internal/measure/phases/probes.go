package phases

import (
	"context"
	"errors"
	"fmt"
	"time"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/probe"
	"unbloat/unit"
)

// A ProbeSpec describes a stream of probes. Zero values take the defaults.
type ProbeSpec struct {
	Interval time.Duration // 10 ms
	Size     unit.Size     // of the UDP payload; probe.MinSize, 74 bytes of Ethernet with IPv4. VoIP: 20 ms and 172 bytes
	OneWay   bool          // towards the server only, not answered: a load
	DSCP     int           // 0–63
}

// DefaultInterval is the default distance of probes.
const DefaultInterval = 10 * time.Millisecond

// Grace is how long after its sending the answer to a probe still counts:
// queues of several seconds are what this program is for.
const Grace = 10 * time.Second

// Rate returns what the stream occupies on Ethernet with IPv4, frame check not counted.
func (s ProbeSpec) Rate() unit.Rate {
	s = s.withDefaults()
	const headers = 14 + 20 + 8
	return unit.Rate(int64(s.Size+headers) * 8 * int64(time.Second) / int64(s.Interval))
}

func (s ProbeSpec) withDefaults() ProbeSpec {
	if s.Interval <= 0 {
		s.Interval = DefaultInterval
	}
	s.Size = min(max(s.Size, probe.MinSize), probe.MaxSize)
	return s
}

// A Probe is a running stream of probes.
type Probe struct {
	*ProbeLoop
	client *Client
	spec   ProbeSpec
	stream uint32
}

// StartProbe starts a stream of probes, which goes on until Stop or Close.
func (c *Client) StartProbe(ctx context.Context, spec ProbeSpec) (*Probe, error) {
	spec = spec.withDefaults()
	dir := probe.DirEcho
	if spec.OneWay {
		dir = probe.DirUp
	}
	reply, err := c.control.do(ctx, probe.Request{Op: probe.OpUDP, Dir: dir, Interval: spec.Interval, Size: spec.Size})
	if err != nil {
		return nil, fmt.Errorf("start probes: %w", err)
	}
	token, err := probe.ParseToken(reply.StreamToken)
	if err != nil {
		return nil, fmt.Errorf("start probes: the server's token: %w", err)
	}
	socket, err := netio.DialDatagram(c.clock, c.peer, spec.DSCP)
	if err != nil {
		return nil, fmt.Errorf("start probes: %w", err)
	}
	d, err := StartProbeLoop(c.clock, socket, probe.Config{
		Interval: spec.Interval, Size: spec.Size, Token: token, OneWay: spec.OneWay,
	})
	if err != nil {
		return nil, err
	}
	return &Probe{ProbeLoop: d, client: c, spec: spec, stream: reply.Stream}, nil
}

// Stop ends the stream, waits for answers under way (at most Grace), asks the
// server what it received, and returns all samples. It must be called once.
func (p *Probe) Stop(ctx context.Context) (ProbeReport, error) {
	if err := p.finish(ctx); err != nil {
		return ProbeReport{}, fmt.Errorf("probe %s: %w", p.client.peer, err)
	}
	reply, err := p.client.control.do(ctx, probe.Request{Op: probe.OpEnd, Stream: p.stream})
	if err == nil && reply.UDP == nil {
		err = errors.New("the server's report is empty")
	}
	if err != nil {
		return ProbeReport{}, fmt.Errorf("end probes: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session.Resolve(int64(reply.UDP.Received))
	return ProbeReport{
		Samples: p.session.Samples(0, p.end.Add(time.Hour)), Skips: p.session.Skips(0, p.end.Add(time.Hour)),
		ServerReceived: int(reply.UDP.Received), ServerBytes: reply.UDP.Bytes,
		Interval: p.spec.Interval, Steps: p.socket.Steps(),
	}, nil
}

// A ProbeReport is what became of a whole stream of probes.
type ProbeReport struct {
	Samples        []probe.Sample
	Skips          []probe.Skip
	ServerReceived int       // datagrams; of one-way streams there is nothing else
	ServerBytes    unit.Size // payload
	Interval       time.Duration
	Steps          int // how often this machine's clock was set
}

// Resolve implements Prober: it asks the server for its count, to tell apart
// the probes after the last answer.
func (p *Probe) Resolve(ctx context.Context) error {
	reply, err := p.client.control.do(ctx, probe.Request{Op: probe.OpReport, Stream: p.stream})
	if err != nil {
		return err
	}
	if reply.UDP != nil {
		p.resolve(int64(reply.UDP.Received))
	}
	return nil
}
