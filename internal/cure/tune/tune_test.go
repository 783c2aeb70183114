package tune

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/linux"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/verdict"
	"unbloat/reason"
	"unbloat/testkit/conform"
	"unbloat/unit"
)

// A fakeLine is a router and the line behind it, with failures.
type fakeLine struct {
	conform.TunedLine
	shaped bool
	fail   error // of the phase failAt
	failAt string
	shapes int
	rates  Rates // the shaped rates
	specs  []phases.PhaseSpec
	calls  []string
	commit error
}

func (f *fakeLine) Phase(ctx context.Context, s phases.PhaseSpec) (*phases.RawPhase, error) {
	f.calls, f.specs = append(f.calls, s.Name), append(f.specs, s)
	if f.fail != nil && s.Name == f.failAt && (f.shapes > 0 || f.failAt != verdict.PhaseBoth) {
		return nil, f.fail
	}
	f.TunedLine.Shaped = func() bool { return f.shaped }
	return f.TunedLine.Phase(ctx, s)
}

func (f *fakeLine) Shape(_ context.Context, p plan.Plan) error {
	f.shaped, f.rates = true, Rates{p.DownBps, p.UpBps}
	f.shapes++
	f.calls = append(f.calls, "shape")
	return nil
}

func (f *fakeLine) Commit(context.Context, plan.Plan) error {
	f.calls = append(f.calls, "commit")
	return f.commit
}

func (f *fakeLine) Revert(context.Context) error {
	f.shaped = false
	f.calls = append(f.calls, "revert")
	return nil
}

func tuneFake(f *fakeLine) (*Result, error) { return tuneMany(f, 0) }

func tuneMany(f *fakeLine, flows int) (*Result, error) {
	c := Config{FlowsDown: flows, FlowsUp: flows, Capabilities: plan.Capabilities{Language: linux.Language(), WAN: "wan", LAN: "lan", IFB: true}, Now: f.Now}
	return Run(context.Background(), c, f, f)
}

func TestRunKeepsWhatIsBetter(t *testing.T) {
	f := &fakeLine{}
	r, err := tuneFake(f)
	if err != nil || !r.Kept || !r.GoalHeld || !slices.Contains(f.calls, "commit") || slices.Contains(f.calls, "revert") {
		t.Fatalf("%v, kept %v, goal held %v (%s): %v", err, r.Kept, r.GoalHeld, r.Reason, f.calls)
	}
	if r.Plan.DownBps < 29e6 || r.Plan.DownBps >= 30e6 || r.LineSeconds > 120 || r.ImprovementMs.Lo < 900 {
		t.Errorf("plan %v/%v in %.0f s, better by %v", r.Plan.DownBps, r.Plan.UpBps, r.LineSeconds, r.ImprovementMs)
	}
}

// Whatever goes wrong, undoing is the last thing that happens.
func TestRunUndoes(t *testing.T) {
	broken := errors.New("the line is gone")
	for name, f := range map[string]*fakeLine{
		"no better":               {TunedLine: conform.TunedLine{Useless: true}},
		"good as it is":           {TunedLine: conform.TunedLine{Good: true}},
		"not to be trusted":       {TunedLine: conform.TunedLine{Invalid: true}},
		"breaks in the download":  {fail: broken, failAt: verdict.PhaseDownload},
		"breaks in a trial":       {fail: broken, failAt: verdict.PhaseBoth},
		"cannot be committed":     {commit: broken},
		"never full, once shaped": risesAbove(0),
	} {
		r, err := tuneFake(f)
		if r.Kept || r.Reason == "" || f.calls[len(f.calls)-1] != "revert" {
			t.Errorf("%s: kept %v (%s), %v", name, r.Kept, r.Reason, f.calls)
		}
		if (f.fail != nil || f.commit != nil) && !errors.Is(err, broken) {
			t.Errorf("%s: error %v", name, err)
		}
		if (f.Invalid || f.Rising != nil) && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: error %v", name, err)
		}
		if f.Good && f.shapes > 0 {
			t.Errorf("%s: it was shaped", name)
		}
	}
}

func TestRunStopsWhenInterrupted(t *testing.T) {
	f := &fakeLine{fail: context.Canceled, failAt: verdict.PhaseUpload}
	r, err := tuneFake(f)
	if !errors.Is(err, context.Canceled) || r.Kept || f.calls[len(f.calls)-1] != "revert" {
		t.Errorf("%v, kept %v: %v", err, r.Kept, f.calls)
	}
}

// risesAbove returns a line whose rates still rise at the end of a phase if the
// download is shaped to more than the given rate.
func risesAbove(most unit.Rate) *fakeLine {
	f := &fakeLine{}
	f.Rising = func(s phases.PhaseSpec) bool { return f.shaped && s.FlowsDown > 0 && f.rates.Down > most }
	return f
}

// A trial with rates that still rise proves nothing, but does not end the
// tuning: it continues with lower rates.
func TestRunGoesOnBelowWhatIsNotSettled(t *testing.T) {
	r, err := tuneFake(risesAbove(28.8e6))
	if err != nil || !r.Kept || !r.GoalHeld || r.Plan.DownBps > 28.8e6 {
		t.Fatalf("%v, kept %v, goal held %v (%s)", err, r.Kept, r.GoalHeld, r.Reason)
	}
	for _, x := range r.Trials {
		if rises := x.Down > 28.8e6; x.Held == rises || (x.Unproven == "") == rises {
			t.Errorf("trial %+v", x)
		}
	}
}

// If probes only show the round trip time, a trial with too much latency is
// repeated with one direction at a time, and the direction that has the latency
// is reduced.
func TestRunFindsTheWayByLoadingOne(t *testing.T) {
	for _, c := range []struct {
		name string
		held func(f *fakeLine, s phases.PhaseSpec) bool
		way  func(r *Result) (held, free float64) // shares of the line
	}{
		{"up", func(f *fakeLine, s phases.PhaseSpec) bool { return s.FlowsUp > 0 && f.rates.Up > 4.7e6 },
			func(r *Result) (float64, float64) {
				return share(r.Plan.UpBps, r.LineUpBps), share(r.Plan.DownBps, r.LineDownBps)
			}},
		{"down", func(f *fakeLine, s phases.PhaseSpec) bool { return s.FlowsDown > 0 && f.rates.Down > 28.5e6 },
			func(r *Result) (float64, float64) {
				return share(r.Plan.DownBps, r.LineDownBps), share(r.Plan.UpBps, r.LineUpBps)
			}},
	} {
		f := &fakeLine{}
		f.RoundTrip = true
		f.Held = func(s phases.PhaseSpec) time.Duration {
			if c.held(f, s) {
				return 100 * time.Millisecond
			}
			return 0
		}
		r, err := tuneFake(f)
		if err != nil || !r.Kept || !r.GoalHeld {
			t.Fatalf("%s: %v, kept %v, goal held %v (%s)", c.name, err, r.Kept, r.GoalHeld, r.Reason)
		}
		if last := len(r.After.Remarks) - 1; last < 0 || r.After.Remarks[last].Code != reason.RoundTripsOnly {
			t.Errorf("%s: remarks %q", c.name, r.After.Notes)
		}
		if held, free := c.way(r); held > 0.952 || held < 0.91 || free < 0.979 {
			t.Errorf("%s: the way that holds the delay ends at %.3f of the line, the other at %.3f", c.name, held, free)
		}
		if r.LineSeconds > MostTime(4, 4).Seconds() {
			t.Errorf("%s: it took %.0f s", c.name, r.LineSeconds)
		}
	}
}

func share(r, line unit.Rate) float64 { return float64(r) / float64(line) }

// With many downloads the search begins at a rate at which their queue (half of
// the second of buffer that this line has) drains within five seconds, and
// every phase with a shaper waits for that. With few downloads nothing waits.
func TestRunWaitsForManyToDrain(t *testing.T) {
	f := &fakeLine{}
	r, err := tuneMany(f, 100)
	if err != nil || !r.Kept || !r.GoalHeld {
		t.Fatalf("%v, kept %v, goal held %v (%s)", err, r.Kept, r.GoalHeld, r.Reason)
	}
	left := 1 - float64(r.Plan.DownBps)/float64(r.LineDownBps)
	if drain := 0.5 / left; drain > 5.01 || drain < 4 || r.Plan.Basis.Preferences.FlowsDown != 100 || r.Plan.Down.Interval < 850*time.Millisecond {
		t.Errorf("%v of %v drains in %.1f s; interval %v", r.Plan.DownBps, r.LineDownBps, drain, r.Plan.Down.Interval)
	}
	if r.LineSeconds > MostTime(100, 4).Seconds() || MostTime(100, 4) <= MostTime(31, 31) {
		t.Errorf("it took %.0f s", r.LineSeconds)
	}
	for i, s := range f.specs {
		if wait := s.CutHead - head; i > 3 && (wait < 4*time.Second || wait > 5010*time.Millisecond || s.Duration <= s.CutHead+loadTime/2) || i <= 3 && wait > 0 {
			t.Errorf("phase %d, %s: %v, of which %v are not counted", i, s.Name, s.Duration, s.CutHead)
		}
	}
	few := &fakeLine{}
	if r, err = tuneMany(few, manyFlows-1); err != nil || r.Plan.Basis.Preferences.FlowsDown != 0 || few.specs[4].CutHead != head {
		t.Errorf("with fewer: %v, %+v", err, r.Plan.Basis.Preferences)
	}
}
