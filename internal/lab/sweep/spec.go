// Package sweep simulates a scenario with many parameters and seeds. Its runs
// are numbered, so that a sweep can be split by index among machines, stopped,
// resumed and merged, and always gives the same bytes.
package sweep

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"unbloat/internal/lab/scenario"
	"unbloat/internal/lab/simlab"
	"unbloat/internal/platform/all"
	"unbloat/internal/platform/linux"
	"unbloat/unit"
)

// Schema names the layout of a sweep's file.
const Schema = "unbloat.sweep/1"

// maxRuns bounds a sweep, so that a misprint is refused.
const maxRuns = 10_000_000

// An Axis is one parameter and the values it takes, as they were written.
type Axis struct {
	Key    string   `json:"key"`
	Values []string `json:"values"`
}

// A Spec is a whole sweep: every case × every combination of the axes' values
// × every seed. It is the first line of a sweep's file.
type Spec struct {
	Schema   string             `json:"schema"`
	Scenario *scenario.Scenario `json:"scenario"`
	Platform string             `json:"platform"` // whose router
	Axes     []Axis             `json:"axes"`
	Seeds    int                `json:"seeds"`
	Runs     int                `json:"runs"`  // of all shards together
	Shard    string             `json:"shard"` // which of them are here: "1/1" for all
}

// A Run is one simulation of a sweep.
type Run struct {
	Index  int
	Case   string
	Seed   uint64
	Params map[string]string
}

// ParseAxis reads "key=value,value,…".
func ParseAxis(s string) (Axis, error) {
	key, values, ok := strings.Cut(s, "=")
	a := Axis{Key: strings.TrimSpace(key)}
	for v := range strings.SplitSeq(values, ",") {
		a.Values = append(a.Values, strings.TrimSpace(v))
	}
	if !ok || slices.Contains(a.Values, "") {
		return a, fmt.Errorf("parameter %q: write it like up=1mbit,2mbit", s)
	}
	known, err := setter(a.Key)
	if err != nil {
		return a, err
	}
	for _, v := range a.Values {
		if err := known(&scenario.Scenario{}, v); err != nil {
			return a, fmt.Errorf("parameter %s: %w", a.Key, err)
		}
	}
	return a, nil
}

// NewSpec checks and counts a sweep. An empty platform is linux.
func NewSpec(s *scenario.Scenario, platform string, axes []Axis, seeds int) (*Spec, error) {
	if platform == "" {
		platform = linux.Name
	}
	if !slices.Contains(all.Names(), platform) {
		return nil, fmt.Errorf("platform %q is unknown; use one of %s", platform, strings.Join(all.Names(), ", "))
	}
	if seeds < 1 {
		return nil, fmt.Errorf("%d seeds: at least 1 is needed", seeds)
	}
	runs := seeds * len(s.Cases)
	for i, a := range axes {
		for _, b := range axes[:i] {
			if a.Key == b.Key {
				return nil, fmt.Errorf("parameter %s is given twice", a.Key)
			}
		}
		if runs > maxRuns/len(a.Values) {
			return nil, fmt.Errorf("more than %d runs", maxRuns)
		}
		runs *= len(a.Values)
	}
	return &Spec{Schema: Schema, Scenario: s, Platform: platform, Axes: axes, Seeds: seeds, Runs: runs, Shard: "1/1"}, nil
}

// Run returns the i-th run. Seeds change fastest, then cases, then the last axis.
func (s *Spec) Run(i int) Run {
	r := Run{Index: i, Params: map[string]string{}}
	r.Seed = uint64(i%s.Seeds) + 1
	i /= s.Seeds
	r.Case = s.Scenario.Cases[i%len(s.Scenario.Cases)].Name
	i /= len(s.Scenario.Cases)
	for k := len(s.Axes) - 1; k >= 0; k-- {
		a := s.Axes[k]
		r.Params[a.Key] = a.Values[i%len(a.Values)]
		i /= len(a.Values)
	}
	return r
}

// scenarioOf returns the scenario with a run's parameters, and its case alone.
func (s *Spec) scenarioOf(r Run) (*scenario.Scenario, simlab.Options, error) {
	c := *s.Scenario
	c.Loads, c.Cases = slices.Clone(c.Loads), slices.Clone(c.Cases)
	for i := range c.Cases {
		if f := c.Cases[i].Router.Fix; f != nil {
			copied := *f
			c.Cases[i].Router.Fix = &copied
		}
	}
	o := simlab.Options{Cases: []string{r.Case}, Seed: r.Seed, Platform: s.Platform}
	for _, a := range s.Axes {
		set, err := setter(a.Key)
		if err == nil {
			err = set(&c, r.Params[a.Key])
		}
		if err != nil {
			return nil, o, fmt.Errorf("parameter %s: %w", a.Key, err)
		}
	}
	return &c, o, nil
}

// A Shard is one of Of equal parts of a sweep, counted from 1: the runs whose
// index leaves Number − 1 when divided by Of.
type Shard struct{ Number, Of int }

// ParseShard reads "3/64".
func ParseShard(s string) (Shard, error) {
	a, b, ok := strings.Cut(s, "/")
	n, err := strconv.Atoi(a)
	of, err2 := strconv.Atoi(b)
	if !ok || err != nil || err2 != nil || n < 1 || of < n {
		return Shard{}, fmt.Errorf("shard %q: write it like 3/64, from 1/64 to 64/64", s)
	}
	return Shard{n, of}, nil
}

// String prints the shard as ParseShard reads it.
func (s Shard) String() string { return fmt.Sprintf("%d/%d", s.Number, s.Of) }

// indices returns which runs of n are the shard's.
func (s Shard) indices(n int) []int {
	var out []int
	for i := s.Number - 1; i < n; i += s.Of {
		out = append(out, i)
	}
	return out
}

// setFunc gives a scenario a parameter.
type setFunc func(*scenario.Scenario, string) error

// Keys returns the parameters that can be varied.
func Keys() []string {
	return []string{
		"down", "up", "rtt", "buffer_down", "buffer_up", "jitter", "loss", "seconds", "flows", "flows_down", "flows_up", "cc",
		"router.aqm", "router.down", "router.up", "router.target", "router.interval", "router.ecn", "router.limit", "router.quantum",
	}
}

// setter returns what sets a parameter. Keys of the router change the cases
// that shape with given numbers.
func setter(key string) (setFunc, error) {
	if f := lineSetter(key); f != nil {
		return f, nil
	}
	name, ok := strings.CutPrefix(key, "router.")
	if f := fixSetter(name); ok && f != nil {
		return func(s *scenario.Scenario, v string) error {
			if err := f(&scenario.Fix{}, v); err != nil { // refuse it also where no case shapes
				return err
			}
			for _, c := range s.Cases {
				if c.Router.Fix != nil {
					if err := f(c.Router.Fix, v); err != nil {
						return err
					}
				}
			}
			return nil
		}, nil
	}
	return nil, fmt.Errorf("parameter %q is unknown; use one of %s", key, strings.Join(Keys(), ", "))
}

func lineSetter(key string) setFunc {
	switch key {
	case "down":
		return func(s *scenario.Scenario, v string) error { return s.Line.Down.UnmarshalText([]byte(v)) }
	case "up":
		return func(s *scenario.Scenario, v string) error { return s.Line.Up.UnmarshalText([]byte(v)) }
	case "buffer_down":
		return func(s *scenario.Scenario, v string) error { return s.Line.BufferDown.UnmarshalText([]byte(v)) }
	case "buffer_up":
		return func(s *scenario.Scenario, v string) error { return s.Line.BufferUp.UnmarshalText([]byte(v)) }
	case "rtt":
		return func(s *scenario.Scenario, v string) (err error) { s.Line.RTT, err = unit.ParseDuration(v); return err }
	case "jitter":
		return func(s *scenario.Scenario, v string) (err error) {
			s.Line.Jitter, err = unit.ParseDuration(v)
			return err
		}
	case "seconds":
		return func(s *scenario.Scenario, v string) (err error) {
			s.Test.Seconds, err = unit.ParseDuration(v)
			return err
		}
	case "loss":
		return func(s *scenario.Scenario, v string) (err error) {
			s.Line.Loss, err = strconv.ParseFloat(v, 64)
			if err == nil && !(s.Line.Loss >= 0 && s.Line.Loss <= 1) {
				err = errors.New("a loss is between 0 and 1")
			}
			return err
		}
	case "flows_down":
		return func(s *scenario.Scenario, v string) (err error) { s.Test.FlowsDown, err = positive(v); return err }
	case "flows_up":
		return func(s *scenario.Scenario, v string) (err error) { s.Test.FlowsUp, err = positive(v); return err }
	case "flows":
		return func(s *scenario.Scenario, v string) error {
			n, err := positive(v)
			for i := range s.Loads {
				if k := s.Loads[i].Kind; k == scenario.Upload || k == scenario.Download {
					s.Loads[i].Flows = n
				}
			}
			return err
		}
	case "cc":
		return func(s *scenario.Scenario, v string) error {
			for i := range s.Loads {
				s.Loads[i].CC = v
			}
			return nil
		}
	}
	return nil
}

func fixSetter(name string) func(*scenario.Fix, string) error {
	switch name {
	case "aqm":
		return func(f *scenario.Fix, v string) error { f.AQM = v; return nil }
	case "down":
		return func(f *scenario.Fix, v string) error { return f.Down.UnmarshalText([]byte(v)) }
	case "up":
		return func(f *scenario.Fix, v string) error { return f.Up.UnmarshalText([]byte(v)) }
	case "target":
		return func(f *scenario.Fix, v string) (err error) { f.Target, err = unit.ParseDuration(v); return err }
	case "interval":
		return func(f *scenario.Fix, v string) (err error) { f.Interval, err = unit.ParseDuration(v); return err }
	case "ecn":
		return func(f *scenario.Fix, v string) error {
			b, err := strconv.ParseBool(v)
			f.ECN = &b
			return err
		}
	case "limit":
		return func(f *scenario.Fix, v string) (err error) { f.Limit, err = positive(v); return err }
	case "quantum":
		return func(f *scenario.Fix, v string) error {
			n, err := positive(v)
			f.Quantum = unit.Size(n)
			return err
		}
	}
	return nil
}

// positive reads a whole number of at least 1.
func positive(v string) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > 100_000 {
		return 1, fmt.Errorf("%q is not a whole number from 1 to 100000", v)
	}
	return n, nil
}
