package phases

import (
	"time"

	"unbloat/internal/measure/probe"
	"unbloat/internal/measure/verdict"
	"unbloat/unit"
)

// This file has what a phase is over any clock: a router's, a browser's, the simulator's.

// Edges returns how much of the begin and the end of a phase with load does not count:
// slow start, a quarter but at most 2.5 s, and the teardown.
func Edges(d time.Duration) (head, tail time.Duration) {
	return min(d/4, 2500*time.Millisecond), min(d/40, 250*time.Millisecond)
}

// WithDefaults returns the phase with its edges: none is 0.
func (s PhaseSpec) WithDefaults() PhaseSpec {
	def := func(d *time.Duration, v time.Duration) {
		switch {
		case *d < 0 || *d == 0 && s.FlowsDown+s.FlowsUp == 0:
			*d = 0
		case *d == 0:
			*d = v
		}
	}
	head, tail := Edges(s.Duration)
	def(&s.CutHead, head)
	def(&s.CutTail, tail)
	return s
}

// Raw returns what is to be measured of a phase that begins at start.
func (s PhaseSpec) Raw(start unit.Instant, interval time.Duration) *RawPhase {
	end := start.Add(s.Duration)
	return &RawPhase{Name: s.Name, Interval: interval, Start: start, From: start.Add(s.CutHead), To: end.Add(-s.CutTail), End: end}
}

// Probes are what is known of probes so far.
type Probes interface {
	// Samples returns those sent in [from, to), fates as far as they are known.
	Samples(from, to unit.Instant) ([]probe.Sample, []probe.Skip)
	// Settled reports whether nothing more is to be expected of those sent before at.
	Settled(at unit.Instant) (bool, error)
}

// A Settling is what phases wait for in their end.
type Settling struct {
	Interval time.Duration // of the probes
	ceiling  time.Duration // the round trip below which the line counts as idle; 0: not known
}

const (
	// drainLimit is how long to wait after a phase for the round trip to come back.
	drainLimit  = 10 * time.Second
	settleEvery = 50 * time.Millisecond
)

// Learn takes an idle phase for what the line is like without load: its p95, and a
// little more.
func (s *Settling) Learn(raw *RawPhase) {
	if e := verdict.EvaluateLatency(raw.Samples, verdict.Baseline{}); e.Received > 0 {
		s.ceiling = unit.FromMs(e.RTTMs.P95) + max(2*time.Millisecond, unit.FromMs(e.RTTMs.P50)/10)
	}
}

// Wait waits for the answers to what was sent before end and, after a load, until the
// line is idle again or drainLimit is over.
func (s Settling) Wait(p Probes, end unit.Instant, loaded bool, now func() unit.Instant, pause func(time.Duration) error) error {
	limit := now().Add(drainLimit)
	for {
		done, err := p.Settled(end)
		if err != nil {
			return err
		}
		if at := now(); done && (!loaded || s.ceiling == 0 || limit.Before(at) || s.idle(p, at)) {
			return nil
		}
		if err := pause(settleEvery); err != nil {
			return err
		}
	}
}

// idle reports whether nearly all probes of the last moments came back within the
// ceiling. The moments hold at least five probes.
func (s Settling) idle(p Probes, now unit.Instant) bool {
	moments := max(250*time.Millisecond, 5*s.Interval)
	to := now.Add(-s.ceiling - s.Interval)
	recent, _ := p.Samples(to.Add(-moments), to)
	good := 0
	for i := range recent {
		if recent[i].Fate == probe.Answered && recent[i].RTT() <= s.ceiling {
			good++
		}
	}
	return len(recent) > 0 && good*10 >= len(recent)*9
}

// recovery returns how long after a phase's end the last answer came that took longer than the
// ceiling; nil if that is not known.
func (s Settling) recovery(p Probes, raw *RawPhase, now unit.Instant) *time.Duration {
	if s.ceiling == 0 {
		return nil
	}
	samples, _ := p.Samples(raw.To, now)
	d := time.Duration(0)
	for i := range samples {
		if x := &samples[i]; x.Fate == probe.Answered && x.RTT() > s.ceiling {
			d = max(d, x.Received.Sub(raw.End))
		}
	}
	return &d
}
