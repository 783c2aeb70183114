package phases

import (
	"context"
	"errors"
	"fmt"
	"time"

	"unbloat/internal/measure/verdict"
	"unbloat/reason"
)

// Config describes a whole test.
type Config struct {
	Idle     time.Duration // of the idle phase; 5 s
	Load     time.Duration // of each loaded phase; 10 s
	Flows    int           // of each direction; 4
	Classes  []int         // DSCPs over which the flows are spread; empty: none
	CC       string        // congestion control of the senders; "" for each end's default
	Label    string
	Progress func(Event) // may be nil
}

// Defaults of a Config.
const (
	DefaultIdle  = 5 * time.Second
	DefaultLoad  = 10 * time.Second
	DefaultFlows = 4
)

func (c Config) withDefaults() Config {
	if c.Idle <= 0 {
		c.Idle = DefaultIdle
	}
	if c.Load <= 0 {
		c.Load = DefaultLoad
	}
	if c.Flows <= 0 {
		c.Flows = DefaultFlows
	}
	return c
}

// Phases returns the phases of a test in the order they run. Each has so many
// flows in the directions it loads (verdict.Loads); idle and load are the
// lengths of the idle phase and of each loaded one.
func Phases(idle, load time.Duration, flowsDown, flowsUp int) []PhaseSpec {
	var out []PhaseSpec
	for _, name := range verdict.PhaseNames() {
		spec := PhaseSpec{Name: name, Duration: load}
		down, up := verdict.Loads(name)
		if down {
			spec.FlowsDown = flowsDown
		}
		if up {
			spec.FlowsUp = flowsUp
		}
		if !down && !up {
			spec.Duration = idle
		}
		out = append(out, spec)
	}
	return out
}

// Run measures the phases of a test and judges them. A test that ctx ends keeps
// its whole phases: it is returned beside the error, once the idle line is known.
func Run(ctx context.Context, c Tester, cfg Config) (*verdict.Test, error) {
	cfg = cfg.withDefaults()
	var raws []verdict.Raw
	for _, spec := range Phases(cfg.Idle, cfg.Load, cfg.Flows, cfg.Flows) {
		spec.CC, spec.Classes, spec.Progress = cfg.CC, cfg.Classes, cfg.Progress
		raw, err := c.Phase(ctx, spec)
		if errors.Is(err, ErrNoLoad) {
			t := c.Judge(cfg.Label, raws)
			t.Remark(reason.Of(reason.AsWritten, "text", err.Error()))
			return t, nil
		}
		if err != nil && ctx.Err() != nil && len(raws) > 0 {
			t := c.Judge(cfg.Label, raws)
			t.Remark(reason.Of(reason.Interrupted, "in", spec.Name))
			return t, fmt.Errorf("test against %s: interrupted during the phase %q: %w", c.Server(), spec.Name, err)
		}
		if err != nil {
			return nil, fmt.Errorf("test against %s: %w", c.Server(), err)
		}
		raws = append(raws, *raw)
	}
	return c.Judge(cfg.Label, raws), nil
}

// A Profile is a kind of load that has a name.
type Profile struct {
	Flows   int
	Classes []int // DSCPs
	ICMP    bool  // ICMP probes too
}

// Profiles returns the kinds of load that have a name: rrul is flent's
// real-time response under load (CS0, CS1, CS5 and EF, both ways).
func Profiles() map[string]Profile {
	return map[string]Profile{
		"rrul":   {Flows: 4, Classes: []int{0, 8, 40, 46}, ICMP: true},
		"single": {Flows: 1},
		"many":   {Flows: 16},
	}
}
