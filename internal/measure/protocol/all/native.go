// This file has unbloat's own protocol (packages probe and measure) as one
// of those that a test may be run with.

package all

import (
	"context"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/protocol"
)

// native is what `unbloat serve` speaks.
func native() protocol.Protocol {
	return protocol.Protocol{Schemes: []protocol.Scheme{{Name: "unbloat"}}, Parse: phases.ParseServer, Dial: dialNative}
}

// dialNative opens a session; --ping adds probes to the server's own.
func dialNative(ctx context.Context, s *protocol.Session) (phases.Tester, error) {
	o := s.Options
	c, err := phases.Dial(ctx, s.Address.Host, phases.Options{Timeout: o.Timeout, Patience: o.Patience, Probe: o.Probe, Agent: o.Agent, Key: o.Key})
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
