// Package tune finds the highest rates that hold the latency goal, and keeps the
// shaping only if a final test shows that it is better. The search (search.go) is
// pure; Run connects it to a measuring client and a router.
package tune

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/probe"
	"unbloat/internal/measure/verdict"
	"unbloat/reason"
	"unbloat/unit"
)

// Schema names the JSON layout of a Result.
const Schema = "unbloat.tune/1"

// A Result is the outcome of tuning.
type Result struct {
	Schema        string            `json:"schema"`
	Kept          bool              `json:"kept"`
	Reason        string            `json:"reason"`            // why it was kept, or not
	Reasons       []reason.Reason   `json:"reasons,omitempty"` // the same as data; none of an error
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

// because adds a reason why the shaping was kept, or not.
func (r *Result) because(why reason.Reason) {
	r.Reasons = append(r.Reasons, why)
	r.Reason = strings.Join(reason.Texts(r.Reasons), "; ")
}

// Why returns in a language why the shaping was kept, or not. It is in English for an
// error, and for a result without reasons as data.
func (r *Result) Why(l *reason.Language) string {
	if len(r.Reasons) == 0 {
		return r.Reason
	}
	return strings.Join(reason.TextsIn(r.Reasons, l, reason.Terminal), "; ")
}

// A Trial is one step of the search.
type Trial struct {
	Rates
	IncreaseMs float64 `json:"increase_ms"` // p95
	DownMs     float64 `json:"down_ms"`     // p95 of each way
	UpMs       float64 `json:"up_ms"`
	Held       bool    `json:"held"`
	Unproven   string  `json:"unproven,omitempty"` // why its load proves nothing; "" if it filled the line
}

// A Meter measures the line; a measure.Tester of any protocol is one.
type Meter interface {
	Phase(context.Context, phases.PhaseSpec) (*phases.RawPhase, error)
	Judge(label string, raws []phases.RawPhase) *verdict.Test
}

// A Router applies plans. Shape may be called repeatedly. Until Commit, Revert undoes
// it, and so does the end of this process.
type Router interface {
	Shape(context.Context, plan.Plan) error
	Commit(context.Context, plan.Plan) error
	Revert(context.Context) error
}

// A Config says what to tune for. Zero values take the defaults.
type Config struct {
	Goal               time.Duration // p95 increase; 0: plan.DefaultGoal
	Capabilities       plan.Capabilities
	Preferences        plan.Preferences // the rates in it are not used
	Line               plan.Line        // link layer and overhead, which are measured if not given and the Meter can; the rates are measured
	FlowsDown, FlowsUp int
	CC                 string
	Progress           func(phases.Event) // may be nil
	Say                func(string)       // a line for each step; may be nil
	Watch              func(Stage)        // may be nil
	Now                func() time.Time   // nil: time.Now
}

const (
	leastShare = 2.0 / 3 // of the goodput, which tuned shaping must leave
	payloadIn  = 1448    // of a full TCP segment with timestamps
	fullIP     = 1500    // of the IP packet that carries it
	probeIP    = 60      // of a probe
)

// ErrInvalid is wrapped if a measurement is invalid, so that nothing can be decided.
var ErrInvalid = errors.New("the measurement is not valid")

// Run tunes. After an error, and if the result is not better, the router is as
// before. The result is as complete as possible, also with an error.
func Run(ctx context.Context, c Config, m Meter, r Router) (*Result, error) {
	t := newTuning(c, m, r)
	err := t.run(ctx)
	if err != nil || !t.result.Kept {
		if e := r.Revert(context.WithoutCancel(ctx)); e != nil {
			err = errors.Join(err, fmt.Errorf("undo the tuning: %w", e))
		}
	}
	if err != nil {
		t.result.Kept, t.result.Reason, t.result.Reasons = false, err.Error(), nil
	}
	t.result.LineSeconds = (t.elapsed() + t.aside).Seconds()
	return t.result, err
}

type tuning struct {
	Config
	meter  Meter
	router Router
	begun  time.Time
	pace   pace
	idle   phases.RawPhase
	first  []phases.RawPhase // of the line as it is
	result *Result
	search *Search                         // nil: it has not begun
	aside  time.Duration                   // spent on what is no part of the search
	up     struct{ before, after float64 } // the upload's goodput, bit/s
}

func newTuning(c Config, m Meter, r Router) *tuning {
	if c.FlowsDown <= 0 {
		c.FlowsDown = phases.DefaultFlows
	}
	if c.FlowsUp <= 0 {
		c.FlowsUp = phases.DefaultFlows
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
	return &tuning{Config: c, meter: m, router: r, begun: c.Now(), pace: paceOf(c.FlowsDown, c.FlowsUp), result: &Result{Schema: Schema, Trials: []Trial{}}}
}

// elapsed is what the search has taken, and what was before it.
func (t *tuning) elapsed() time.Duration { return t.Now().Sub(t.begun) - t.aside }

func (t *tuning) run(ctx context.Context) error {
	if err := t.baseline(ctx); err != nil {
		return err
	}
	res := t.result
	base := worst(res.Before)
	if base <= res.GoalMs {
		res.because(reason.Of(reason.TuneGoodAlready, "rise_ms", base, "goal_ms", res.GoalMs))
		return nil
	}
	if err := t.framing(ctx); err != nil {
		return err
	}
	line := Rates{res.LineDownBps, res.LineUpBps}
	p, err := t.plan(line)
	if err != nil {
		return err
	}
	t.begin(line)
	if err := t.try(ctx, p); err != nil {
		return err
	}
	if err := t.check(ctx, p); err != nil {
		return err
	}
	t.watch(Deciding, Rates{})
	return t.decide(ctx)
}

// begin starts the search. It makes every shaped phase wait until the queue that many
// downloads leave at the provider has drained, and the first burst of many uploads.
func (t *tuning) begin(line Rates) {
	queue := unit.FromMs(t.result.Before.Download.Latency.DownMs.P95)
	if !t.oneWay() { // a download alone leaves nearly all of it there
		queue = unit.FromMs(t.result.Before.Download.Latency.IncreaseMs.P95)
	}
	top := topOf(t.FlowsDown, t.FlowsUp, queue)
	t.search = NewSearch(line, t.Goal, mostTrials)
	t.search.top = top
	wait := settling(t.FlowsUp, line.Up)
	if t.FlowsDown >= manyFlows {
		drain := draining(queue, top.down)
		t.Say(fmt.Sprintf("%d downloads leave %.0f ms of queue in front of the line, which drain in %.1f s at %s: the search begins there",
			t.FlowsDown, unit.Ms(queue), min(drain, mostDrain).Seconds(), line.Down.Scale(top.down).Short()))
		wait = max(wait, drain)
	}
	t.pace = t.pace.waiting(wait)
}

// baseline measures the unshaped line and derives its rates.
func (t *tuning) baseline(ctx context.Context) error {
	t.Say("measuring the line as it is")
	t.watch(AsItIs, Rates{})
	raws, err := t.phases(ctx, true)
	if err != nil {
		return fmt.Errorf("measure the line as it is: %w", err)
	}
	res := t.result
	t.idle, t.first = raws[0], raws
	res.Before = t.judge("before", raws)
	if err := valid(res.Before); err != nil {
		return fmt.Errorf("measure the line as it is: %w", err)
	}
	t.up.before = delivered(res.Before.Upload.GoodputUpBps, raws[2])
	t.rates()
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

// rates derives what the line carries, in bytes as the shapers count them.
func (t *tuning) rates() {
	l := t.Line
	if t.Capabilities.Language != nil && !t.Capabilities.Language.NoOverhead.IsZero() {
		l = plan.Line{}
	}
	res, raws := t.result, t.first
	res.LineDownBps = carried(l, received(res.Before.Download.GoodputDownBps, raws[1]), raws[1])
	res.LineUpBps = carried(l, t.up.before, raws[2])
}

// framing measures what the line adds to each packet, where nobody has said it and the
// server can, and again where the line carries much more or less than when it was measured.
func (t *tuning) framing(ctx context.Context) error {
	f, can := t.meter.(phases.Framer)
	if !can || t.Line.FramingHolds(t.result.LineDownBps, t.result.LineUpBps) || !t.Line.Measured && (t.Line.LinkLayer != "" || t.Line.Overhead != 0) {
		return nil
	}
	t.Say("measuring what the line adds to each packet")
	began := t.Now()
	found, err := phases.MeasureFraming(ctx, f, t.result.LineDownBps, t.result.LineUpBps)
	t.aside += t.Now().Sub(began)
	if err != nil && (ctx.Err() != nil || !errors.Is(err, phases.ErrRefused)) { // an older server refuses
		return err
	}
	t.result.Before.Framing = found
	e, sure := found.Sure()
	if !sure {
		t.Say("what the line adds to each packet is not sure; packets count as before")
		return nil
	}
	t.Line = t.Line.WithFraming(e.Overhead, e.MPU, e.ATM)
	t.rates()
	t.Line.MeasuredDown, t.Line.MeasuredUp = t.result.LineDownBps, t.result.LineUpBps
	t.Say(fmt.Sprintf("the line adds %d bytes to each packet", e.Overhead))
	return nil
}

// judge judges a whole test, and says what it costs the tuning if its probes do
// not tell the two ways apart.
func (t *tuning) judge(label string, raws []phases.RawPhase) *verdict.Test {
	test := t.meter.Judge(label, raws)
	if test.Idle != nil && test.Idle.Latency.OneWayUnknown {
		test.Remark(reason.Of(reason.RoundTripsOnly, "probe", test.Probe))
	}
	return test
}

// carried returns the line rate at a given goodput: full frames with their headers,
// and the probes that arrived. While a queue grows, fewer arrive than are sent.
func carried(l plan.Line, goodput float64, raw phases.RawPhase) unit.Rate {
	probeFrame := float64(l.Wire(probeIP) * 8)
	var probes float64
	for _, s := range raw.Samples {
		if s.Fate == probe.Answered && !s.Received.Before(raw.From) && s.Received.Before(raw.To) {
			probes++
		}
	}
	if seconds := raw.To.Sub(raw.From).Seconds(); seconds > 0 {
		probes *= probeFrame / seconds
	}
	return unit.Rate(goodput*float64(l.Wire(fullIP))/payloadIn + probes)
}

// delivered returns the goodput of an upload by its senders' count of acknowledged
// bytes, or the receiver's goodput if the system has no such count. For a download
// the receiver's goodput is better: ACKs may queue in a slow upload.
func delivered(goodput float64, raw phases.RawPhase) float64 {
	if bps, ok := verdict.Delivered(raw.UpSenders, raw.From, raw.To); ok {
		return bps
	}
	return goodput
}

// received returns what a download brought, with what carries the payload within
// TCP where that is known.
func received(goodput float64, raw phases.RawPhase) float64 {
	if len(raw.DownWhole) == 0 {
		return goodput
	}
	return verdict.Goodput(raw.DownWhole, raw.From, raw.To)
}

// phases measures the loaded phases, and idle before them if asked to.
func (t *tuning) phases(ctx context.Context, withIdle bool) ([]phases.RawPhase, error) {
	specs := phases.Phases(idleTime, t.pace.load, t.FlowsDown, t.FlowsUp)
	var raws []phases.RawPhase
	if !withIdle {
		specs, raws = specs[1:], append(raws, t.idle)
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

func (t *tuning) phase(ctx context.Context, spec phases.PhaseSpec) (*phases.RawPhase, error) {
	spec.Progress, spec.CC = t.Progress, t.CC
	isLoaded := spec.FlowsDown+spec.FlowsUp > 0
	if isLoaded {
		spec.CutHead, spec.CutTail = t.pace.head, tail
	}
	raw, err := t.meter.Phase(ctx, spec)
	if err == nil && isLoaded {
		afterStart(raw)
	}
	return raw, err
}

// plan makes the plan whose rates the search varies.
func (t *tuning) plan(line Rates) (plan.Plan, error) {
	l := t.Line
	l.Down, l.Up = line.Down, line.Up
	if l.RTT == 0 {
		l.RTT = unit.FromMs(t.result.Before.Idle.Latency.RTTMs.P50)
	}
	w := t.Preferences
	w.Goal = t.Goal
	w.Down, w.Up = plan.RatePreference{Fraction: topDown}, plan.RatePreference{Fraction: topUp}
	if t.FlowsDown >= manyFlows {
		w.FlowsDown = t.FlowsDown
	}
	return plan.Make(l, t.Capabilities, w)
}
