package measure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"unbloat/internal/netio"
	"unbloat/internal/probe"
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
	client *Client
	spec   ProbeSpec
	stream uint32
	socket *netio.Datagram
	sleep  *netio.Sleeper
	done   chan struct{}

	mu      sync.Mutex
	session *probe.Session
	ending  bool // nothing more is sent
	end     unit.Instant
	gone    bool
	err     error
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
	sleep, err := netio.NewSleeper(c.clock)
	if err != nil {
		socket.Close()
		return nil, fmt.Errorf("start probes: %w", err)
	}
	p := &Probe{client: c, spec: spec, stream: reply.Stream, socket: socket, sleep: sleep, done: make(chan struct{})}
	p.session = probe.NewSession(probe.Config{
		Interval: spec.Interval, Size: spec.Size, Token: token, OneWay: spec.OneWay,
		Start: c.clock.Now().Add(spec.Interval),
	})
	go p.drive()
	return p, nil
}

// drive sends on schedule, and takes in what has come each time it wakes.
func (p *Probe) drive() {
	defer close(p.done)
	defer p.socket.Close()
	defer p.sleep.Close()
	receive := func(at unit.Instant, b []byte) { _ = p.session.Receive(at, b) } // strangers' datagrams change nothing
	for {
		p.mu.Lock()
		now := p.client.clock.Now()
		b, next := p.session.Poll(now)
		if b != nil {
			p.err = p.socket.Send(b)
		}
		if err := p.socket.Drain(receive); err != nil {
			p.err = err
		}
		over := p.gone || p.err != nil ||
			p.ending && next == 0 && (p.spec.OneWay || p.session.Settled(p.end, now, Grace))
		p.mu.Unlock()
		if next == 0 {
			next = now.Add(max(p.spec.Interval, DefaultInterval))
		}
		if over || !p.sleep.Until(next) {
			return
		}
	}
}

// Stop ends the stream, waits for answers under way (at most Grace), asks the
// server what it received, and returns all samples. It must be called once.
func (p *Probe) Stop(ctx context.Context) (ProbeReport, error) {
	p.mu.Lock()
	p.ending, p.end = true, p.client.clock.Now()
	p.session.Stop(p.end)
	p.mu.Unlock()
	select {
	case <-p.done:
	case <-ctx.Done():
		p.abandon()
		return ProbeReport{}, fmt.Errorf("wait for probes under way: %w", context.Cause(ctx))
	}
	if p.err != nil {
		return ProbeReport{}, fmt.Errorf("probe %s: %w", p.client.peer, p.err)
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

// abandon ends the stream at once.
func (p *Probe) abandon() {
	p.mu.Lock()
	p.gone = true
	p.mu.Unlock()
	p.sleep.Close()
	<-p.done
}

// newest returns the latest answered probe.
func (p *Probe) newest() (probe.Sample, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session.Newest()
}

// settled reports whether nothing more is to be expected of probes sent before at.
func (p *Probe) settled(at unit.Instant) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.session.Settled(at, p.client.clock.Now(), Grace), p.err
}

// samples returns the samples sent in [from, to), fates resolved as far as
// answers tell.
func (p *Probe) samples(from, to unit.Instant) ([]probe.Sample, []probe.Skip) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session.Resolve(probe.NoFinalCount)
	return p.session.Samples(from, to), p.session.Skips(from, to)
}

// resolveOpen asks the server for its count, to tell apart the probes after
// the last answer.
func (p *Probe) resolveOpen(ctx context.Context) error {
	reply, err := p.client.control.do(ctx, probe.Request{Op: probe.OpReport, Stream: p.stream})
	if err != nil {
		return err
	}
	if reply.UDP != nil {
		p.mu.Lock()
		p.session.Resolve(int64(reply.UDP.Received))
		p.mu.Unlock()
	}
	return nil
}

// steps returns how often this machine's clock was set so far.
func (p *Probe) steps() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.socket.Steps()
}

// idleAgain reports whether nearly all probes of the last moments came back
// within ceiling.
func (p *Probe) idleAgain(ceiling time.Duration, now unit.Instant) bool {
	const moments = 250 * time.Millisecond
	p.mu.Lock()
	defer p.mu.Unlock()
	to := now.Add(-ceiling - p.spec.Interval)
	recent := p.session.Samples(to.Add(-moments), to)
	good := 0
	for i := range recent {
		if recent[i].Fate == probe.Answered && recent[i].RTT() <= ceiling {
			good++
		}
	}
	return len(recent) > 0 && good*10 >= len(recent)*9
}
