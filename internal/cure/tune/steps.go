package tune

import (
	"context"
	"fmt"
	"strings"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/verdict"
	"unbloat/reason"
	"unbloat/unit"
)

// try tries rates with load in both directions, which is the hardest case, until the
// search has found the best or time runs short.
func (t *tuning) try(ctx context.Context, p plan.Plan) error {
	for {
		rates, more := t.search.Next()
		if !more || t.elapsed() > t.pace.budget-t.pace.trial-2*t.apart()-3*t.pace.load-t.pace.reserve {
			return nil
		}
		t.watch(Trying, rates)
		if err := t.router.Shape(ctx, p.WithRates(rates.Down, rates.Up)); err != nil {
			return fmt.Errorf("try %s down, %s up: %w", rates.Down.Short(), rates.Up.Short(), err)
		}
		raw, err := t.phase(ctx, phases.PhaseSpec{
			Name: verdict.PhaseBoth, Duration: t.pace.trial, FlowsDown: t.FlowsDown, FlowsUp: t.FlowsUp,
		})
		if err != nil {
			return fmt.Errorf("try %s down, %s up: %w", rates.Down.Short(), rates.Up.Short(), err)
		}
		test := t.meter.Judge("trial", []phases.RawPhase{t.idle, *raw})
		err = valid(test)
		if err != nil && !test.OnlyUnsaturated() {
			return fmt.Errorf("try %s down, %s up: %w", rates.Down.Short(), rates.Up.Short(), err)
		}
		o := observe(test.Both)
		if o.Increase > t.Goal && test.Both.Latency.OneWayUnknown {
			var eachErr error
			if o.Down, o.Up, eachErr = t.eachWay(ctx); eachErr != nil {
				return fmt.Errorf("try %s down, %s up: %w", rates.Down.Short(), rates.Up.Short(), eachErr)
			}
		}
		t.note(rates, o, test.InvalidReasons)
		if err != nil {
			o.Increase = max(o.Increase, t.Goal+1) // its load did not fill the line, so it passes nothing
		}
		t.search.Observe(o)
	}
}

// oneWay says whether the probes tell the two ways apart.
func (t *tuning) oneWay() bool { return !t.result.Before.Idle.Latency.OneWayUnknown }

// apart is how long one way is loaded alone, where the probes do not tell the two
// ways apart.
func (t *tuning) apart() time.Duration {
	if t.oneWay() {
		return 0
	}
	return t.pace.head + apartTime
}

// eachWay tells how much each way holds of the delay where the probes do not: it
// loads one at a time, so that what is added is that way's.
func (t *tuning) eachWay(ctx context.Context) (down, up time.Duration, err error) {
	for _, way := range []struct {
		spec phases.PhaseSpec
		into *time.Duration
	}{
		{phases.PhaseSpec{Name: verdict.PhaseDownload, Duration: t.apart(), FlowsDown: t.FlowsDown}, &down},
		{phases.PhaseSpec{Name: verdict.PhaseUpload, Duration: t.apart(), FlowsUp: t.FlowsUp}, &up},
	} {
		raw, err := t.phase(ctx, way.spec)
		if err != nil {
			return 0, 0, err
		}
		test := t.meter.Judge("trial", []phases.RawPhase{t.idle, *raw})
		if err := valid(test); err != nil && !test.OnlyUnsaturated() {
			return 0, 0, err
		}
		*way.into = unit.FromMs(named(test, way.spec.Name).Latency.IncreaseMs.P95)
	}
	return down, up, nil
}

// checked returns what the check showed of its worst phase, by direction: where
// the probes do not tell the two ways apart, the phases that load one do.
func (t *tuning) checked(test *verdict.Test) Observation {
	o := observe(worstPhase(test))
	if !t.oneWay() {
		o.Down, o.Up = unit.FromMs(test.Download.Latency.IncreaseMs.P95), unit.FromMs(test.Upload.Latency.IncreaseMs.P95)
	}
	return o
}

// note records and reports a trial. unproven says why its load is not enough, such
// as rates that were still rising.
func (t *tuning) note(rates Rates, o Observation, unproven []string) {
	tr := Trial{
		Rates: rates, IncreaseMs: unit.Ms(o.Increase), DownMs: unit.Ms(o.Down), UpMs: unit.Ms(o.Up),
		Held: o.Increase <= t.Goal && len(unproven) == 0, Unproven: strings.Join(unproven, "; "),
	}
	t.result.Trials = append(t.result.Trials, tr)
	word := "too much"
	switch {
	case tr.Held:
		word = "holds the goal"
	case o.Increase <= t.Goal:
		word = tr.Unproven
	}
	ways := ""
	if o.Down != 0 || o.Up != 0 {
		ways = fmt.Sprintf(" (%.1f down, %.1f up)", unit.Ms(o.Down), unit.Ms(o.Up))
	}
	t.Say(fmt.Sprintf("tried %s down, %s up: p95 rises by %.1f ms%s: %s",
		rates.Down.Short(), rates.Up.Short(), unit.Ms(o.Increase), ways, word))
}

func observe(p *verdict.Phase) Observation {
	l := p.Latency
	return Observation{unit.FromMs(l.IncreaseMs.P95), unit.FromMs(l.DownMs.P95), unit.FromMs(l.UpMs.P95)}
}

// check measures all phases at the best rates. If one misses the goal, it tries
// lower rates as long as there is time.
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
		test := t.judge("after", raws)
		err = valid(test)
		if err != nil && !test.OnlyUnsaturated() {
			return fmt.Errorf("check %s down, %s up: %w", rates.Down.Short(), rates.Up.Short(), err)
		}
		t.result.Plan, t.result.After = &best, test
		t.up.after = delivered(test.Upload.GoodputUpBps, raws[2])
		t.result.GoalHeld = worst(test) <= t.result.GoalMs && err == nil
		if t.result.GoalHeld || s.Exhausted() || t.elapsed() > t.pace.budget-3*t.pace.load-t.pace.reserve {
			return nil
		}
		s.Lower(t.checked(test), 1)
		next, more := s.Next()
		if !more || next == rates {
			return nil
		}
		s.best = next
	}
}

// decide keeps the shaping if it is better with statistical confidence.
func (t *tuning) decide(ctx context.Context) error {
	res := t.result
	if err := valid(res.After); err != nil {
		return fmt.Errorf("check %s down, %s up: %w", res.Plan.DownBps.Short(), res.Plan.UpBps.Short(), err)
	}
	name := worstName(res.Before)
	before, after := named(res.Before, name), named(res.After, name)
	res.ImprovementMs = verdict.ImprovementP95(before, after)
	share := min(ratio(res.After.Download.GoodputDownBps, res.Before.Download.GoodputDownBps),
		ratio(t.up.after, t.up.before))
	switch {
	case res.ImprovementMs == nil || res.ImprovementMs.Lo <= 0 || worst(res.After) >= worst(res.Before):
		res.because(reason.Of(reason.TuneNoBetter, "before_ms", worst(res.Before), "after_ms", worst(res.After)))
		return nil
	case share < leastShare:
		res.because(reason.Of(reason.TuneTooDear, "left", share))
		return nil
	}
	if err := t.router.Commit(ctx, *res.Plan); err != nil {
		return fmt.Errorf("keep the shaping: %w", err)
	}
	res.Kept = true
	res.because(reason.Of(reason.TuneBetter, "before_ms", worst(res.Before), "after_ms", worst(res.After)))
	if !res.GoalHeld {
		res.because(reason.Of(reason.TuneGoalMissed, "goal_ms", res.GoalMs))
	}
	return nil
}

func valid(t *verdict.Test) error {
	if t.Valid {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrInvalid, join(t.InvalidReasons))
}
