package measure

import (
	"context"
	"fmt"
	"time"

	"unbloat/internal/netio"
	"unbloat/internal/probe"
	"unbloat/internal/verdict"
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
	Progress  func(Event) // called at most 5 times a second; may be nil
}

// An Event tells how a phase goes.
type Event struct {
	Phase    string
	Elapsed  time.Duration
	Duration time.Duration
	RTT      time.Duration // of the newest answered probe; 0: none yet
	Down     unit.Rate     // received since the event before
	Up       unit.Rate     // acknowledged since the event before; 0 where the system does not tell
	Draining bool          // the phase is over, its queue is not empty yet
}

// MaxPhase is the longest phase.
const MaxPhase = probe.MaxLimit - time.Minute

// RawPhase is what a phase measured, before anything is counted.
type RawPhase = verdict.Raw

const (
	progressEvery = 200 * time.Millisecond
	// drainLimit is how long to wait after a phase for the round trip to come back.
	drainLimit = 10 * time.Second
	// downSlack makes the server send a little longer than the phase: it starts
	// half a round trip earlier than the client hears of it.
	downSlack = 300 * time.Millisecond
)

// idleCeiling is the round trip below which the line counts as idle again.
type idleCeiling struct{ rtt time.Duration }

func (s PhaseSpec) withDefaults() PhaseSpec {
	def := func(d *time.Duration, v time.Duration) {
		switch {
		case *d < 0 || *d == 0 && s.FlowsDown+s.FlowsUp == 0:
			*d = 0
		case *d == 0:
			*d = v
		}
	}
	def(&s.CutHead, min(s.Duration/4, 2500*time.Millisecond))
	def(&s.CutTail, min(s.Duration/40, 250*time.Millisecond))
	return s
}

// Idle measures a phase without load, and remembers it as what the line is
// like when idle.
func (c *Client) Idle(ctx context.Context, d time.Duration, progress func(Event)) (*RawPhase, error) {
	return c.Phase(ctx, PhaseSpec{Name: verdict.PhaseIdle, Duration: d, Progress: progress})
}

// Phase runs one phase: it starts the flows asked for, probes for the
// duration, stops the flows, and waits until the answers under way have come
// and the line is idle again. Samples are of the phase in which they were sent.
func (c *Client) Phase(ctx context.Context, spec PhaseSpec) (*RawPhase, error) {
	spec = spec.withDefaults()
	if spec.Duration <= spec.CutHead+spec.CutTail || spec.Duration > MaxPhase {
		return nil, fmt.Errorf("phase %s of %v: must be longer than its edges (%v and %v), and at most %v",
			spec.Name, spec.Duration, spec.CutHead, spec.CutTail, MaxPhase)
	}
	p, err := c.phaseProbe(ctx)
	if err != nil {
		return nil, fmt.Errorf("phase %s: %w", spec.Name, err)
	}
	run := &phaseRun{client: c, spec: spec, probe: p, moved: map[Direction]int64{}}
	raw, err := run.do(ctx)
	if err != nil {
		return nil, fmt.Errorf("phase %s: %w", spec.Name, err)
	}
	if spec.Name == verdict.PhaseIdle {
		c.remember(raw)
	}
	return raw, nil
}

// phaseProbe returns the stream of probes that runs through all phases.
func (c *Client) phaseProbe(ctx context.Context) (*Probe, error) {
	c.mu.Lock()
	p := c.probe
	c.mu.Unlock()
	if p != nil {
		return p, nil
	}
	p, err := c.StartProbe(ctx, c.options.Probe)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.probe = p
	return p, nil
}

// remember takes an idle phase for what the line is like without load: its
// p95, and a little more.
func (c *Client) remember(raw *RawPhase) {
	l := verdict.EvaluateLatency(raw.Samples, verdict.Baseline{})
	if l.Received == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base = &idleCeiling{unit.FromMs(l.RTTMs.P95) + max(2*time.Millisecond, unit.FromMs(l.RTTMs.P50)/10)}
}

// A phaseRun is one phase under way.
type phaseRun struct {
	client *Client
	spec   PhaseSpec
	probe  *Probe
	flows  []*Flows
	moved  map[Direction]int64
	last   unit.Instant
}

func (r *phaseRun) do(ctx context.Context) (*RawPhase, error) {
	c := r.client
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	raw := &RawPhase{Name: r.spec.Name, Interval: r.probe.spec.Interval}
	steps := r.probe.steps()
	raw.Start = c.clock.Now()
	for i, f := range r.flows {
		if err := f.begin(ctx); err != nil {
			r.abandon(0)
			return nil, err
		}
		if i == 0 {
			raw.Start = f.start
		}
	}
	raw.From, raw.End = raw.Start.Add(r.spec.CutHead), raw.Start.Add(r.spec.Duration)
	raw.To = raw.End.Add(-r.spec.CutTail)
	if err := r.watch(ctx, raw); err != nil {
		r.abandon(0)
		return nil, err
	}
	if err := r.collect(ctx, raw); err != nil {
		return nil, err
	}
	if err := r.settle(ctx, raw.End); err != nil {
		return nil, err
	}
	raw.ClockSteps = r.probe.steps() - steps
	raw.Samples, raw.Skips = r.probe.samples(raw.Start, raw.End)
	if hasOpen(raw.Samples) {
		if err := r.probe.resolveOpen(ctx); err != nil {
			return nil, err
		}
		raw.Samples, _ = r.probe.samples(raw.Start, raw.End)
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
	for _, d := range []struct {
		dir Direction
		n   int
	}{{Down, r.spec.FlowsDown}, {Up, r.spec.FlowsUp}} {
		if d.n == 0 {
			continue
		}
		limit := r.spec.Duration
		if d.dir == Down {
			limit += downSlack
		}
		f, err := r.client.openFlows(ctx, FlowSpec{
			Dir: d.dir, Flows: d.n, CC: r.spec.CC, DSCP: r.spec.DSCP, Limit: limit,
		})
		if err != nil {
			r.abandon(0)
			return err
		}
		r.flows = append(r.flows, f)
	}
	return nil
}

func (r *phaseRun) abandon(from int) {
	for _, f := range r.flows[from:] {
		f.abandon()
	}
}

// watch lets the phase pass, and notes the busiest processor's share of work
// in its counted part.
func (r *phaseRun) watch(ctx context.Context, raw *RawPhase) error {
	if err := r.until(ctx, raw, raw.From); err != nil {
		return err
	}
	meter := netio.NewCPUMeter()
	if err := r.until(ctx, raw, raw.To); err != nil {
		return err
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
		now := r.client.clock.Now()
		left := at.Sub(now)
		if left <= 0 {
			return nil
		}
		pause := left
		if r.spec.Progress != nil {
			pause = min(left, progressEvery)
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		r.report(r.client.clock.Now(), raw.Start, false)
	}
}

func (r *phaseRun) report(now, start unit.Instant, draining bool) {
	if r.spec.Progress == nil || now.Sub(r.last) < progressEvery-time.Millisecond {
		return
	}
	e := Event{Phase: r.spec.Name, Elapsed: now.Sub(start), Duration: r.spec.Duration, Draining: draining}
	if s, ok := r.probe.newest(); ok {
		e.RTT = s.RTT()
	}
	for _, f := range r.flows {
		total, rate := f.moved(), &e.Up
		if f.spec.Dir == Down {
			rate = &e.Down
		}
		if r.last != 0 && total > r.moved[f.spec.Dir] && !draining {
			*rate = unit.Rate(float64(total-r.moved[f.spec.Dir]) * 8 / now.Sub(r.last).Seconds())
		}
		r.moved[f.spec.Dir] = total
	}
	r.last = now
	r.spec.Progress(e)
}

// collect stops the flows and files their reports.
func (r *phaseRun) collect(ctx context.Context, raw *RawPhase) error {
	for i, f := range r.flows {
		rep, err := f.Stop(ctx)
		if err != nil {
			r.abandon(i + 1)
			return err
		}
		AddLoad(raw, f.spec.Dir, rep)
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
		raw.DownSenders = append(raw.DownSenders, rep.Sender)
	} else {
		raw.Up = append(raw.Up, rep.Series...)
		raw.UpSenders = append(raw.UpSenders, rep.Sender)
	}
	raw.ServerCPU = max(raw.ServerCPU, rep.ServerCPU)
	raw.Broken = append(raw.Broken, rep.Broken...)
}

// settle waits for the answers under way and, after a load, until the line is
// idle again or drainLimit is over.
func (r *phaseRun) settle(ctx context.Context, end unit.Instant) error {
	c := r.client
	c.mu.Lock()
	base := c.base
	c.mu.Unlock()
	limit := c.clock.Now().Add(drainLimit)
	for {
		done, err := r.probe.settled(end)
		if err != nil {
			return err
		}
		now := c.clock.Now()
		drained := len(r.flows) == 0 || base == nil || limit.Before(now) || r.probe.idleAgain(base.rtt, now)
		if done && drained {
			return nil
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
		r.report(now, end.Add(-r.spec.Duration), true)
	}
}

// sleep waits for d.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
