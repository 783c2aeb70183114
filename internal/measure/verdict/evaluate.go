package verdict

import (
	"math"
	"time"

	"unbloat/internal/measure/probe"
	"unbloat/unit"
)

// Evaluate turns what was measured in one phase into figures. origin is the
// instant from which the Timeline counts.
func Evaluate(raw Raw, base Baseline, origin unit.Instant) *Phase {
	seconds := raw.To.Sub(raw.From).Seconds()
	p := &Phase{
		Seconds:         milli(max(seconds, 0)),
		FlowsDown:       len(raw.Down),
		FlowsUp:         len(raw.Up),
		GoodputDownBps:  Goodput(raw.Down, raw.From, raw.To),
		GoodputUpBps:    Goodput(raw.Up, raw.From, raw.To),
		Latency:         EvaluateLatency(counted(raw.Samples, raw.From, raw.To), base),
		CPU:             milli(raw.CPU),
		ServerCPU:       milli(raw.ServerCPU),
		ProbeLatenessMs: lateness(raw),
		Retransmits:     retransmits(raw.DownSenders, raw) + retransmits(raw.UpSenders, raw),
		Series:          timeline(raw, origin),
	}
	if len(raw.OnLoad) > 0 {
		l := EvaluateLatency(counted(raw.OnLoad, raw.From, raw.To), base)
		p.OnLoad = &l
	}
	for _, b := range raw.Secondary {
		p.Secondary = append(p.Secondary, Named{b.Name, EvaluateLatency(counted(b.Samples, raw.From, raw.To), base.secondary(b.Name))})
	}
	if len(raw.Down)+len(raw.Up) > 0 {
		p.RPM = rpm(raw)
	}
	if raw.Recovery != nil {
		ms := milli(unit.Ms(*raw.Recovery))
		p.RecoveryMs = &ms
	}
	p.Voice, p.Queue = Call(p.Latency), queue(p)
	p.OthersDownBps, p.OthersUpBps = others(raw, p)
	p.Radio = radio(raw, p)
	p.Unsaturated = raw.unsaturated(p)
	p.Saturated = raw.Greedy && p.FlowsDown+p.FlowsUp > 0 && len(p.Unsaturated) == 0
	return p
}

// EvaluateLatency summarises samples against an idle baseline.
func EvaluateLatency(samples []probe.Sample, base Baseline) Latency {
	l := Latency{Sent: len(samples)}
	lostUp, lostDown, lost, open := 0, 0, 0, 0
	for i := range samples {
		switch samples[i].Fate {
		case probe.Answered:
			l.Received++
		case probe.LostDown:
			lostDown++
		case probe.LostUp:
			lostUp++
		case probe.Open: // nothing is known but that no answer came
			open++
		case probe.Lost:
			lost++
		}
	}
	v := valuesOf(samples)
	l.OneWayUnknown = lost > 0 || len(v.rtt) > 0 && len(v.up) == 0 && lostUp+lostDown == 0
	lostUp += open
	if l.Sent > 0 {
		l.Loss = fraction(l.Sent-l.Received, l.Sent)
		if !l.OneWayUnknown {
			l.LossUp = fraction(lostUp, l.Sent)
			l.LossDown = fraction(lostDown, l.Sent-lostUp)
		}
	}
	l.IPDVMs = ipdv(samples)
	l.IncreaseMs = Summarise(shift(v.rtt, base.RTT))
	l.UpMs = Summarise(shift(v.up, base.Up))
	l.DownMs = Summarise(shift(v.down, base.Down))
	l.RTTMs = Summarise(v.rtt)
	return l
}

func fraction(n, of int) float64 {
	if of <= 0 {
		return 0
	}
	return math.Round(float64(n)/float64(of)*1e6) / 1e6
}

// ipdv returns the mean absolute difference between the round trips of
// consecutive probes, both answered (RFC 3393), in ms.
func ipdv(samples []probe.Sample) float64 {
	var sum time.Duration
	n := 0
	for i := 1; i < len(samples); i++ {
		a, b := &samples[i-1], &samples[i]
		if a.Fate == probe.Answered && b.Fate == probe.Answered && b.Seq == a.Seq+1 {
			sum += (b.RTT() - a.RTT()).Abs()
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return milli(float64(sum) / float64(n) / 1e6)
}

// lateness tells how late probes left. A probe that was skipped counts as late
// as it was when that was noticed.
func lateness(raw Raw) Lateness {
	var late []time.Duration
	for _, s := range counted(raw.Samples, raw.From, raw.To) {
		late = append(late, s.Lateness())
	}
	for _, k := range raw.Skips {
		if k.At.Before(raw.From) || !k.At.Before(raw.To) {
			continue
		}
		for i := range k.Probes {
			late = append(late, k.Lateness-time.Duration(i)*raw.Interval)
		}
	}
	q := Summarise(late)
	return Lateness{P99: q.P99, Max: q.Max}
}

// retransmits returns the segments sent again in the counted part.
func retransmits(groups [][]probe.SenderSample, raw Raw) int64 {
	var sum int64
	for _, g := range groups {
		if a, b, ok := around(g, raw.From, raw.To); ok {
			sum += max(b.Retransmits-a.Retransmits, 0)
		}
	}
	return sum
}

// around returns the samples nearest to the edges of the counted part.
func around(samples []probe.SenderSample, from, to unit.Instant) (a, b probe.SenderSample, ok bool) {
	if len(samples) < 2 {
		return a, b, false
	}
	nearest := func(at unit.Instant) probe.SenderSample {
		best := samples[0]
		for _, s := range samples {
			if s.At.Sub(at).Abs() < best.At.Sub(at).Abs() {
				best = s
			}
		}
		return best
	}
	a, b = nearest(from), nearest(to)
	return a, b, a.Known && b.Known && a.At.Before(b.At)
}

// timelineBin is the width of a throughput bin in a Timeline.
const timelineBin = 100 * time.Millisecond

func timeline(raw Raw, origin unit.Instant) *Timeline {
	t := &Timeline{
		StartS: milli(raw.Start.Sub(origin).Seconds()),
		EndS:   milli(raw.End.Sub(origin).Seconds()),
		TS:     make([]float64, 0, len(raw.Samples)),
		RTTMs:  make([]*float64, 0, len(raw.Samples)),
		BinS:   timelineBin.Seconds(),
		// Never null in JSON, so that charts need not check.
		DownMbps: []float64{}, UpMbps: []float64{},
	}
	for i := range raw.Samples {
		s := &raw.Samples[i]
		t.TS = append(t.TS, milli(s.Sent.Sub(origin).Seconds()))
		var ms *float64
		if s.Fate == probe.Answered {
			v := math.Round(unit.Ms(s.RTT())*1e3) / 1e3
			ms = &v
		}
		t.RTTMs = append(t.RTTMs, ms)
	}
	for at := raw.Start; at.Before(raw.End); at = at.Add(timelineBin) {
		end := min(at.Add(timelineBin), raw.End)
		if len(raw.Down) > 0 {
			t.DownMbps = append(t.DownMbps, milli(Goodput(raw.Down, at, end)/1e6))
		}
		if len(raw.Up) > 0 {
			t.UpMbps = append(t.UpMbps, milli(Goodput(raw.Up, at, end)/1e6))
		}
	}
	return t
}
