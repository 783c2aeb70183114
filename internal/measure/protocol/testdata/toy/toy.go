// Package toy is a kind of test server that nobody has. It shows what a new one
// takes: a directory, and a line in the list of protocols. A TCP connection says
// with its first byte what it wants: one byte back ('?'), bytes without end
// ('<'), or to be read without end ('>').
package toy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/probe"
	"unbloat/internal/measure/protocol"
	"unbloat/internal/measure/verdict"
	"unbloat/unit"
)

const port = 7677

// What a connection wants.
const (
	wantsEcho = '?'
	wantsDown = '<'
	wantsUp   = '>'
)

// Protocol is what toy servers speak.
func Protocol() protocol.Protocol {
	return protocol.Protocol{
		Schemes: []protocol.Scheme{{Name: "toy", Port: port}},
		Dial:    dial,
		Ways:    []protocol.Way{{Scheme: "toy", Usage: "toy://HOST", Host: protocol.HostPort(port), Least: protocol.CallInterval, Start: start}},
	}
}

// start starts probes, each a connection that gets one byte back.
func start(_ context.Context, p protocol.Probing) (phases.Prober, error) {
	return protocol.StartCalls(p, func(ctx context.Context, begun unit.Instant) (time.Duration, error) {
		c, err := open(ctx, p.Host, p.Options.Patience, wantsEcho, netio.TCPOptions{})
		if err != nil {
			return 0, err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(phases.Grace))
		_, err = io.ReadFull(c, make([]byte, 1))
		return p.Clock.Now().Sub(begun), err
	})
}

// open opens a connection and says what it wants.
func open(ctx context.Context, host string, patience time.Duration, want byte, o netio.TCPOptions) (*net.TCPConn, error) {
	c, err := netio.DialTCP(ctx, host, patience, o)
	if err != nil {
		return nil, protocol.Unreachable("connect to "+host, err)
	}
	if _, err := c.Write([]byte{want}); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

type source struct {
	s      *protocol.Session
	prober phases.Prober
}

func dial(ctx context.Context, s *protocol.Session) (phases.Tester, error) {
	c, err := open(ctx, s.Address.Host, s.Options.Patience, wantsEcho, netio.TCPOptions{})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", s.Server, err)
	}
	c.Close()
	prober, err := start(ctx, protocol.Probing{Clock: s.Clock, Host: s.Address.Host, Interval: protocol.CallInterval, Options: s.Options})
	if err != nil {
		return nil, err
	}
	return s.Runner(ctx, &source{s, prober}, protocol.CallInterval)
}

// Probe implements measure.Source.
func (s *source) Probe(context.Context) (phases.Prober, error) { return s.prober, nil }

func (s *source) Close() error { return s.prober.Close() }

// Open implements measure.Source: each flow opens when it begins.
func (s *source) Open(_ context.Context, specs []phases.FlowSpec) (phases.Load, error) {
	return &load{source: s, specs: specs}, nil
}

type load struct {
	source   *source
	specs    []phases.FlowSpec
	up, down []*net.TCPConn
	began    unit.Instant
	sender   *netio.Sender
	receiver *netio.Receiver
}

// Begin implements measure.Load.
func (l *load) Begin(ctx context.Context) (unit.Instant, error) {
	clock := l.source.s.Clock
	for _, spec := range l.specs {
		want, conns := byte(wantsDown), &l.down
		if spec.Dir == phases.Up {
			want, conns = wantsUp, &l.up
		}
		for range spec.Flows {
			c, err := open(ctx, l.source.s.Address.Host, l.source.s.Options.Patience, want, netio.TCPOptions{CC: spec.CC, DSCP: spec.DSCP})
			if err != nil {
				return 0, err
			}
			*conns = append(*conns, c)
		}
	}
	l.began = clock.Now()
	if len(l.down) > 0 {
		l.receiver = netio.NewReceiver(clock, protocol.GoodputBin, netio.Budget{}, l.down)
	}
	if len(l.up) > 0 {
		l.sender = netio.NewSender(clock, netio.Payload(), netio.Budget{}, l.up)
	}
	return l.began, nil
}

// Moved implements measure.Load.
func (l *load) Moved(d phases.Direction) int64 {
	switch {
	case d == phases.Down && l.receiver != nil:
		return l.receiver.Total()
	case d == phases.Up && l.sender != nil:
		return l.sender.Acked()
	}
	return 0
}

// Stop implements measure.Load.
func (l *load) Stop(context.Context) (out []phases.FlowReport, err error) {
	defer l.Abandon()
	r := phases.FlowReport{Start: l.began, End: l.source.s.Clock.Now()}
	if l.receiver != nil {
		down := r
		down.Dir = phases.Down
		bins, _ := l.receiver.Stop()
		for _, b := range bins {
			down.Series = append(down.Series, verdict.Series{Start: b.Start, Bin: b.Width, Bytes: b.Bytes})
		}
		out = append(out, down)
	}
	if l.sender != nil {
		up := r
		up.Dir = phases.Up
		var samples []probe.SenderSample
		samples, _ = l.sender.Stop()
		up.Sender, up.Series = samples, protocol.Acked(samples, len(l.up))
		out = append(out, up)
	}
	return out, nil
}

// Abandon implements measure.Load.
func (l *load) Abandon() {
	if l.sender != nil {
		l.sender.Stop()
	}
	if l.receiver != nil {
		l.receiver.Stop()
	}
	for _, c := range append(l.up, l.down...) {
		c.Close()
	}
}

// Serve answers clients until the listener is closed. It returns what else ended it.
func Serve(l *net.TCPListener) error {
	for {
		c, err := l.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go answer(c) // until the client closes it
	}
}

func answer(c *net.TCPConn) {
	defer c.Close()
	want := make([]byte, 1)
	if _, err := io.ReadFull(c, want); err != nil {
		return
	}
	switch want[0] {
	case wantsEcho:
		_, _ = c.Write(want) // the client is gone, or hears it
	case wantsDown:
		for payload := netio.Payload(); ; {
			if _, err := c.Write(payload); err != nil {
				return
			}
		}
	case wantsUp:
		_, _ = io.Copy(io.Discard, c)
	}
}
