// This part simulates a scenario with many parameters and seeds. Its runs
// are numbered, so that a sweep can be split by index among machines, stopped,
// resumed and merged, and always gives the same bytes.

package simlab

import (
	"encoding"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"unbloat/internal/cure/platform/all"
	"unbloat/internal/cure/platform/linux"
	"unbloat/lab/scenario"
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
type SweepSpec struct {
	Schema   string             `json:"schema"`
	Scenario *scenario.Scenario `json:"scenario"`
	Platform string             `json:"platform"` // whose router
	Axes     []Axis             `json:"axes"`
	Seeds    int                `json:"seeds"`
	Runs     int                `json:"runs"`  // of all shards together
	Shard    string             `json:"shard"` // which of them are here: "1/1" for all
}

// A Run is one simulation of a sweep.
type Combination struct {
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
func NewSweep(s *scenario.Scenario, platform string, axes []Axis, seeds int) (*SweepSpec, error) {
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
	return &SweepSpec{Schema: Schema, Scenario: s, Platform: platform, Axes: axes, Seeds: seeds, Runs: runs, Shard: "1/1"}, nil
}

// Run returns the i-th run. Seeds change fastest, then cases, then the last axis.
func (s *SweepSpec) Run(i int) Combination {
	r := Combination{Index: i, Params: map[string]string{}}
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
func (s *SweepSpec) scenarioOf(r Combination) (*scenario.Scenario, Options, error) {
	c := *s.Scenario
	c.Loads, c.Cases = slices.Clone(c.Loads), slices.Clone(c.Cases)
	for i := range c.Cases {
		if f := c.Cases[i].Router.Fix; f != nil {
			copied := *f
			c.Cases[i].Router.Fix = &copied
		}
	}
	o := Options{Cases: []string{r.Case}, Seed: r.Seed, Platform: s.Platform}
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

// A parameter is what can be varied: its key, and what sets it.
type parameter struct {
	key string
	set func(s *scenario.Scenario, value string) error
}

// parameters returns what can be varied. Keys of the router change the cases
// that shape with given numbers.
func parameters() []parameter {
	return []parameter{
		{"down", text(func(s *scenario.Scenario) encoding.TextUnmarshaler { return &s.Line.Down })},
		{"up", text(func(s *scenario.Scenario) encoding.TextUnmarshaler { return &s.Line.Up })},
		{"rtt", duration(func(s *scenario.Scenario) *time.Duration { return &s.Line.RTT })},
		{"buffer_down", text(func(s *scenario.Scenario) encoding.TextUnmarshaler { return &s.Line.BufferDown })},
		{"buffer_up", text(func(s *scenario.Scenario) encoding.TextUnmarshaler { return &s.Line.BufferUp })},
		{"jitter", duration(func(s *scenario.Scenario) *time.Duration { return &s.Line.Jitter })},
		{"loss", setLoss},
		{"seconds", duration(func(s *scenario.Scenario) *time.Duration { return &s.Test.Seconds })},
		{"flows", func(s *scenario.Scenario, v string) error {
			n, err := positive(v)
			for i := range s.Loads {
				if k := s.Loads[i].Kind; k == scenario.Upload || k == scenario.Download {
					s.Loads[i].Flows = n
				}
			}
			return err
		}},
		{"flows_down", count(func(s *scenario.Scenario) *int { return &s.Test.FlowsDown })},
		{"flows_up", count(func(s *scenario.Scenario) *int { return &s.Test.FlowsUp })},
		{"cc", func(s *scenario.Scenario, v string) error {
			for i := range s.Loads {
				s.Loads[i].CC = v
			}
			return nil
		}},
		{"router.aqm", router(func(f *scenario.Fix, v string) error { f.AQM = v; return nil })},
		{"router.down", router(text(func(f *scenario.Fix) encoding.TextUnmarshaler { return &f.Down }))},
		{"router.up", router(text(func(f *scenario.Fix) encoding.TextUnmarshaler { return &f.Up }))},
		{"router.target", router(duration(func(f *scenario.Fix) *time.Duration { return &f.Target }))},
		{"router.interval", router(duration(func(f *scenario.Fix) *time.Duration { return &f.Interval }))},
		{"router.ecn", router(func(f *scenario.Fix, v string) error {
			b, err := strconv.ParseBool(v)
			f.ECN = &b
			return err
		})},
		{"router.limit", router(count(func(f *scenario.Fix) *int { return &f.Limit }))},
		{"router.quantum", router(func(f *scenario.Fix, v string) error {
			n, err := positive(v)
			f.Quantum = unit.Size(n)
			return err
		})},
	}
}

// Keys returns the parameters that can be varied.
func SweepKeys() []string {
	var out []string
	for _, p := range parameters() {
		out = append(out, p.key)
	}
	return out
}

// setter returns what sets a parameter.
func setter(key string) (func(*scenario.Scenario, string) error, error) {
	for _, p := range parameters() {
		if p.key == key {
			return p.set, nil
		}
	}
	return nil, fmt.Errorf("parameter %q is unknown; use one of %s", key, strings.Join(SweepKeys(), ", "))
}

// text sets what reads itself: rates and sizes.
func text[T any](of func(*T) encoding.TextUnmarshaler) func(*T, string) error {
	return func(t *T, v string) error { return of(t).UnmarshalText([]byte(v)) }
}

func duration[T any](of func(*T) *time.Duration) func(*T, string) error {
	return func(t *T, v string) (err error) { *of(t), err = unit.ParseDuration(v); return err }
}

func count[T any](of func(*T) *int) func(*T, string) error {
	return func(t *T, v string) (err error) { *of(t), err = positive(v); return err }
}

// router sets a number of the cases that shape with given ones. A bad one is
// refused also where no case does.
func router(set func(*scenario.Fix, string) error) func(*scenario.Scenario, string) error {
	return func(s *scenario.Scenario, v string) error {
		if err := set(&scenario.Fix{}, v); err != nil {
			return err
		}
		for _, c := range s.Cases {
			if c.Router.Fix != nil {
				if err := set(c.Router.Fix, v); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

func setLoss(s *scenario.Scenario, v string) (err error) {
	s.Line.Loss, err = strconv.ParseFloat(v, 64)
	if err == nil && !(s.Line.Loss >= 0 && s.Line.Loss <= 1) {
		err = errors.New("a loss is between 0 and 1")
	}
	return err
}

// positive reads a whole number of at least 1.
func positive(v string) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > 100_000 {
		return 1, fmt.Errorf("%q is not a whole number from 1 to 100000", v)
	}
	return n, nil
}
