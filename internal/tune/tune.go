// Package tune finds the shaping that holds the latency goal at the highest
// rates, and keeps it only if it proves better. The search (search.go) is pure;
// Run joins it to a measuring client and a router.
package tune

import (
	"context"
	"errors"
	"fmt"
	"time"

	"unbloat/internal/measure"
	"unbloat/internal/plan"
	"unbloat/internal/verdict"
	"unbloat/unit"
)

// Schema names the JSON layout of a Result.
const Schema = "unbloat.tune/1"

// A Result is the outcome of tuning.
type Result struct {
	Schema        string            `json:"schema"`
	Kept          bool              `json:"kept"`
	Reason        string            `json:"reason"` // why it was kept, or not
	GoalMs        float64           `json:"goal_ms"`
	GoalHeld      bool              `json:"goal_held"` // in every phase of the final check
	LineDownBps   unit.Rate         `json:"line_down_bps"`
	LineUpBps     unit.Rate         `json:"line_up_bps"` // what the line carries, as measured unshaped
	LineSeconds   float64           `json:"line_seconds"`
	Plan          *plan.Plan        `json:"plan"` // the best that was found, kept or not
	Before        *verdict.Test     `json:"before"`
	After         *verdict.Test     `json:"after"`
	Trials        []Trial           `json:"trials"`
	ImprovementMs *verdict.Interval `json:"improvement_ms,omitempty"` // of the worst phase's p95, 95 % interval
}

// A Trial is one step of the search.
type Trial struct {
	Rates
	IncreaseMs float64 `json:"increase_ms"` // p95
	DownMs     float64 `json:"down_ms"`     // p95 of each way
	UpMs       float64 `json:"up_ms"`
	Held       bool    `json:"held"`
}

// A Meter measures the line; *measure.Client is one.
type Meter interface {
	Phase(context.Context, measure.PhaseSpec) (*measure.RawPhase, error)
	Judge(label string, raws []measure.RawPhase) *verdict.Test
}

// A Router carries out plans. Shape may be called again and again; what it did
// is undone by Revert, and also if this process dies, until Commit.
type Router interface {
	Shape(context.Context, plan.Plan) error
	Commit(context.Context, plan.Plan) error
	Revert(context.Context) error
}

// A Config says what to tune for. Zero values take the defaults.
type Config struct {
	Goal               time.Duration // p95 increase; 0: plan.DefaultGoal
	Facts              plan.Facts
	Wishes             plan.Wishes // the rates in it are not used
	Line               plan.Line   // link layer and overhead; the rates are measured
	FlowsDown, FlowsUp int
	CC                 string
	Progress           func(measure.Event) // may be nil
	Say                func(string)        // a line for each step; may be nil
	Watch              func(Stage)         // may be nil
	Now                func() time.Time    // nil: time.Now
}

// Lengths of the phases: two full tests and six trials fit into two minutes of
// line time.
const (
	idleTime    = 4 * time.Second
	loadTime    = 8 * time.Second
	trialTime   = 7 * time.Second
	head        = 2 * time.Second
	tail        = 250 * time.Millisecond
	lineBudget  = 120 * time.Second
	mostTrials  = 5
	reserve     = 3 * time.Second // connecting, commands, draining
	leastShare  = 2.0 / 3         // of the goodput, below which faster calls are too dear
	payloadIn   = 1448            // of a full TCP segment with timestamps
	payloadFrom = 1514            // of the frame that carries it
)

// ErrInvalid is wrapped when a measurement cannot be trusted, so that nothing
// can be decided.
var ErrInvalid = errors.New("the measurement is not valid")

// Run tunes. On any error, and if the result is no better, the router is as it
// was. The result is returned as far as it got, also with an error.
func Run(ctx context.Context, c Config, m Meter, r Router) (*Result, error) {
	t := newTuning(c, m, r)
	err := t.run(ctx)
	if err != nil || !t.result.Kept {
		if e := r.Revert(context.WithoutCancel(ctx)); e != nil {
			err = errors.Join(err, fmt.Errorf("undo the tuning: %w", e))
		}
	}
	if err != nil {
		t.result.Kept, t.result.Reason = false, err.Error()
	}
	t.result.LineSeconds = t.elapsed().Seconds()
	return t.result, err
}

type tuning struct {
	Config
	meter  Meter
	router Router
	begun  time.Time
	idle   measure.RawPhase
	result *Result
	search *Search // nil: it has not begun
}

func newTuning(c Config, m Meter, r Router) *tuning {
	if c.FlowsDown <= 0 {
		c.FlowsDown = measure.DefaultFlows
	}
	if c.FlowsUp <= 0 {
		c.FlowsUp = measure.DefaultFlows
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Say == nil {
		c.Say = func(string) {}
	}
	if c.Watch == nil {
		c.Watch = func(Stage) {}
	}
	return &tuning{Config: c, meter: m, router: r, begun: c.Now(), result: &Result{Schema: Schema, Trials: []Trial{}}}
}

func (t *tuning) elapsed() time.Duration { return t.Now().Sub(t.begun) }

func (t *tuning) run(ctx context.Context) error {
	if err := t.baseline(ctx); err != nil {
		return err
	}
	res := t.result
	base := worst(res.Before)
	if base <= res.GoalMs {
		res.Reason = fmt.Sprintf("the line is good as it is: its p95 rises by %.1f ms under load, and the goal is %.1f ms", base, res.GoalMs)
		return nil
	}
	line := Rates{res.LineDownBps, res.LineUpBps}
	p, err := t.plan(line)
	if err != nil {
		return err
	}
	t.search = NewSearch(line, t.Goal, mostTrials)
	if err := t.try(ctx, p); err != nil {
		return err
	}
	if err := t.check(ctx, p); err != nil {
		return err
	}
	t.watch(Deciding, Rates{})
	return t.decide(ctx)
}

// baseline measures the line as it is, and from it what it carries.
func (t *tuning) baseline(ctx context.Context) error {
	t.Say("measuring the line as it is")
	t.watch(AsItIs, Rates{})
	raws, err := t.phases(ctx, true)
	if err != nil {
		return fmt.Errorf("measure the line as it is: %w", err)
	}
	res := t.result
	t.idle = raws[0]
	res.Before = t.meter.Judge("before", raws)
	if err := valid(res.Before); err != nil {
		return fmt.Errorf("measure the line as it is: %w", err)
	}
	res.LineDownBps = carried(res.Before.Download.GoodputDownBps, raws[1])
	res.LineUpBps = carried(res.Before.Upload.GoodputUpBps, raws[2])
	line := t.Line
	line.Down, line.Up = res.LineDownBps, res.LineUpBps
	if t.Goal == 0 {
		t.Goal = plan.DefaultGoal(line)
	}
	res.GoalMs = unit.Ms(t.Goal)
	t.Say(fmt.Sprintf("the line carries %s down and %s up; its p95 rises by %.0f ms under load; the goal is %.1f ms",
		res.LineDownBps.Short(), res.LineUpBps.Short(), worst(res.Before), res.GoalMs))
	return nil
}

// carried returns what the line carries of full frames when it brings a given
// goodput: the payload with its headers, and the probes beside it.
func carried(goodput float64, raw measure.RawPhase) unit.Rate {
	const probeFrame = 74 * 8
	var probes float64
	if raw.Interval > 0 {
		probes = probeFrame / raw.Interval.Seconds()
	}
	return unit.Rate(goodput*payloadFrom/payloadIn + probes)
}

// phases measures the loaded phases, and idle before them if asked to.
func (t *tuning) phases(ctx context.Context, withIdle bool) ([]measure.RawPhase, error) {
	specs := []measure.PhaseSpec{
		{Name: verdict.PhaseDownload, Duration: loadTime, FlowsDown: t.FlowsDown},
		{Name: verdict.PhaseUpload, Duration: loadTime, FlowsUp: t.FlowsUp},
		{Name: verdict.PhaseBoth, Duration: loadTime, FlowsDown: t.FlowsDown, FlowsUp: t.FlowsUp},
	}
	raws := []measure.RawPhase{t.idle}
	if withIdle {
		raw, err := t.phase(ctx, measure.PhaseSpec{Name: verdict.PhaseIdle, Duration: idleTime})
		if err != nil {
			return nil, err
		}
		raws[0] = *raw
	}
	for _, spec := range specs {
		raw, err := t.phase(ctx, spec)
		if err != nil {
			return nil, err
		}
		raws = append(raws, *raw)
	}
	return raws, nil
}

func (t *tuning) phase(ctx context.Context, spec measure.PhaseSpec) (*measure.RawPhase, error) {
	spec.Progress, spec.CC = t.Progress, t.CC
	if spec.FlowsDown+spec.FlowsUp > 0 {
		spec.CutHead, spec.CutTail = head, tail
	}
	return t.meter.Phase(ctx, spec)
}

// plan makes the plan whose rates the search will vary.
func (t *tuning) plan(line Rates) (plan.Plan, error) {
	l := t.Line
	l.Down, l.Up = line.Down, line.Up
	if l.RTT == 0 {
		l.RTT = unit.FromMs(t.result.Before.Idle.Latency.RTTMs.P50)
	}
	w := t.Wishes
	w.Goal = t.Goal
	w.Down, w.Up = plan.RateWish{Fraction: topDown}, plan.RateWish{Fraction: topUp}
	return plan.Make(l, t.Facts, w)
}

// try tries rates under load both ways, which is the hardest, until the
// search has found the best or time runs short.
func (t *tuning) try(ctx context.Context, p plan.Plan) error {
	for {
		rates, more := t.search.Next()
		if !more || t.elapsed() > lineBudget-trialTime-3*loadTime-reserve {
			return nil
		}
		t.watch(Trying, rates)
		if err := t.router.Shape(ctx, p.WithRates(rates.Down, rates.Up)); err != nil {
			return fmt.Errorf("try %s down, %s up: %w", rates.Down.Short(), rates.Up.Short(), err)
		}
		raw, err := t.phase(ctx, measure.PhaseSpec{
			Name: verdict.PhaseBoth, Duration: trialTime, FlowsDown: t.FlowsDown, FlowsUp: t.FlowsUp,
		})
		if err != nil {
			return fmt.Errorf("try %s down, %s up: %w", rates.Down.Short(), rates.Up.Short(), err)
		}
		test := t.meter.Judge("trial", []measure.RawPhase{t.idle, *raw})
		if err := valid(test); err != nil {
			return fmt.Errorf("try %s down, %s up: %w", rates.Down.Short(), rates.Up.Short(), err)
		}
		o := observe(test.Both)
		t.search.Observe(o)
		t.note(rates, o)
	}
}

func (t *tuning) note(rates Rates, o Observation) {
	held := o.Increase <= t.Goal
	t.result.Trials = append(t.result.Trials, Trial{
		Rates: rates, IncreaseMs: unit.Ms(o.Increase), DownMs: unit.Ms(o.Down), UpMs: unit.Ms(o.Up), Held: held,
	})
	word := "too much"
	if held {
		word = "holds the goal"
	}
	t.Say(fmt.Sprintf("tried %s down, %s up: p95 rises by %.1f ms (%.1f down, %.1f up): %s",
		rates.Down.Short(), rates.Up.Short(), unit.Ms(o.Increase), unit.Ms(o.Down), unit.Ms(o.Up), word))
}

func observe(p *verdict.Phase) Observation {
	l := p.Latency
	return Observation{unit.FromMs(l.IncreaseMs.P95), unit.FromMs(l.DownMs.P95), unit.FromMs(l.UpMs.P95)}
}

// check measures all phases at the best rates. If one does not hold the goal,
// it looks below once more as long as there is time.
func (t *tuning) check(ctx context.Context, p plan.Plan) error {
	s := t.search
	for {
		rates, _ := s.Best()
		best := p.WithRates(rates.Down, rates.Up)
		t.Say(fmt.Sprintf("checking %s down, %s up in every phase", rates.Down.Short(), rates.Up.Short()))
		t.watch(Checking, rates)
		if err := t.router.Shape(ctx, best); err != nil {
			return fmt.Errorf("check %s down, %s up: %w", rates.Down.Short(), rates.Up.Short(), err)
		}
		raws, err := t.phases(ctx, false)
		if err != nil {
			return fmt.Errorf("check %s down, %s up: %w", rates.Down.Short(), rates.Up.Short(), err)
		}
		test := t.meter.Judge("after", raws)
		if err := valid(test); err != nil {
			return fmt.Errorf("check %s down, %s up: %w", rates.Down.Short(), rates.Up.Short(), err)
		}
		t.result.Plan, t.result.After = &best, test
		t.result.GoalHeld = worst(test) <= t.result.GoalMs
		if t.result.GoalHeld || t.elapsed() > lineBudget-3*loadTime-reserve {
			return nil
		}
		s.Lower(observe(worstPhase(test)), 1)
		next, more := s.Next()
		if !more || next == rates {
			return nil
		}
		s.best = next
	}
}

// decide keeps the shaping if it is better, beyond what chance may do.
func (t *tuning) decide(ctx context.Context) error {
	res := t.result
	name := worstName(res.Before)
	before, after := named(res.Before, name), named(res.After, name)
	res.ImprovementMs = verdict.ImprovementP95(before, after)
	share := min(ratio(res.After.Download.GoodputDownBps, res.Before.Download.GoodputDownBps),
		ratio(res.After.Upload.GoodputUpBps, res.Before.Upload.GoodputUpBps))
	switch {
	case res.ImprovementMs == nil || res.ImprovementMs.Lo <= 0 || worst(res.After) >= worst(res.Before):
		res.Reason = fmt.Sprintf("no better: p95 under load rose by %.1f ms before and by %.1f ms after", worst(res.Before), worst(res.After))
		return nil
	case share < leastShare:
		res.Reason = fmt.Sprintf("too dear: of the throughput only %.0f %% would be left", 100*share)
		return nil
	}
	if err := t.router.Commit(ctx, *res.Plan); err != nil {
		return fmt.Errorf("keep the shaping: %w", err)
	}
	res.Kept = true
	res.Reason = fmt.Sprintf("better: p95 under load rose by %.1f ms before and by %.1f ms after", worst(res.Before), worst(res.After))
	if !res.GoalHeld {
		res.Reason += fmt.Sprintf("; the goal of %.1f ms was not reached", res.GoalMs)
	}
	return nil
}

func valid(t *verdict.Test) error {
	if t.Valid {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrInvalid, join(t.InvalidReasons))
}
