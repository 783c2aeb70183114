package simlab

import (
	"cmp"
	"context"
	"errors"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/internal/measure/verdict"
	"unbloat/lab"
	"unbloat/lab/scenario"
)

// What a prediction takes for granted where nothing is known.
const (
	assumedRTT    = 20 * time.Millisecond
	assumedBuffer = time.Second // of the line's rate: modems without a queue manager
)

// Names of a prediction's cases.
const (
	CaseBefore  = "before"
	CasePlanned = "planned"
)

// PredictedLine completes what is known of a line: a round trip of 20 ms, and
// buffers of a second. Rates that are not known are taken from the plan, as if
// it left the usual room.
func PredictedLine(p plan.Plan, l scenario.Line) scenario.Line {
	l.Down = cmp.Or(l.Down, p.DownBps.Scale(1/plan.StartDown))
	l.Up = cmp.Or(l.Up, p.UpBps.Scale(1/plan.StartUp))
	// A plan for one direction says nothing of the other: a line of equal rates.
	l.Down, l.Up = cmp.Or(l.Down, l.Up), cmp.Or(l.Up, l.Down)
	l.RTT = cmp.Or(l.RTT, assumedRTT)
	l.BufferDown = cmp.Or(l.BufferDown, max(l.Down.Bytes(assumedBuffer), 10*fullFrame))
	l.BufferUp = cmp.Or(l.BufferUp, max(l.Up.Bytes(assumedBuffer), 10*fullFrame))
	return l
}

// Predict simulates `unbloat test` on a line without and with a plan, in the
// dialect of the plan's platform: what to expect before anything is touched.
// The result has two cases, CaseBefore and CasePlanned.
func Predict(ctx context.Context, p plan.Plan, l scenario.Line, flowsDown, flowsUp int, seed uint64) (*lab.Result, error) {
	l = PredictedLine(p, l)
	if l.Down == 0 || l.Up == 0 {
		return nil, errors.New("predict: the plan shapes nothing, and the line's rates are not known")
	}
	s := &scenario.Scenario{
		Name: "prediction", Title: "what the plan does", Line: l,
		Test: scenario.Test{FlowsDown: flowsDown, FlowsUp: flowsUp},
	}
	r := &lab.Result{Schema: lab.Schema, Scenario: s.Name, Engine: lab.Sim, Kernel: Kernel, Seed: seed}
	for _, name := range []string{CaseBefore, CasePlanned} {
		h, err := newHouse(s, p.Platform, seed)
		if err != nil {
			return nil, err
		}
		var c *lab.CaseResult
		if name == CasePlanned {
			c, err = h.shaped(ctx, name, &p, false)
		} else {
			c, err = h.finish(ctx, name, false)
		}
		if err != nil {
			return nil, err
		}
		r.VirtualSeconds += c.VirtualSeconds
		r.Cases = append(r.Cases, *c)
	}
	return r, nil
}

// An Uncertainty is between which bounds a figure of a prediction is expected:
// those of its seeds, and on top of them what the comparison with a real kernel
// allows for (docs/simulator.md).
type Uncertainty struct {
	Case     string  `json:"case"`
	Phase    string  `json:"phase"`
	Figure   string  `json:"figure"` // with its unit
	Expected float64 `json:"expected"`
	Least    float64 `json:"least"`
	Most     float64 `json:"most"`
}

// How many of the figures under load of that comparison, swarms of BitTorrent
// left out, lay within the bounds, and of how many (22 November 2026).
const (
	GoodputWithin, GoodputOf = 130, 142
	DelaysWithin, DelaysOf   = 208, 224
)

// Uncertain returns the bounds of goodput and of the round trip's quantiles
// under load, of predictions that differ by their seeds alone. The expected
// value is their median.
func Uncertain(predictions []*lab.Result) []Uncertainty {
	var out []Uncertainty
	tolerance := map[string]figure{}
	for _, f := range figures() {
		tolerance[f.name] = f
	}
	for _, row := range Compare(predictions[0], predictions) {
		f := tolerance[row.Figure]
		if row.Phase == verdict.PhaseIdle || f.share > delayShare { // losses are not said to agree
			continue
		}
		out = append(out, Uncertainty{
			Case: row.Case, Phase: row.Phase, Figure: row.Figure, Expected: row.Sim,
			Least: max(row.Least-max(f.share*row.Least, f.least), 0), Most: row.Most + max(f.share*row.Most, f.least),
		})
	}
	return out
}
