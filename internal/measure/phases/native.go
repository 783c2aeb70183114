package phases

import (
	"context"

	"unbloat/internal/measure/netio"
	"unbloat/unit"
)

// nativeSource makes a Client the Source of a PhaseRunner.
type nativeSource Client

func (s *nativeSource) client() *Client { return (*Client)(s) }

func (s *nativeSource) Probe(ctx context.Context) (Prober, error) {
	c := s.client()
	p, err := c.StartProbe(ctx, c.options.Probe)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probe = p
	return p, nil
}

func (s *nativeSource) Close() error { return s.control.conn.Close() }

// Open opens one group of flows for each of the specs.
func (s *nativeSource) Open(ctx context.Context, specs []FlowSpec) (Load, error) {
	l := &nativeLoad{}
	for _, spec := range specs {
		f, err := s.client().openFlows(ctx, spec)
		if err != nil {
			l.Abandon()
			return nil, err
		}
		l.groups = append(l.groups, f)
	}
	return l, nil
}

// nativeLoad is the groups of one phase.
type nativeLoad struct{ groups []*Flows }

func (l *nativeLoad) Begin(ctx context.Context) (unit.Instant, error) {
	for _, f := range l.groups {
		if err := f.begin(ctx); err != nil {
			return 0, err
		}
	}
	return l.groups[0].start, nil
}

func (l *nativeLoad) Moved(d Direction) (sum int64) {
	for _, f := range l.groups {
		if f.spec.Dir == d {
			sum += f.moved()
		}
	}
	return sum
}

// Passed returns what the connections of all groups have moved so far.
func (l *nativeLoad) Passed() (in, out int64, ok bool) {
	for _, f := range l.groups {
		i, o, ok := netio.PassedBy(f.conns)
		if !ok {
			return 0, 0, false
		}
		in, out = in+i, out+o
	}
	return in, out, len(l.groups) > 0
}

func (l *nativeLoad) Stop(ctx context.Context) ([]FlowReport, error) {
	var out []FlowReport
	for i, f := range l.groups {
		rep, err := f.Stop(ctx)
		if err != nil {
			for _, rest := range l.groups[i+1:] {
				rest.abandon()
			}
			return nil, err
		}
		out = append(out, rep)
	}
	return out, nil
}

func (l *nativeLoad) Abandon() {
	for _, f := range l.groups {
		f.abandon()
	}
}
