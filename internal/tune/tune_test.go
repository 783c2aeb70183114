package tune

import (
	"context"
	"errors"
	"slices"
	"testing"

	"unbloat/internal/measure"
	"unbloat/internal/plan"
	"unbloat/internal/tune/tunetest"
	"unbloat/internal/verdict"
)

// A fakeLine is a router, and the line behind it, on which things go wrong.
type fakeLine struct {
	tunetest.Line
	shaped bool
	fail   error // of the phase named failAt
	failAt string
	shapes int
	calls  []string
	commit error
}

func (f *fakeLine) Phase(ctx context.Context, s measure.PhaseSpec) (*measure.RawPhase, error) {
	f.calls = append(f.calls, s.Name)
	if f.fail != nil && s.Name == f.failAt && (f.shapes > 0 || f.failAt != verdict.PhaseBoth) {
		return nil, f.fail
	}
	f.Line.Shaped = func() bool { return f.shaped }
	return f.Line.Phase(ctx, s)
}

func (f *fakeLine) Shape(context.Context, plan.Plan) error {
	f.shaped = true
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

func tuneFake(f *fakeLine) (*Result, error) {
	c := Config{Facts: plan.Facts{Platform: plan.Linux, WAN: "wan", IFB: true}, Now: f.Now}
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

// Whatever goes wrong, the last thing that happens is the undoing.
func TestRunUndoes(t *testing.T) {
	broken := errors.New("the line is gone")
	for name, f := range map[string]*fakeLine{
		"no better":              {Line: tunetest.Line{Useless: true}},
		"good as it is":          {Line: tunetest.Line{Good: true}},
		"not to be trusted":      {Line: tunetest.Line{Invalid: true}},
		"breaks in the download": {fail: broken, failAt: verdict.PhaseDownload},
		"breaks in a trial":      {fail: broken, failAt: verdict.PhaseBoth},
		"cannot be committed":    {commit: broken},
	} {
		r, err := tuneFake(f)
		if r.Kept || r.Reason == "" || f.calls[len(f.calls)-1] != "revert" {
			t.Errorf("%s: kept %v (%s), %v", name, r.Kept, r.Reason, f.calls)
		}
		if (f.fail != nil || f.commit != nil) && !errors.Is(err, broken) {
			t.Errorf("%s: error %v", name, err)
		}
		if f.Invalid && !errors.Is(err, ErrInvalid) {
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
