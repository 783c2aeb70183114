// Package native is unbloat's own protocol (packages probe and measure) as one
// of those that a test may be run with.
package native

import (
	"context"

	"unbloat/internal/measure"
	"unbloat/internal/protocol"
)

// Protocol is what `unbloat serve` speaks.
func Protocol() protocol.Protocol {
	return protocol.Protocol{Schemes: []protocol.Scheme{{Name: "unbloat"}}, Parse: measure.ParseServer, Dial: dial}
}

// dial opens a session; --ping adds probes to the server's own.
func dial(ctx context.Context, s *protocol.Session) (measure.Tester, error) {
	o := s.Options
	c, err := measure.Dial(ctx, s.Address.Host, measure.Options{Timeout: o.Timeout, Patience: o.Patience, Probe: o.Probe, Agent: o.Agent, Key: o.Key})
	if err != nil || o.Ping == "" {
		return c, err
	}
	p, err := s.Probe(ctx, o.Ping)
	if err != nil {
		c.Close()
		return nil, err
	}
	c.AddSecondary(p)
	return c, nil
}
