// Package simlab runs scenarios in the simulator and returns what package lab
// returns for a real kernel: the same phases, figures and judgement. The plan
// is carried out by package aqm in the dialect of the plan's platform.
package simlab

import (
	"context"
	"fmt"
	"math"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/all"
	"unbloat/internal/cure/platform/linux"
	"unbloat/internal/cure/tune"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/verdict"
	"unbloat/lab"
	"unbloat/lab/scenario"
)

// Edges of a loaded phase that are not counted, at most: package lab's.
const (
	loadedHead = 10 * time.Second
	loadedTail = 250 * time.Millisecond
)

// Kernel is what a Result names in place of a kernel's version.
const Kernel = "simulated"

// Options say how a scenario is simulated.
type Options struct {
	Cases    []string // empty: all of the scenario's
	Seed     uint64   // the same seed gives the same result
	Platform string   // whose router: one of all.Names(); "": linux, as in the lab
	Series   bool     // keep every probe in the result
}

// Run simulates the cases of a scenario. Simulation has no clock of its own, so
// the result's wall seconds are zero; the caller may fill them in.
func Run(ctx context.Context, s *scenario.Scenario, o Options) (*lab.Result, error) {
	if o.Platform == "" {
		o.Platform = linux.Name
	}
	cases := s.Cases
	if len(o.Cases) > 0 {
		cases = nil
		for _, name := range o.Cases {
			c, err := s.Case(name)
			if err != nil {
				return nil, err
			}
			cases = append(cases, c)
		}
	}
	r := &lab.Result{Schema: lab.Schema, Scenario: s.Name, Engine: lab.Sim, Kernel: Kernel, Seed: o.Seed}
	for _, c := range cases {
		one, err := runCase(ctx, s, c, o)
		if err != nil {
			return nil, fmt.Errorf("simulate %s, case %s: %w", s.Name, c.Name, err)
		}
		r.Cases = append(r.Cases, *one)
		r.VirtualSeconds += one.VirtualSeconds
	}
	return r, nil
}

func runCase(ctx context.Context, s *scenario.Scenario, c scenario.Case, o Options) (*lab.CaseResult, error) {
	for _, l := range s.Loads {
		if l.Through != "" {
			return nil, fmt.Errorf("the simulator has no calls through %s; use --engine virtual", l.Through)
		}
	}
	for _, x := range s.Line.Vary {
		if x.More > 0 || x.Silent {
			return nil, fmt.Errorf("the simulator has no changes of the provider's network (line.vary with more or silent); use --engine virtual")
		}
	}
	s, err := s.Of(c.Name)
	if err != nil {
		return nil, err
	}
	h, err := newHouse(s, o.Platform, o.Seed)
	if err != nil {
		return nil, err
	}
	switch c.Router.Mode {
	case scenario.ModeFix:
		p, err := fix(s, o.Platform, c.Router.Fix)
		if err != nil {
			return nil, err
		}
		return h.shaped(ctx, c.Name, &p, o.Series)
	case scenario.ModeDaemon:
		p, err := h.daemon(ctx, c.Router.Daemon)
		if err != nil {
			return nil, err
		}
		r, err := h.finish(ctx, c.Name, o.Series)
		if err == nil {
			r.Plan = p
		}
		return r, err
	case scenario.ModeOracle:
		l, share := s.Line, c.Router.Oracle
		p, err := fix(s, o.Platform, &scenario.Fix{AQM: string(plan.CAKE), Down: l.Down.Scale(share), Up: l.Up.Scale(share)})
		if err != nil {
			return nil, err
		}
		h.changing = func(c scenario.Change) error { return h.reshape(c, share) }
		return h.shaped(ctx, c.Name, &p, o.Series)
	case scenario.ModeAutorate:
		return nil, &lab.MissingError{What: "cake-autorate", Remedy: "it is a program, and the simulator runs none; leave the case out (--case), or use --engine virtual"}
	case scenario.ModeTune:
		p, tuned, err := h.tune(ctx)
		if err != nil {
			return nil, err
		}
		r, err := h.finish(ctx, c.Name, o.Series)
		if err == nil {
			r.Plan, r.Tune = p, tuned
		}
		return r, err
	}
	return h.finish(ctx, c.Name, o.Series)
}

// shaped measures a case whose router carries out a plan.
func (h *house) shaped(ctx context.Context, name string, p *plan.Plan, series bool) (*lab.CaseResult, error) {
	if err := h.Shape(ctx, *p); err != nil {
		return nil, err
	}
	r, err := h.finish(ctx, name, series)
	if err == nil {
		r.Plan = p
	}
	return r, err
}

// finish measures a case with the router as it is.
func (h *house) finish(ctx context.Context, name string, series bool) (*lab.CaseResult, error) {
	r := &lab.CaseResult{Name: name, Loads: []lab.LoadResult{}}
	if err := h.measure(ctx, name, r); err != nil {
		return nil, err
	}
	if !series {
		for _, p := range r.Test.Phases() {
			p.Series = nil
		}
	}
	r.VirtualSeconds = math.Round(h.net.Now().Seconds()*1e3) / 1e3
	return r, nil
}

// Tune lets the tuner find the shaping of a scenario's line, and measures
// nothing besides what the tuner itself does.
func Tune(ctx context.Context, s *scenario.Scenario, o Options) (*lab.TuneResult, error) {
	if o.Platform == "" {
		o.Platform = linux.Name
	}
	h, err := newHouse(s, o.Platform, o.Seed)
	if err != nil {
		return nil, fmt.Errorf("simulate %s: %w", s.Name, err)
	}
	_, r, err := h.tune(ctx)
	if err != nil {
		return nil, fmt.Errorf("simulate the tuning of %s: %w", s.Name, err)
	}
	return r, nil
}

// capabilities returns what the simulated router is.
func capabilities(platform string) (plan.Capabilities, error) {
	if platform == linux.Name {
		return plan.Capabilities{Platform: platform, Language: linux.Language(), WAN: lab.RouterWAN, LAN: lab.RouterLAN, IFB: true}, nil
	}
	return all.Assume(platform, "", "")
}

// fix plans what somebody chose, as the lab's router does.
func fix(s *scenario.Scenario, platform string, f *scenario.Fix) (plan.Plan, error) {
	known, err := capabilities(platform)
	if err != nil {
		return plan.Plan{}, err
	}
	wanted, err := plan.Request(*f).Preferences()
	if err != nil {
		return plan.Plan{}, err
	}
	line, err := plan.Request(*f).Line(s.Line.RTT, len(s.Line.Vary) > 0)
	if err != nil {
		return plan.Plan{}, err
	}
	return plan.Make(line, known, wanted)
}

// tune lets the tuner find the shaping. What it keeps stays; without a better
// one the router does nothing.
func (h *house) tune(ctx context.Context) (*plan.Plan, *lab.TuneResult, error) {
	known, err := capabilities(h.platform)
	if err != nil {
		return nil, nil, err
	}
	down, up := lab.FlowsOf(h.scenario)
	res, err := tune.Run(ctx, tune.Config{Goal: h.scenario.Test.Goal, Capabilities: known, FlowsDown: down, FlowsUp: up, Now: h.Now}, h, h)
	if err != nil {
		return nil, nil, err
	}
	out := &lab.TuneResult{Result: *res}
	if !res.Kept {
		out.ExitCode = 3
	}
	return res.Plan, out, nil
}

// measure runs the phases of `unbloat test`, or, where the scenario brings
// loads, idle and loaded.
func (h *house) measure(ctx context.Context, label string, r *lab.CaseResult) error {
	s := h.scenario
	h.vary()
	specs := lab.Phases(s)
	if len(s.Loads) == 0 {
		var raws []phases.RawPhase
		for _, spec := range specs {
			raw, err := h.Phase(ctx, spec)
			if err != nil {
				return err
			}
			raws = append(raws, *raw)
		}
		r.Test = h.Judge(label, raws)
		return nil
	}
	before, err := h.Phase(ctx, specs[0])
	if err != nil {
		return err
	}
	raw, loads, err := h.loaded(ctx, s.LoadedFor())
	if err != nil {
		return err
	}
	base := verdict.NewBaseline(*before)
	for _, l := range loads {
		r.Loads = append(r.Loads, h.outcome(l, raw, base))
	}
	r.Test = h.Judge(label, []phases.RawPhase{*before, *raw})
	return nil
}
