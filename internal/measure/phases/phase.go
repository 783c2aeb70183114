package phases

import (
	"context"
	"fmt"
	"time"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/probe"
	"unbloat/internal/measure/verdict"
	"unbloat/unit"
)

// A PhaseSpec describes one phase. Negative cuts mean none, zero the default.
type PhaseSpec struct {
	Name      string
	Duration  time.Duration
	CutHead   time.Duration // slow start: not counted; default 25 % but at most 2.5 s, none when idle
	CutTail   time.Duration // default 0.25 s, none when idle
	FlowsDown int
	FlowsUp   int
	CC        string // of the senders
	DSCP      int
	Classes   []int       // DSCPs over which the flows of each direction are spread; empty: DSCP
	Progress  func(Event) // called at most 5 times a second; may be nil
}

// An Event reports the progress of a phase.
type Event struct {
	Phase     string            `json:"phase"` // idle, download, upload, both
	Elapsed   unit.Seconds      `json:"elapsed_seconds"`
	Duration  unit.Seconds      `json:"duration_seconds"`
	Head      unit.Seconds      `json:"head_seconds"`      // of the phase: slow start, which is not counted
	RTT       unit.Milliseconds `json:"rtt_ms"`            // of the newest answer; 0: none yet
	Answers   []Answer          `json:"answers,omitempty"` // that came since the event before, in this order
	FlowsDown int               `json:"flows_down"`        // that load the line
	FlowsUp   int               `json:"flows_up"`
	Down      unit.Rate         `json:"down_bps"`           // received since the event before
	Up        unit.Rate         `json:"up_bps"`             // acknowledged since the event before; 0 where the system does not tell
	Draining  bool              `json:"draining,omitempty"` // the phase is over, its queue is not empty yet
}

// An Answer is one answered probe of a phase.
type Answer struct {
	Sent unit.Seconds      `json:"sent_seconds"` // since the phase began
	RTT  unit.Milliseconds `json:"rtt_ms"`
}

// MaxPhase is the longest phase.
const MaxPhase = probe.MaxLimit - time.Minute

// RawPhase is what a phase measured, before anything is counted.
type RawPhase = verdict.Raw

const (
	progressEvery = 200 * time.Millisecond
	// downSlack makes the server send a little longer than the phase: it starts
	// half a round trip earlier than the client hears of it.
	downSlack = 300 * time.Millisecond
)

// Phase runs one phase: it starts the flows asked for, probes for the
// duration, stops the flows, and waits until the answers under way have come
// and the line is idle again. Samples are of the phase in which they were sent.
func (l *PhaseRunner) Phase(ctx context.Context, spec PhaseSpec) (*RawPhase, error) {
	spec = spec.WithDefaults()
	if spec.Duration <= spec.CutHead+spec.CutTail || spec.Duration > MaxPhase {
		return nil, fmt.Errorf("phase %s of %v: must be longer than its edges (%v and %v), and at most %v",
			spec.Name, spec.Duration, spec.CutHead, spec.CutTail, MaxPhase)
	}
	p, err := l.probing(ctx)
	if err != nil {
		return nil, fmt.Errorf("phase %s: %w", spec.Name, err)
	}
	run := &phaseRun{runner: l, spec: spec, probe: p, moved: map[Direction]int64{}}
	raw, err := run.do(ctx)
	if err != nil {
		return nil, fmt.Errorf("phase %s: %w", spec.Name, err)
	}
	if spec.Name == verdict.PhaseIdle {
		l.settling.Learn(raw)
	}
	return raw, nil
}

// A phaseRun is one phase under way.
type phaseRun struct {
	runner *PhaseRunner
	spec   PhaseSpec
	probe  Prober
	load   Load // nil: none
	moved  map[Direction]int64
	last   unit.Instant
	heard  unit.Instant // when the newest answer came that was reported
	rtt    time.Duration
}

func (r *phaseRun) do(ctx context.Context) (*RawPhase, error) {
	l := r.runner
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	steps, changes := r.probe.Steps(), pathChanges(r.probe)
	start := l.clock.Now()
	if r.load != nil {
		var err error
		if start, err = r.load.Begin(ctx); err != nil {
			r.abandon()
			return nil, err
		}
	}
	raw := r.spec.Raw(start, l.options.Interval)
	if err := r.watch(ctx, raw); err != nil {
		r.abandon()
		return nil, err
	}
	if err := r.collect(ctx, raw); err != nil {
		return nil, err
	}
	err := l.settling.Wait(r.probe, raw.End, r.load != nil, l.clock.Now, func(d time.Duration) error {
		defer func() { r.report(l.clock.Now(), raw.Start, true) }()
		return Sleep(ctx, d)
	})
	if err != nil {
		return nil, err
	}
	if r.load != nil {
		raw.Recovery = l.settling.recovery(r.probe, raw, l.clock.Now())
	}
	raw.ClockSteps, raw.PathChanges = r.probe.Steps()-steps, pathChanges(r.probe)-changes
	raw.Samples, raw.Skips = r.probe.Samples(raw.Start, raw.End)
	if hasOpen(raw.Samples) {
		if err := r.probe.Resolve(ctx); err != nil {
			return nil, err
		}
		raw.Samples, _ = r.probe.Samples(raw.Start, raw.End)
	}
	for _, b := range l.options.Secondary {
		samples, _ := b.Prober.Samples(raw.Start, raw.End)
		raw.Secondary = append(raw.Secondary, verdict.SecondaryProbe{Name: b.Name, Samples: samples})
	}
	return raw, nil
}

func hasOpen(samples []probe.Sample) bool {
	for i := range samples {
		if samples[i].Fate == probe.Open {
			return true
		}
	}
	return false
}

// open opens the flows of the phase; nothing flows yet.
func (r *phaseRun) open(ctx context.Context) error {
	specs := r.spec.flows()
	if len(specs) == 0 {
		return nil
	}
	load, err := r.runner.Open(ctx, specs)
	r.load = load
	return err
}

// flows returns the groups of flows of the phase.
func (s PhaseSpec) flows() []FlowSpec {
	var out []FlowSpec
	for _, d := range []struct {
		dir   Direction
		n     int
		limit time.Duration
	}{{Down, s.FlowsDown, s.Duration + downSlack}, {Up, s.FlowsUp, s.Duration}} {
		classes := s.Classes
		if len(classes) == 0 {
			classes = []int{s.DSCP}
		}
		for i, dscp := range classes {
			n := d.n/len(classes) + min(1, max(0, d.n%len(classes)-i)) // the remainder goes to the first ones
			if n > 0 {
				out = append(out, FlowSpec{Dir: d.dir, Flows: n, CC: s.CC, DSCP: dscp, Limit: d.limit})
			}
		}
	}
	return out
}

func (r *phaseRun) abandon() {
	if r.load != nil {
		r.load.Abandon()
	}
}

// watch waits for the phase to pass and records the busiest processor's share of work
// in its counted part.
func (r *phaseRun) watch(ctx context.Context, raw *RawPhase) error {
	if err := r.until(ctx, raw, raw.From); err != nil {
		return err
	}
	meter, counter, radio := netio.NewCPUMeter(), r.runner.counter(), r.runner.radio()
	own := r.passed()
	err := r.until(ctx, raw, raw.To)
	fileRadio(raw, radio)
	if err != nil {
		return err
	}
	if down, up, ok := counter.Rates(); ok {
		raw.Wire = verdict.Counted{Known: true, Down: float64(down), Up: float64(up)}
		own.since(r.passed(), &raw.Wire)
	}
	cpu, err := meter.Busiest()
	raw.CPU = cpu
	if err != nil {
		raw.CPUUnknown = err.Error()
	}
	return r.until(ctx, raw, raw.End)
}

// until sleeps to the given instant and reports progress on the way.
func (r *phaseRun) until(ctx context.Context, raw *RawPhase, at unit.Instant) error {
	for {
		now := r.runner.clock.Now()
		left := at.Sub(now)
		if left <= 0 {
			return nil
		}
		pause := left
		if r.spec.Progress != nil {
			pause = min(left, progressEvery)
		}
		if err := Sleep(ctx, pause); err != nil {
			return err
		}
		r.report(r.runner.clock.Now(), raw.Start, false)
	}
}

func (r *phaseRun) report(now, start unit.Instant, draining bool) {
	if r.spec.Progress == nil || now.Sub(r.last) < progressEvery-time.Millisecond {
		return
	}
	e := Event{
		Phase: r.spec.Name, Elapsed: unit.Seconds(now.Sub(start)), Duration: unit.Seconds(r.spec.Duration), Head: unit.Seconds(r.spec.CutHead), Draining: draining,
		FlowsDown: r.spec.FlowsDown, FlowsUp: r.spec.FlowsUp, Answers: r.answers(start, now),
	}
	e.RTT = unit.Milliseconds(r.rtt)
	for _, d := range []struct {
		dir   Direction
		flows int
		rate  *unit.Rate
	}{{Down, r.spec.FlowsDown, &e.Down}, {Up, r.spec.FlowsUp, &e.Up}} {
		if d.flows == 0 || r.load == nil {
			continue
		}
		total := r.load.Moved(d.dir)
		if r.last != 0 && total > r.moved[d.dir] && !draining {
			*d.rate = unit.Rate(float64(total-r.moved[d.dir]) * 8 / now.Sub(r.last).Seconds())
		}
		r.moved[d.dir] = total
	}
	r.last = now
	r.spec.Progress(e)
}

// answers returns the answers to this phase's probes that came since it was
// called last.
func (r *phaseRun) answers(start, now unit.Instant) []Answer {
	// Older probes are lost, or no longer of interest while it runs.
	samples, _ := r.probe.Samples(max(start, now.Add(-Grace-progressEvery)), min(now, start.Add(r.spec.Duration)))
	var out []Answer
	heard := r.heard
	for i := range samples {
		s := &samples[i]
		if s.Fate == probe.Answered && s.Received > r.heard {
			heard = max(heard, s.Received)
			r.rtt = s.RTT()
			out = append(out, Answer{Sent: unit.Seconds(s.Sent.Sub(start)), RTT: unit.Milliseconds(r.rtt)})
		}
	}
	r.heard = heard
	return out
}

// collect stops the flows and files their reports.
func (r *phaseRun) collect(ctx context.Context, raw *RawPhase) error {
	if r.load == nil {
		return nil
	}
	reports, err := r.load.Stop(ctx)
	if err != nil {
		return err
	}
	for _, rep := range reports {
		AddLoad(raw, rep.Dir, rep)
	}
	return nil
}

// AddLoad files a group of greedy flows under the phase during which it ran. A
// phase whose loads were started apart, by this or another process of this
// machine, is completed with it.
func AddLoad(raw *RawPhase, dir Direction, rep FlowReport) {
	raw.Greedy = true
	if dir == Down {
		raw.Down = append(raw.Down, rep.Series...)
		raw.DownWhole = append(raw.DownWhole, rep.Whole...)
		raw.DownSenders = append(raw.DownSenders, rep.Sender)
	} else {
		raw.Up = append(raw.Up, rep.Series...)
		raw.UpSenders = append(raw.UpSenders, rep.Sender)
	}
	raw.ServerCPU = max(raw.ServerCPU, rep.ServerCPU)
	raw.Broken = append(raw.Broken, rep.Broken...)
	raw.OnLoad = append(raw.OnLoad, rep.OnLoad...)
	if rep.Fresh != nil {
		raw.Fresh.TCP = append(raw.Fresh.TCP, rep.Fresh.TCP...)
		raw.Fresh.TLS = append(raw.Fresh.TLS, rep.Fresh.TLS...)
		raw.Fresh.HTTP = append(raw.Fresh.HTTP, rep.Fresh.HTTP...)
	}
}

// Sleep waits for d, or returns why ctx ended.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
