// Package prove compares two ways of shaping a line. It measures them in interleaved
// pairs, in an order that favours neither, and gives a confidence interval of the
// change. The schedule, the sides and the result are pure; Run connects them to a
// measuring client and a router.
package prove

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/verdict"
)

// A Meter measures the line; a measure.Tester of any protocol is one.
type Meter interface {
	Phase(context.Context, phases.PhaseSpec) (*phases.RawPhase, error)
	Judge(label string, raws []phases.RawPhase) *verdict.Test
}

// A Router applies one side or the other. Revert restores the state before the first
// Switch; without one it does nothing.
type Router interface {
	Switch(context.Context, Side) error
	Revert(context.Context) error
}

// A Config says what to compare. Zero values take the defaults.
type Config struct {
	Sides              [2]Side       // the second is compared with the first
	WAN, Label         string        // for the result
	Pairs              int           // at least verdict.MinPairs, the default
	Load               time.Duration // of each leg; 6 s
	Idle               time.Duration // 4 s, once
	Phase              string        // verdict.PhaseBoth (the default), PhaseDownload or PhaseUpload
	FlowsDown, FlowsUp int
	CC                 string
	Seed               uint64             // of the order
	Progress           func(phases.Event) // may be nil
	Say                func(string)       // a line for each step; may be nil
	Now                func() time.Time   // nil: time.Now
}

// Defaults of a Config.
const (
	DefaultLoad = 6 * time.Second
	DefaultIdle = 4 * time.Second
)

// Longest parts of a leg that are cut off at its start and end.
const (
	mostHead = 2 * time.Second
	mostTail = 250 * time.Millisecond
)

// ErrInvalid is wrapped when the line cannot be measured at all, so that
// nothing was compared.
var ErrInvalid = errors.New("the measurement is not valid")

func (c Config) withDefaults() Config {
	c.Pairs = max(c.Pairs, verdict.MinPairs)
	if c.Load <= 0 {
		c.Load = DefaultLoad
	}
	if c.Idle <= 0 {
		c.Idle = DefaultIdle
	}
	if c.Phase == "" {
		c.Phase = verdict.PhaseBoth
	}
	if c.FlowsDown <= 0 || c.Phase == verdict.PhaseUpload {
		c.FlowsDown = defaultFlows(c.Phase != verdict.PhaseUpload)
	}
	if c.FlowsUp <= 0 || c.Phase == verdict.PhaseDownload {
		c.FlowsUp = defaultFlows(c.Phase != verdict.PhaseDownload)
	}
	if c.Say == nil {
		c.Say = func(string) {}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

func defaultFlows(loaded bool) int {
	if loaded {
		return phases.DefaultFlows
	}
	return 0
}

// Run measures the pairs and evaluates them. When it returns, the router is always as
// before. The result is as complete as possible, also with an error. A result that
// is invalid because too many pairs were invalid is not an error.
func Run(ctx context.Context, c Config, m Meter, r Router) (*Result, error) {
	c = c.withDefaults()
	p := &proving{Config: c, meter: m, router: r, rng: rand.New(rand.NewPCG(c.Seed, 0))}
	begun := c.Now()
	p.result = &Result{
		Schema: Schema, Time: begun.UTC().Format(time.RFC3339), Label: c.Label, WAN: c.WAN,
		Between: [2]string{c.Sides[0].Name, c.Sides[1].Name}, PairsWanted: c.Pairs, Phase: c.Phase, Seed: c.Seed,
		Pairs: []PairResult{},
	}
	for i, s := range c.Sides {
		p.result.Sides[i] = Summary{Name: s.Name, Plan: s.Plan}
	}
	err := p.run(ctx)
	if e := r.Revert(context.WithoutCancel(ctx)); e != nil {
		err = errors.Join(err, fmt.Errorf("undo the proof's shaping: %w", e))
	}
	p.result.LineSeconds = c.Now().Sub(begun).Seconds()
	p.result.conclude()
	return p.result, err
}

type proving struct {
	Config
	meter  Meter
	router Router
	rng    *rand.Rand
	idle   phases.RawPhase
	result *Result
}

func (p *proving) run(ctx context.Context) error {
	if err := p.baseline(ctx); err != nil {
		return err
	}
	used := 0
	for attempt := 0; used < p.Pairs; {
		// Replacements of invalid pairs get a balanced schedule of their own.
		for _, secondFirst := range Schedule(p.Pairs-used, p.rng) {
			attempt++
			pair, err := p.pair(ctx, secondFirst, fmt.Sprintf("pair %d of %d", used+1, p.Pairs))
			if err != nil {
				return err
			}
			p.result.Pairs = append(p.result.Pairs, *pair)
			if pair.Used {
				used++
			} else {
				p.Say("this pair does not count: " + pair.InvalidReasons[0])
			}
			if attempt-used > p.Pairs/2 {
				return nil // conclude reports that there are too few
			}
		}
	}
	return nil
}

// baseline measures the idle line once, without changing the router.
func (p *proving) baseline(ctx context.Context) error {
	p.Say("measuring the idle line")
	raw, err := p.meter.Phase(ctx, phases.PhaseSpec{Name: verdict.PhaseIdle, Duration: p.Idle, Progress: p.Progress})
	if err != nil {
		return fmt.Errorf("measure the idle line: %w", err)
	}
	p.idle = *raw
	t := p.meter.Judge(p.Label, []phases.RawPhase{p.idle})
	p.result.Idle, p.result.Server = t.Idle, t.Server
	if !t.Valid {
		return fmt.Errorf("measure the idle line: %w: %s", ErrInvalid, strings.Join(t.InvalidReasons, "; "))
	}
	return nil
}

// pair measures both sides, one right after the other.
func (p *proving) pair(ctx context.Context, secondFirst bool, name string) (*PairResult, error) {
	out := &PairResult{SecondFirst: secondFirst, InvalidReasons: []string{}}
	order := []int{0, 1}
	if secondFirst {
		order = []int{1, 0}
	}
	for _, i := range order {
		side := p.Sides[i]
		phase, reasons, err := p.leg(ctx, side)
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", name, side.Name, err)
		}
		for _, r := range reasons {
			out.InvalidReasons = append(out.InvalidReasons, side.Name+": "+r)
		}
		if i == 0 {
			out.Without = phase
		} else {
			out.With = phase
		}
		p.Say(fmt.Sprintf("%s, %s: p95 %s, down %s, up %s", name, wording(Summary{Name: side.Name}),
			ms(phase.Latency.RTTMs.P95), Rate(phase.GoodputDownBps), Rate(phase.GoodputUpBps)))
	}
	out.Used = len(out.InvalidReasons) == 0
	return out, nil
}

// leg applies a side and loads the line.
func (p *proving) leg(ctx context.Context, side Side) (*verdict.Phase, []string, error) {
	if err := p.router.Switch(ctx, side); err != nil {
		return nil, nil, err
	}
	raw, err := p.meter.Phase(ctx, phases.PhaseSpec{
		Name: p.Phase, Duration: p.Load, CutHead: min(mostHead, p.Load/3), CutTail: min(mostTail, p.Load/20),
		FlowsDown: p.FlowsDown, FlowsUp: p.FlowsUp, CC: p.CC, Progress: p.Progress,
	})
	if err != nil {
		return nil, nil, err
	}
	t := p.meter.Judge(side.Name, []phases.RawPhase{p.idle, *raw})
	for _, n := range t.Phases() {
		if n.Name == p.Phase {
			return n.Phase, t.InvalidReasons, nil
		}
	}
	return nil, nil, fmt.Errorf("the phase %s was not judged", p.Phase)
}
