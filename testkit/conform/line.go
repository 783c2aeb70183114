// This part has a line for tests of tuning, whose clock is its own.

package conform

import (
	"context"
	"time"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/probe"
	"unbloat/internal/measure/verdict"
	"unbloat/reason"
	"unbloat/unit"
)

// A Line is a tune.Meter: a line of 30/5 Mbit/s, 20 ms long, whose queue of a
// second stands whenever it is loaded and not shaped.
type TunedLine struct {
	Shaped  func() bool // whether a router shapes it now; nil: never
	Good    bool        // no queue, shaped or not
	Useless bool        // shaping changes nothing
	Invalid bool        // what is measured cannot be trusted
	// Rising says of a phase whether its load has not filled the line yet; nil: never.
	Rising func(phases.PhaseSpec) bool
	// Held is the delay that a phase's load adds behind a shaper; nil: none.
	Held func(phases.PhaseSpec) time.Duration
	// RoundTrip is a line whose probes tell the round trip only, not the two ways.
	RoundTrip bool

	now time.Time
}

// Now is the line's time, which only phases move on.
func (l *TunedLine) Now() time.Time { return l.now }

// Phase measures for as long as s says, at once.
func (l *TunedLine) Phase(_ context.Context, s phases.PhaseSpec) (*phases.RawPhase, error) {
	const interval = 10 * time.Millisecond
	l.now = l.now.Add(s.Duration)
	start := unit.Instant(l.now.UnixNano())
	raw := &phases.RawPhase{Name: s.Name, Start: start, End: start.Add(s.Duration), From: start, To: start.Add(s.Duration), Interval: interval}
	rtt := 20 * time.Millisecond
	shaped := l.Shaped != nil && l.Shaped()
	if loaded := s.FlowsDown+s.FlowsUp > 0; loaded && !l.Good && (!shaped || l.Useless) {
		rtt += time.Second
	}
	if shaped && l.Held != nil {
		rtt += l.Held(s)
	}
	if l.Rising != nil && l.Rising(s) {
		rising := verdict.Series{Start: start, Bin: 100 * time.Millisecond}
		for i := range int64(s.Duration / rising.Bin) {
			rising.Bytes = append(rising.Bytes, i*1000)
		}
		raw.Greedy, raw.Down = true, []verdict.Series{rising}
	}
	for at, i := start, 0; at.Before(raw.To); at, i = at.Add(interval), i+1 {
		sample := probe.Sample{Seq: uint32(i), Scheduled: at, Sent: at, Received: at.Add(rtt), Fate: probe.Answered}
		if !l.RoundTrip {
			sample.ServerReceived, sample.ServerSent = at.Add(rtt/2), at.Add(rtt/2)
		}
		raw.Samples = append(raw.Samples, sample)
	}
	return raw, nil
}

// Judge makes a test of the phases, with the goodput that the line has.
func (l *TunedLine) Judge(label string, raws []phases.RawPhase) *verdict.Test {
	t := &verdict.Test{Schema: verdict.TestSchema, Label: label, Valid: !l.Invalid, InvalidReasons: []string{}}
	if l.Invalid {
		t.Spoil(reason.Terminal, reason.Of(reason.CPUBusy, "busy", 1.0, "most", verdict.MaxCPU))
	}
	if judged := verdict.Judge(verdict.Meta{}, raws); !judged.Valid {
		t.Spoil(reason.Terminal, judged.Reasons...)
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
