package serve

import (
	"math/rand/v2"

	"unbloat/internal/measure/verdict"
)

// A fakeLine makes Submissions as a browser behind a line with these figures.
type fakeLine struct {
	rttUs, jitterUs  int64
	downUs, upUs     int64 // added under load
	downBps, upBps   float64
	lateUs           int64 // of every probe
	rising           bool  // the rates never settle
	both             bool
	unanswered       int // of every phase, at its end
	broken, skipEach int
	seconds          int64 // of each load
}

func (f fakeLine) submission(rng *rand.Rand) *Submission {
	if f.seconds == 0 {
		f.seconds = 8
	}
	s := &Submission{Schema: SubmissionSchema, IntervalUs: 20_000, TickUs: 5, Protocol: "http/1.1", Transport: OverWebSocket}
	names := []string{verdict.PhaseIdle, verdict.PhaseDownload, verdict.PhaseUpload}
	if f.both {
		names = append(names, verdict.PhaseBoth)
	}
	at := int64(1_234)
	for _, n := range names {
		p := f.phase(rng, n, at)
		at = p.EndUs + 300_017
		s.Phases = append(s.Phases, p)
	}
	return s
}

func (f fakeLine) phase(rng *rand.Rand, name string, start int64) RawPhase {
	p := RawPhase{Name: name, StartUs: start, EndUs: start + f.seconds*1_000_000 + 3_001, BinUs: 100_000, Skips: []Skip{}, DownByte: []int64{}, UpByte: []int64{}}
	down := name == verdict.PhaseDownload || name == verdict.PhaseBoth
	up := name == verdict.PhaseUpload || name == verdict.PhaseBoth
	if name == verdict.PhaseIdle {
		p.EndUs = start + 3_000_456
	}
	var addUp, addDown int64
	bins := int((p.EndUs - p.StartUs + p.BinUs - 1) / p.BinUs)
	if down {
		p.Flows.Down, addDown, p.Broken = 4, f.downUs, f.broken
		p.DownByte = f.bins(rng, bins, f.downBps)
	}
	if up {
		p.Flows.Up, addUp = 4, f.upUs
		p.UpByte = f.bins(rng, bins, f.upBps)
	}
	jitter := func() int64 {
		if f.jitterUs == 0 {
			return 0
		}
		return rng.Int64N(f.jitterUs)
	}
	n := int((p.EndUs - p.StartUs) / 20_000)
	c := &p.Probes
	for i := range n {
		due := p.StartUs + int64(i)*20_000
		sent := due + f.lateUs
		if sent >= p.EndUs {
			break
		}
		held := 5 + rng.Int64N(20)
		there := f.rttUs/2 + addUp + jitter()
		back := f.rttUs/2 + addDown + jitter()
		c.DueUs, c.SentUs = append(c.DueUs, due), append(c.SentUs, sent)
		if i >= n-f.unanswered {
			c.ReceivedUs, c.ServerUs, c.HeldUs = append(c.ReceivedUs, -1), append(c.ServerUs, 0), append(c.HeldUs, 0)
			continue
		}
		c.ReceivedUs = append(c.ReceivedUs, sent+there+held+back)
		c.ServerUs = append(c.ServerUs, sent+there+777_777)
		c.HeldUs = append(c.HeldUs, held)
	}
	for i := range f.skipEach {
		p.Skips = append(p.Skips, Skip{AtUs: p.StartUs + 2_600_000 + int64(i)*1000, Probes: 1 + i%3, LateUs: 35_000 + int64(i)})
	}
	return p
}

func (f fakeLine) bins(rng *rand.Rand, n int, bps float64) []int64 {
	out := make([]int64, n)
	for i := range out {
		rate := bps
		if f.rising {
			rate *= float64(i) / float64(n)
		}
		out[i] = int64(rate / 80 * (0.95 + rng.Float64()/10))
	}
	return out
}
