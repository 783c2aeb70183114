package protocol

import (
	"context"
	"net"
	"strings"
	"time"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/probe"
	"unbloat/unit"
)

// answersWithin is the time limit for the answer to the first ping. Idle lines
// need a tenth of it.
const answersWithin = 2 * time.Second

// PingBeside returns what to probe in place of an HTTP server's own small
// requests, as a --ping value: the server's host, if it answers pings of the
// first Way. A lost datagram is a lost probe, but a lost request is repeated by
// TCP and looks like delay. It returns "" for a server with better probes of
// its own, and for one that answers no ping.
func (all Protocols) PingBeside(ctx context.Context, server string) string {
	_, a, err := all.find(server)
	if err != nil || a.URL.Scheme == "" {
		return ""
	}
	host, _, err := net.SplitHostPort(a.Host)
	if err != nil {
		return ""
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	s := &Session{
		Clock: netio.NewClock(), Server: server, Address: a, all: all,
		Options: Options{Timeout: answersWithin, Patience: answersWithin, Probe: phases.ProbeSpec{Interval: 100 * time.Millisecond}},
	}
	if !s.answers(ctx, host) {
		return ""
	}
	return host
}

// answers reports whether probes to a --ping value are answered.
func (s *Session) answers(ctx context.Context, ping string) bool {
	began := s.Clock.Now()
	p, err := s.Probe(ctx, ping)
	if err != nil {
		return false
	}
	defer p.Prober.Close()
	for s.Clock.Now().Sub(began) < answersWithin {
		if phases.Sleep(ctx, 50*time.Millisecond) != nil {
			return false
		}
		if answered(p.Prober, began, s.Clock.Now()) {
			return true
		}
	}
	return false
}

func answered(p phases.Prober, from, to unit.Instant) bool {
	samples, _ := p.Samples(from, to)
	for i := range samples {
		if samples[i].Fate == probe.Answered {
			return true
		}
	}
	return false
}
