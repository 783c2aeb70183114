package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"unbloat/lab/scenario"
)

// Options say how a scenario is run.
type Options struct {
	Engine   Engine       // "" chooses the best that is installed
	Cases    []string     // empty: all of the scenario's
	Seed     uint64       // of all that is random in the guests; 0 is 1
	Programs Programs     // that run inside; none: this one, and the unbloat beside it
	Console  io.Writer    // receives what the guests print; nil: nobody
	Started  func(string) // called with a line for each case that has ended; may be nil
	Log      bool         // have the daemon write what it measures and decides (CaseResult.Followed)
	Router   *Router      // a router's own image in place of the lab's router; nil: the lab's
}

func (o Options) seed() uint64 { return max(o.Seed, 1) }

// Programs are those of ours that run in the guests, by absolute paths on the host.
type Programs struct {
	Lab     string `json:"lab"`     // has the commands that begin with lab-
	Unbloat string `json:"unbloat"` // measures, cures and serves
}

// find returns p, or if it has none, this program and the unbloat beside it.
func (p Programs) find() (Programs, error) {
	if p != (Programs{}) {
		return p, nil
	}
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		return p, fmt.Errorf("find the lab's programs: %w", err)
	}
	p = Programs{Lab: self, Unbloat: filepath.Join(filepath.Dir(self), "unbloat")}
	if _, err := os.Stat(p.Unbloat); err != nil {
		return p, &MissingError{p.Unbloat, "the lab's router, server and hosts run it; install it beside " + filepath.Base(self) + ", as `make build` does"}
	}
	return p, nil
}

// Run runs the cases of a scenario, each in a guest of its own, as many side by
// side as there are CPUs. The result's cases are in the scenario's order. In
// virtual time the same seed gives the same figures, to the last digit, as long
// as the guest has the same programs.
func Run(ctx context.Context, s *scenario.Scenario, o Options) (*Result, error) {
	if o.Engine == Sim {
		return nil, &UnsupportedError{Need: "the simulator (engine sim), which this build does not have"}
	}
	cases, err := Cases(s, o.Cases)
	if err != nil {
		return nil, err
	}
	if o.Router != nil {
		return runRouter(ctx, s, cases, o)
	}
	if o.Programs, err = o.Programs.find(); err != nil {
		return nil, err
	}
	autorate := ""
	if slices.ContainsFunc(cases, func(c scenario.Case) bool { return c.Router.Mode == scenario.ModeAutorate }) {
		if autorate, err = FindAutorate(); err != nil {
			return nil, err
		}
	}
	kernel, err := FindKernel(o.Engine)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	result := &Result{Schema: Schema, Scenario: s.Name, Engine: kernel.Engine, Kernel: kernel.Version, Seed: o.seed(), Cases: make([]CaseResult, len(cases))}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for i, c := range cases {
		wg.Go(func() {
			g := Guest{Engine: kernel.Engine, Scenario: s, Case: c.Name, Programs: o.Programs, Server: true, Seed: o.seed(), Autorate: autorate, Log: o.Log}
			r, err := runCase(ctx, kernel, g, o)
			if err != nil {
				cancel(fmt.Errorf("case %s: %w", c.Name, err))
				return
			}
			result.Cases[i] = *r
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("lab run %s: %w", s.Name, err)
	}
	for _, c := range result.Cases {
		result.VirtualSeconds += c.VirtualSeconds
	}
	result.WallSeconds = time.Since(start).Seconds()
	return result, nil
}

// Cases returns the cases of a scenario with the given names, in the scenario's
// order; all for none. The error names one that it does not have.
func Cases(s *scenario.Scenario, names []string) ([]scenario.Case, error) {
	if len(names) == 0 {
		return s.Cases, nil
	}
	for _, n := range names {
		if _, err := s.Case(n); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(slices.Clone(s.Cases), func(c scenario.Case) bool { return !slices.Contains(names, c.Name) }), nil
}

func runCase(ctx context.Context, k Kernel, g Guest, o Options) (*CaseResult, error) {
	console := o.Console
	if console != nil {
		console = &prefixWriter{w: console, prefix: g.Case + ": "}
	}
	r, wall, err := Boot(ctx, k, g, console)
	if err != nil {
		return nil, err
	}
	if o.Started != nil {
		o.Started(fmt.Sprintf("%s/%s: %.0f s of line time in %.1f s", g.Scenario.Name, g.Case, r.VirtualSeconds, wall.Seconds()))
	}
	return r, nil
}

// Tune runs nothing but the tuner, on the emulated router of a scenario: the
// whole story of measuring, curing and proving, which `unbloat demo` tells.
func Tune(ctx context.Context, s *scenario.Scenario, o Options) (*TuneResult, Kernel, error) {
	kernel, err := FindKernel(o.Engine)
	if err != nil {
		return nil, kernel, err
	}
	if o.Programs, err = o.Programs.find(); err != nil {
		return nil, kernel, err
	}
	i := slices.IndexFunc(s.Cases, func(c scenario.Case) bool { return c.Router.Mode == scenario.ModeTune })
	if i < 0 {
		return nil, kernel, fmt.Errorf("scenario %s has no case whose router is tuned", s.Name)
	}
	g := Guest{Engine: kernel.Engine, Scenario: s, Case: s.Cases[i].Name, Programs: o.Programs, Server: true, TuneOnly: true, Seed: o.seed()}
	r, _, err := Boot(ctx, kernel, g, o.Console)
	if err != nil {
		return nil, kernel, err
	}
	return r.Tune, kernel, nil
}

// spent is the time that a guest took.
type spent struct{ wall, processor time.Duration }

// Boot runs one guest to its end and returns what it found.
func Boot(ctx context.Context, k Kernel, g Guest, console io.Writer) (*CaseResult, time.Duration, error) {
	text, took, err := boot(ctx, k, g, console)
	wall := took.wall
	if err != nil {
		return nil, wall, err
	}
	var r CaseResult
	if g.Shell && len(text) == 0 {
		return &r, wall, nil
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, wall, fmt.Errorf("read the guest's result: %w", err)
	}
	r.WallSeconds, r.ProcessorSeconds = wall.Seconds(), took.processor.Seconds()
	return &r, wall, nil
}

// prefixWriter puts a prefix before each line, so that guests side by side can
// be told apart.
type prefixWriter struct {
	w      io.Writer
	prefix string
	line   strings.Builder
}

func (p *prefixWriter) Write(b []byte) (int, error) {
	for _, c := range b {
		p.line.WriteByte(c)
		if c == '\n' {
			if _, err := io.WriteString(p.w, p.prefix+p.line.String()); err != nil {
				return 0, err
			}
			p.line.Reset()
		}
	}
	return len(b), nil
}
