package report

import (
	"math"
	"math/rand"
	"sort"

	"unbloat/internal/measure/verdict"
)

// fakeLine is a home line for fakeTest.
type fakeLine struct {
	label           string
	down, up        float64 // Mbit/s
	queueDown       float64 // ms that a download adds
	queueUp         float64 // ms that an upload adds
	loss            float64 // under load
	seconds         float64 // of each phase
	interval        float64 // s between probes
	seed            int64
	grade, gradeD   string
	gradeU, verdict string
}

// before and after are the two states of an emulated 30/5 line.
func before() fakeLine {
	return fakeLine{"cable, nothing set", 29.1, 4.8, 620, 1250, 0.004, 10, 0.01, 1, "F", "F", "F",
		"While uploading, calls wait 1.3 s: they break up."}
}

func after() fakeLine {
	return fakeLine{"CAKE 28.5/4.6", 27.7, 4.4, 4, 6, 0.0005, 10, 0.01, 2, "A+", "A+", "A+",
		"Calls hardly notice a busy line."}
}

// fakeTest makes a test with its series and figures from the same samples:
// phases of a line whose queue fills in the first second, then saws.
func fakeTest(l fakeLine) *verdict.Test {
	r := rand.New(rand.NewSource(l.seed))
	t := &verdict.Test{Schema: verdict.TestSchema, Time: "2026-03-01T14:13:20.5Z", Label: l.label, Server: "192.0.2.7:2112", Valid: true,
		InvalidReasons: []string{}, Grade: l.grade, GradeDown: l.gradeD, GradeUp: l.gradeU, Verdict: l.verdict}
	start, idle := 0.0, 0.0
	for _, ph := range []struct {
		at         **verdict.Phase
		queue      float64
		down, up   float64
		nDown, nUp int
	}{
		{&t.Idle, 0, 0, 0, 0, 0},
		{&t.Download, l.queueDown, l.down, 0.15, 4, 0},
		{&t.Upload, l.queueUp, 0.3, l.up, 0, 4},
		{&t.Both, max(l.queueDown, l.queueUp) * 1.02, l.down * 0.95, l.up * 0.93, 4, 4},
	} {
		p := &verdict.Phase{FlowsDown: ph.nDown, FlowsUp: ph.nUp, Saturated: ph.queue > 0, CPU: 0.12, Retransmits: int64(ph.queue / 10)}
		p.ProbeLatenessMs.P99 = 0.08
		s := &verdict.Timeline{StartS: start, EndS: start + l.seconds, BinS: 0.2, TS: []float64{}, RTTMs: []*float64{}}
		for i := 0; float64(i)*l.interval < l.seconds; i++ {
			at := float64(i) * l.interval
			s.TS = append(s.TS, start+at)
			fill := min(1, at/1.2)
			saw := 0.72 + 0.28*math.Mod(at/1.7, 1)
			v := 20 + r.ExpFloat64()*0.35 + ph.queue*fill*saw*(0.94+0.06*r.Float64())
			if r.Float64() < 0.003 {
				v += 12 * r.Float64()
			}
			if ph.queue > 0 && r.Float64() < l.loss {
				s.RTTMs = append(s.RTTMs, nil)
			} else {
				s.RTTMs = append(s.RTTMs, &v)
			}
		}
		for i := range int(l.seconds / s.BinS) {
			fill := min(1, float64(i+1)*s.BinS/0.8)
			s.DownMbps = append(s.DownMbps, ph.down*fill*(0.97+0.06*r.Float64()))
			s.UpMbps = append(s.UpMbps, ph.up*fill*(0.95+0.08*r.Float64()))
		}
		p.Series = s
		fill(p, &idle, 1.5, 0.3)
		*ph.at = p
		start += l.seconds
	}
	return t
}

// fill computes a phase's figures from its series, without lead and tail
// seconds.
func fill(p *verdict.Phase, idle *float64, lead, tail float64) {
	var v []float64
	s := p.Series
	for i, t := range s.TS {
		if t < s.StartS+lead || t >= s.EndS-tail {
			continue
		}
		p.Latency.Sent++
		if s.RTTMs[i] != nil {
			v = append(v, *s.RTTMs[i])
		}
	}
	p.Seconds = s.EndS - s.StartS - lead - tail
	p.Latency.Received = len(v)
	p.Latency.Loss = 1 - float64(len(v))/max(1, float64(p.Latency.Sent))
	p.Latency.RTTMs = quantiles(v)
	q := p.Latency.RTTMs
	for i := 1; i < len(v); i++ {
		p.Latency.IPDVMs += math.Abs(v[i]-v[i-1]) / float64(len(v)-1)
	}
	if *idle == 0 {
		*idle = q.P50
	}
	p.Latency.IncreaseMs = verdict.Quantiles{Min: q.Min - *idle, Mean: q.Mean - *idle, P50: q.P50 - *idle, P90: q.P90 - *idle, P95: q.P95 - *idle, P99: q.P99 - *idle, Max: q.Max - *idle}
	if p.FlowsUp > 0 {
		p.Latency.UpMs = p.Latency.IncreaseMs
	} else {
		p.Latency.DownMs = p.Latency.IncreaseMs
	}
	n := 0.0
	for i := range s.DownMbps {
		if at := float64(i) * s.BinS; at >= lead && at < s.EndS-s.StartS-tail {
			p.GoodputDownBps += s.DownMbps[i] * 1e6
			p.GoodputUpBps += s.UpMbps[i] * 1e6
			n++
		}
	}
	p.GoodputDownBps /= max(1, n)
	p.GoodputUpBps /= max(1, n)
}

func quantiles(v []float64) verdict.Quantiles {
	if len(v) == 0 {
		return verdict.Quantiles{}
	}
	v = append([]float64{}, v...)
	sort.Float64s(v)
	at := func(q float64) float64 { return v[max(0, int(math.Ceil(q*float64(len(v))))-1)] }
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return verdict.Quantiles{Min: v[0], Mean: sum / float64(len(v)), P50: at(.5), P90: at(.9), P95: at(.95), P99: at(.99), Max: v[len(v)-1]}
}
