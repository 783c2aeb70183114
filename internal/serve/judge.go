package serve

import (
	"slices"
	"time"

	"unbloat/internal/measure/verdict"
	"unbloat/reason"
)

// Bounds of validity that only a browser has. verdict's bound on late probes
// (p99 1 ms) would refuse every browser: their timers are that coarse. But what
// is graded is the 95th percentile, and a probe's round trip is measured from
// when it really left, so it is the 95th percentile of lateness that must be
// small against the steps of the grades, or against what is measured, as verdict has it.
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
	if s.Transport == OverWebSocket {
		t, spoilt = withoutWaits(s, meta, t)
	}
	if s.HiddenUs > mostHidden {
		spoilt = append(spoilt, reason.Of(reason.PageHidden, "hidden_s", float64(s.HiddenUs)/1e6))
	}
	if s.TickUs > mostTickUs {
		spoilt = append(spoilt, reason.Of(reason.ClockCoarse, "tick_ms", float64(s.TickUs)/1e3))
	}
	worst := 0.0
	for _, p := range t.Phases() {
		worst = max(worst, p.Latency.IncreaseMs.P95)
	}
	for i, p := range t.Phases() {
		late := s.Phases[i].lateness(s.IntervalUs)
		q := verdict.Summarise(late)
		p.ProbeLatenessMs = verdict.Lateness{P99: q.P99, Max: q.Max}
		rise := p.Latency.IncreaseMs.P95
		if p.Name == verdict.PhaseIdle {
			rise = worst // what it is compared with
		}
		switch most := verdict.MostLateness(float64(mostLate)/1e6, rise); {
		case q.P95 > float64(mostLate)/1e6 && q.P95 <= most:
			t.Remark(reason.Of(reason.LatenessBound, "p99_ms", q.P99).In(p.Name))
		case q.P95 > most:
			spoilt = append(spoilt, reason.Of(reason.PageProbesLate, "p95_ms", q.P95, "most_ms", most).In(p.Name))
		}
	}
	t.Spoil(reason.Page, spoilt...) // a page has no flags to advise
	t.Remark(s.notes()...)
	return t
}

// withoutWaits looks whether the grade hinges on probes that waited for TCP to send lost
// packets again. If it does, it returns the test as it is at least, and why it has no grade.
func withoutWaits(s *Submission, meta verdict.Meta, t *verdict.Test) (*verdict.Test, []reason.Reason) {
	raws := make([]verdict.Raw, len(s.Phases))
	for i := range s.Phases {
		p := s.Phases[i]
		p.Probes.ReceivedUs = p.Probes.unheld()
		raws[i] = p.raw(s)
	}
	least := verdict.Judge(meta, raws)
	var why []reason.Reason
	for i, p := range least.Phases() {
		most := t.Phases()[i]
		if p.Name != verdict.PhaseIdle && verdict.GradeOf(p.Phase) != verdict.GradeOf(most.Phase) {
			why = append(why, reason.Of(reason.PageResent, "least_ms", p.Latency.IncreaseMs.P95, "most_ms", most.Latency.IncreaseMs.P95).In(p.Name))
		}
	}
	if len(why) == 0 {
		return t, nil
	}
	return least, why
}

// Answers that come together though their probes left apart were held behind one that TCP
// had to send again, if there are so many of them.
const leastHeld = 3

// unheld returns when the answers came, those that were held as soon as the last that was
// held with them: they were under way for no longer than it, or we don't know.
func (c *Probes) unheld() []int64 {
	out := slices.Clone(c.ReceivedUs)
	for i := len(out) - 1; i >= 0; {
		first := i // of those that came together
		for first > 0 && c.ReceivedUs[first-1] >= 0 && c.ReceivedUs[first] >= 0 && c.ReceivedUs[first]-c.ReceivedUs[first-1] < (c.SentUs[first]-c.SentUs[first-1])/4 {
			first--
		}
		if i-first+1 >= leastHeld {
			for k := first; k < i; k++ {
				out[k] = min(out[k], c.SentUs[k]+max(c.HeldUs[k], c.ReceivedUs[i]-c.SentUs[i]))
			}
		}
		i = first - 1
	}
	return out
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
