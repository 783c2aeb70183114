package serve

import (
	"time"

	"unbloat/internal/measure/verdict"
	"unbloat/reason"
)

// Bounds of validity that only a browser has. verdict's bound on late probes
// (p99 1 ms) would refuse every browser: their timers are that coarse. But what
// is graded is the 95th percentile, and a probe's round trip is measured from
// when it really left, so it is the 95th percentile of lateness that must be
// small against the steps of the grades.
const (
	mostLate   = 5 * time.Millisecond // p95
	mostTickUs = 2_000                // of the clock
	mostHidden = 0                    // µs: browsers slow down what is not in front
)

// Judge computes the result of a Submission. meta says when, and against which
// server, it was taken.
func Judge(s *Submission, meta verdict.Meta) *verdict.Test {
	raws := make([]verdict.Raw, len(s.Phases))
	for i := range s.Phases {
		raws[i] = s.Phases[i].raw(s)
	}
	t := verdict.Judge(meta, raws)
	var spoilt []reason.Reason
	if s.HiddenUs > mostHidden {
		spoilt = append(spoilt, reason.Of(reason.PageHidden, "hidden_s", float64(s.HiddenUs)/1e6))
	}
	if s.TickUs > mostTickUs {
		spoilt = append(spoilt, reason.Of(reason.ClockCoarse, "tick_ms", float64(s.TickUs)/1e3))
	}
	for i, p := range t.Phases() {
		late := s.Phases[i].lateness(s.IntervalUs)
		q := verdict.Summarise(late)
		p.ProbeLatenessMs = verdict.Lateness{P99: q.P99, Max: q.Max}
		if most := float64(mostLate) / 1e6; q.P95 > most {
			spoilt = append(spoilt, reason.Of(reason.PageProbesLate, "p95_ms", q.P95, "most_ms", most).In(p.Name))
		}
	}
	t.Spoil(reason.Page, spoilt...) // a page has no flags to advise
	t.Remark(s.notes()...)
	return t
}

// lateness returns how late each counted probe left; one that was skipped
// counts as late as it was when that was noticed.
func (p *RawPhase) lateness(intervalUs int64) []time.Duration {
	from, to := p.counted()
	var late []time.Duration
	for i, sent := range p.Probes.SentUs {
		if sent >= from && sent < to {
			late = append(late, time.Duration(sent-p.Probes.DueUs[i])*time.Microsecond)
		}
	}
	for _, k := range p.Skips {
		if k.AtUs < from || k.AtUs >= to {
			continue
		}
		for i := range int64(k.Probes) {
			late = append(late, time.Duration(max(k.LateUs-i*intervalUs, 0))*time.Microsecond)
		}
	}
	return late
}

// notes says what this browser's measurement could not tell.
func (s *Submission) notes() []reason.Reason {
	notes := []reason.Reason{reason.Of(reason.CPUNotTold), reason.Of(reason.ProbesOverTCP)}
	if s.Transport == OverWebTransport {
		notes[1] = reason.Of(reason.ProbesAsDatagrams)
	}
	switch s.Protocol {
	case "h2", "h3":
		notes = append(notes, reason.Of(reason.OneConnection, "protocol", s.Protocol))
	}
	return notes
}
