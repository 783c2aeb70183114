package tune

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"unbloat/internal/measure"
	"unbloat/internal/plan"
	"unbloat/internal/probe"
	"unbloat/internal/verdict"
	"unbloat/unit"
)

// A fakeLine is a line of 30/5 Mbit/s whose queue of a second stands whenever
// the router does not shape below it.
type fakeLine struct {
	now     time.Time
	shaped  bool
	good    bool  // no queue, shaped or not
	useless bool  // shaping changes nothing
	invalid bool  // what is measured cannot be trusted
	fail    error // of the phase named failAt
	failAt  string
	shapes  int
	calls   []string
	commit  error
}

func (f *fakeLine) Phase(ctx context.Context, s measure.PhaseSpec) (*measure.RawPhase, error) {
	f.calls = append(f.calls, s.Name)
	if f.fail != nil && s.Name == f.failAt && (f.shapes > 0 || f.failAt != verdict.PhaseBoth) {
		return nil, f.fail
	}
	f.now = f.now.Add(s.Duration)
	start := unit.Instant(f.now.UnixNano())
	raw := &measure.RawPhase{Name: s.Name, Start: start, End: start.Add(s.Duration), From: start, To: start.Add(s.Duration), Interval: 10 * time.Millisecond}
	rtt := 20 * time.Millisecond
	if loaded := s.FlowsDown+s.FlowsUp > 0; loaded && !f.good && (!f.shaped || f.useless) {
		rtt += time.Second
	}
	for at, i := start, 0; at.Before(raw.To); at, i = at.Add(10*time.Millisecond), i+1 {
		raw.Samples = append(raw.Samples, probe.Sample{
			Seq: uint32(i), Scheduled: at, Sent: at, Received: at.Add(rtt),
			ServerReceived: at.Add(rtt / 2), ServerSent: at.Add(rtt / 2), Fate: probe.Answered,
		})
	}
	return raw, nil
}

func (f *fakeLine) Judge(label string, raws []measure.RawPhase) *verdict.Test {
	t := &verdict.Test{Schema: verdict.TestSchema, Label: label, Valid: !f.invalid, InvalidReasons: []string{}}
	if f.invalid {
		t.InvalidReasons = []string{"this machine was too busy"}
	}
	base := verdict.NewBaseline(raws[0])
	for _, raw := range raws {
		p := verdict.Evaluate(raw, base, raws[0].Start)
		switch raw.Name {
		case verdict.PhaseIdle:
			t.Idle = p
		case verdict.PhaseDownload:
			p.GoodputDownBps = 28.6e6
			t.Download = p
		case verdict.PhaseUpload:
			p.GoodputUpBps = 4.7e6
			t.Upload = p
		case verdict.PhaseBoth:
			t.Both = p
		}
	}
	return t
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
	c := Config{Facts: plan.Facts{Platform: plan.Linux, WAN: "wan", IFB: true}, Now: func() time.Time { return f.now }}
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
		"no better":              {useless: true},
		"good as it is":          {good: true},
		"not to be trusted":      {invalid: true},
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
		if f.invalid && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: error %v", name, err)
		}
		if f.good && f.shapes > 0 {
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
