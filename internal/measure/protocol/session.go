package protocol

import (
	"context"
	"net/netip"
	"time"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/probe"
	"unbloat/internal/measure/verdict"
)

// A Session is the session that a protocol's Dial opens.
type Session struct {
	Clock   *netio.Clock
	Options Options // with Timeout and Patience
	Address Address
	Server  string // the --server value

	all Protocols
}

// Dial opens a session with a server. Errors: *measure.AddressError, or
// wrapping measure.ErrUnreachable or measure.ErrRefused.
func (all Protocols) Dial(ctx context.Context, server string, o Options) (phases.Tester, error) {
	p, a, err := all.find(server)
	if err != nil {
		return nil, err
	}
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Patience <= 0 {
		o.Patience = time.Minute
	}
	if o.Pin != "" {
		if o.Pin, err = ParsePin(o.Pin); err != nil {
			return nil, err
		}
	}
	return p.Dial(ctx, &Session{Clock: netio.NewClock(), Options: o, Address: a, Server: server, all: all})
}

// Probe starts probes to a --ping value.
func (s *Session) Probe(ctx context.Context, ping string) (phases.SecondaryProbe, error) {
	w, host, err := s.all.way(ping)
	if err != nil {
		return phases.SecondaryProbe{}, err
	}
	interval := s.Options.Probe.Interval
	if interval <= 0 {
		interval = PingInterval
	}
	p := phases.SecondaryProbe{Name: w.Scheme + " " + host, Interval: max(interval, w.Least)}
	p.Prober, err = w.Start(ctx, Probing{Clock: s.Clock, Host: host, Interval: p.Interval, Options: s.Options})
	return p, err
}

// Runner returns a Tester that runs phases with a source whose probes are the
// server's own, in addition to those of --ping if asked for.
func (s *Session) Runner(ctx context.Context, source phases.Source, interval time.Duration) (phases.Tester, error) {
	o := phases.RunnerOptions{Server: s.Server, Interval: interval, Peer: s.peer(ctx)}
	if s.Options.Ping != "" {
		p, err := s.Probe(ctx, s.Options.Ping)
		if err != nil {
			source.Close()
			return nil, err
		}
		o.Secondary = append(o.Secondary, p)
	}
	return phases.NewPhaseRunner(s.Clock, source, o), nil
}

// ProbedRunner returns a Tester that runs phases with a source and these
// probes: graded ones, and further ones as secondary.
func (s *Session) ProbedRunner(ctx context.Context, source phases.Source, graded phases.SecondaryProbe, further ...phases.SecondaryProbe) phases.Tester {
	return phases.NewPhaseRunner(s.Clock, source, phases.RunnerOptions{
		Server: s.Server, Peer: s.peer(ctx), Interval: graded.Interval, Probe: graded.Name, Requests: graded.Requests, Secondary: further,
	})
}

// peer returns the server's address, if it can be resolved.
func (s *Session) peer(ctx context.Context) netip.Addr {
	a, err := Resolve(ctx, s.Address.Host)
	if err != nil {
		return netip.Addr{} // connecting will report the error
	}
	return a.Addr()
}

// Acked returns the series of flows of which only the sum is known. The first
// one has the sum, so that the number of flows is right too.
func Acked(samples []probe.SenderSample, flows int) []verdict.Series {
	out := make([]verdict.Series, flows)
	out[0] = phases.AckedSeries(samples, GoodputBin)
	return out
}
