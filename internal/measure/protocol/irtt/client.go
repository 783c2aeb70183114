package irtt

import (
	"context"
	"fmt"
	"time"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/probe"
	"unbloat/internal/measure/protocol"
	"unbloat/unit"
)

// Protocol is what irtt's servers speak. --ping irtt://HOST probes one while
// another server takes the load.
func Protocol() protocol.Protocol {
	return protocol.Protocol{
		Schemes: []protocol.Scheme{{Name: "irtt", Port: Port}},
		Dial:    dial,
		Ways: []protocol.Way{{
			Scheme: "irtt", Usage: "irtt://HOST", Host: protocol.HostPort(Port), Least: protocol.PingInterval, Start: start,
		}},
	}
}

// source is a server that answers probes and takes no load.
type source struct{ prober phases.Prober }

// dial opens a session with an irtt server.
func dial(ctx context.Context, s *protocol.Session) (phases.Tester, error) {
	interval := s.Options.Probe.Interval
	if interval <= 0 {
		interval = protocol.PingInterval // twice what its server allows by default, so that probes that arrive together are not dropped
	}
	p, err := start(ctx, protocol.Probing{Clock: s.Clock, Host: s.Address.Host, Interval: interval, Options: s.Options})
	if err != nil {
		return nil, err
	}
	return s.Runner(ctx, &source{p}, interval)
}

func (s *source) Probe(context.Context) (phases.Prober, error) { return s.prober, nil }

func (s *source) Open(context.Context, []phases.FlowSpec) (phases.Load, error) {
	return nil, fmt.Errorf("%w: an irtt server answers probes only; load the line by another --server and probe this one with --ping irtt://HOST", phases.ErrNoLoad)
}

func (s *source) Close() error { return s.prober.Close() }

// openTries are the timeouts of the requests to open, as in irtt's own client.
func openTries() []time.Duration {
	return []time.Duration{200 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second}
}

// socket closes the connection when it is closed.
type socket struct {
	*netio.Datagram
	bye []byte
}

func (s *socket) Close() error {
	_ = s.Send(s.bye) // the server forgets the connection after a minute anyway
	return s.Datagram.Close()
}

// start opens a connection to an irtt server and starts its probes.
func start(ctx context.Context, p protocol.Probing) (phases.Prober, error) {
	to, err := protocol.Resolve(ctx, p.Host)
	if err != nil {
		return nil, fmt.Errorf("open irtt://%s: %w", p.Host, err)
	}
	conn, err := netio.DialDatagram(p.Clock, to, p.Options.Probe.DSCP)
	if err != nil {
		return nil, fmt.Errorf("open irtt://%s: %w", p.Host, err)
	}
	key := []byte(p.Options.Key)
	want := Params{
		Version: Version, Duration: phases.MaxPhase, Interval: p.Interval,
		Stats: StatsBoth, StampAt: AtBoth, Clock: ClockMono,
	}
	want.Length = max(p.Options.Probe.Size, want.EchoSize(key))
	codec, err := open(ctx, conn, want, key)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("open irtt://%s: %w", p.Host, err)
	}
	bye := CloseRequest(codec.Connection, key)
	return phases.StartProbeLoop(p.Clock, &socket{conn, bye}, probe.Config{
		Interval: p.Interval, Size: codec.Params.EchoSize(key), Codec: codec,
	})
}

// open asks for a connection until it gets an answer.
func open(ctx context.Context, conn *netio.Datagram, want Params, key []byte) (*Codec, error) {
	request := OpenRequest(want, key)
	codec := &Codec{Key: key}
	var refused, foreign error
	for _, wait := range openTries() {
		if err := conn.Send(request); err != nil {
			return nil, err
		}
		for end := time.Now().Add(wait); codec.Connection == 0 && refused == nil && time.Now().Before(end); {
			select {
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-time.After(5 * time.Millisecond):
			}
			err := conn.Drain(func(_ unit.Instant, b []byte) {
				token, granted, f, err := ParseOpenReply(b, key)
				switch {
				case err != nil:
					foreign = err
				case f.Has(FlagClose):
					refused = fmt.Errorf("%w: it closed the connection at once", phases.ErrRefused)
				default:
					codec.Connection, codec.Params = token, granted
				}
			})
			if err != nil {
				return nil, err
			}
		}
		if codec.Connection != 0 || refused != nil {
			break
		}
	}
	switch {
	case refused != nil:
		return nil, refused
	case codec.Connection == 0 && foreign != nil:
		return nil, fmt.Errorf("%w: %w", phases.ErrUnreachable, foreign)
	case codec.Connection == 0:
		return nil, fmt.Errorf("%w: no answer; is its UDP port open, and its key the same?", phases.ErrUnreachable)
	case codec.Params.Version != Version:
		return nil, fmt.Errorf("%w: it speaks version %d of the protocol, not %d", phases.ErrRefused, codec.Params.Version, Version)
	case codec.Params.Interval > want.Interval:
		return nil, fmt.Errorf("%w: it allows a probe every %v only; ask for no more with --interval", phases.ErrRefused, codec.Params.Interval)
	}
	return codec, nil
}
