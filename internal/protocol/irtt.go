package protocol

import (
	"context"
	"fmt"
	"time"

	"unbloat/internal/measure"
	"unbloat/internal/netio"
	"unbloat/internal/probe"
	"unbloat/internal/protocol/irtt"
	"unbloat/unit"
)

// irttSource is a server that answers probes and takes no load.
type irttSource struct{ prober measure.Prober }

// irtt opens a session with an irtt server.
func (d *dialer) irtt(ctx context.Context) (measure.Tester, error) {
	interval := d.o.Probe.Interval
	if interval <= 0 {
		interval = pingInterval // twice what its server allows by default: bunches are not dropped
	}
	p, err := dialIrtt(ctx, d.clock, d.a.host, interval, d.o)
	if err != nil {
		return nil, err
	}
	return d.runner(ctx, &irttSource{p}, interval)
}

func (s *irttSource) Probe(context.Context) (measure.Prober, error) { return s.prober, nil }

func (s *irttSource) Open(context.Context, []measure.FlowSpec) (measure.Load, error) {
	return nil, fmt.Errorf("%w: an irtt server answers probes only; load the line by another --server and probe this one with --ping irtt://HOST", measure.ErrNoLoad)
}

func (s *irttSource) Close() error { return s.prober.Close() }

// openTries are how long an answer to a request to open is waited for, as long
// as irtt's own client does.
func openTries() []time.Duration {
	return []time.Duration{200 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second}
}

// irttSocket closes the connection when it is closed.
type irttSocket struct {
	*netio.Datagram
	bye []byte
}

func (s *irttSocket) Close() error {
	_ = s.Send(s.bye) // the server forgets the connection after a minute anyway
	return s.Datagram.Close()
}

// dialIrtt opens a connection to an irtt server and starts its probes.
func dialIrtt(ctx context.Context, clock *netio.Clock, host string, interval time.Duration, o Options) (measure.Prober, error) {
	to, err := resolve(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("open irtt://%s: %w", host, err)
	}
	socket, err := netio.DialDatagram(clock, to, o.Probe.DSCP)
	if err != nil {
		return nil, fmt.Errorf("open irtt://%s: %w", host, err)
	}
	key := []byte(o.Key)
	want := irtt.Params{
		Version: irtt.Version, Duration: measure.MaxPhase, Interval: interval,
		Stats: irtt.StatsBoth, StampAt: irtt.AtBoth, Clock: irtt.ClockMono,
	}
	want.Length = max(o.Probe.Size, want.EchoSize(key))
	codec, err := irttOpen(ctx, socket, want, key)
	if err != nil {
		socket.Close()
		return nil, fmt.Errorf("open irtt://%s: %w", host, err)
	}
	bye := irtt.CloseRequest(codec.Connection, key)
	return measure.StartProbeLoop(clock, &irttSocket{socket, bye}, probe.Config{
		Interval: interval, Size: codec.Params.EchoSize(key), Codec: codec,
	})
}

// irttOpen asks for a connection until an answer comes.
func irttOpen(ctx context.Context, socket *netio.Datagram, want irtt.Params, key []byte) (*irtt.Codec, error) {
	request := irtt.OpenRequest(want, key)
	codec := &irtt.Codec{Key: key}
	var refused, foreign error
	for _, wait := range openTries() {
		if err := socket.Send(request); err != nil {
			return nil, err
		}
		for end := time.Now().Add(wait); codec.Connection == 0 && refused == nil && time.Now().Before(end); {
			select {
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-time.After(5 * time.Millisecond):
			}
			err := socket.Drain(func(_ unit.Instant, b []byte) {
				token, granted, f, err := irtt.ParseOpenReply(b, key)
				switch {
				case err != nil:
					foreign = err
				case f.Has(irtt.FlagClose):
					refused = fmt.Errorf("%w: it closed the connection at once", measure.ErrRefused)
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
		return nil, fmt.Errorf("%w: %w", measure.ErrUnreachable, foreign)
	case codec.Connection == 0:
		return nil, fmt.Errorf("%w: no answer; is its UDP port open, and its key the same?", measure.ErrUnreachable)
	case codec.Params.Version != irtt.Version:
		return nil, fmt.Errorf("%w: it speaks version %d of the protocol, not %d", measure.ErrRefused, codec.Params.Version, irtt.Version)
	case codec.Params.Interval > want.Interval:
		return nil, fmt.Errorf("%w: it allows a probe every %v only; ask for no more with --interval", measure.ErrRefused, codec.Params.Interval)
	}
	return codec, nil
}
