package lab

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/internal/measure/phases"
	"unbloat/lab/scenario"
	"unbloat/unit"
)

// A typist is a tc that reads commands as they come: one process for all changes
// of a line, of which a trace has hundreds.
type typist struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

func startTypist(ctx context.Context, node string) (*typist, error) {
	argv := batch{tool: "tc", node: node}.argv()
	t := &typist{cmd: exec.CommandContext(ctx, argv[0], argv[1:]...)}
	t.cmd.Stderr = os.Stderr
	var err error
	if t.in, err = t.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return t, t.cmd.Start()
}

func (t *typist) run(b batch) error {
	_, err := io.WriteString(t.in, b.text())
	return err
}

// end waits until all that was typed is done.
func (t *typist) end() error {
	if err := t.in.Close(); err != nil {
		return err
	}
	return t.cmd.Wait()
}

// vary changes the line from now on as the scenario says. With an oracle's share
// the router's shapers have that share of each new rate at once. The returned
// function ends it; its error is that of a change.
func (a *agent) vary(ctx context.Context, share float64) (stop func() error, err error) {
	l := a.g.Scenario.Line
	if len(l.Vary) == 0 {
		return func() error { return nil }, nil
	}
	modem, err := startTypist(ctx, NodeModem)
	if err != nil {
		return nil, fmt.Errorf("vary the line: %w", err)
	}
	typists := []*typist{modem}
	if share > 0 {
		router, err := startTypist(ctx, NodeRouter)
		if err != nil {
			return nil, fmt.Errorf("vary the line: %w", err)
		}
		typists = append(typists, router)
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- a.changes(ctx, l, share, typists) }()
	return func() error {
		cancel()
		err := <-done
		for _, t := range typists {
			if e := t.end(); err == nil {
				err = e
			}
		}
		if err != nil {
			return fmt.Errorf("vary the line: %w", err)
		}
		return nil
	}, nil
}

// changes makes the changes of the line when they are due, until ctx ends.
func (a *agent) changes(ctx context.Context, l scenario.Line, share float64, typists []*typist) error {
	start := time.Now()
	for _, c := range l.Vary {
		if phases.Sleep(ctx, c.At-time.Since(start)) != nil {
			return nil // the case is over
		}
		if err := typists[0].run(retune(l, c, a.g.Engine, a.g.Router)); err != nil {
			return err
		}
		for _, b := range surroundings(l, c) {
			if err := runBatch(ctx, b); err != nil && ctx.Err() == nil {
				return err
			}
		}
		if share == 0 {
			continue
		}
		if err := typists[1].run(reshape(c, share)); err != nil {
			return err
		}
	}
	return nil
}

// leastOracle is the least rate of shapers that know the line: CAKE with less
// would hold a packet for seconds after an outage.
const leastOracle = 64 * unit.KbitPerSecond

// reshape gives the router's shapers a share of what the line carries now.
func reshape(c scenario.Change, share float64) batch {
	b := batch{tool: "tc", node: NodeRouter}
	for dev, r := range map[string]unit.Rate{plan.IFBName(RouterWAN): c.Down, RouterWAN: c.Up} {
		if r > 0 || c.Exact {
			b.add("qdisc change dev %s root cake bandwidth %dbit", dev, max(r.Scale(share), leastOracle))
		}
	}
	return b
}
