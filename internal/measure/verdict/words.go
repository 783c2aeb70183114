package verdict

import (
	"strings"

	"unbloat/reason"
	"unbloat/unit"
)

// findings returns the verdict as data, a reason a sentence: why the test must
// not be believed, or what a loaded line does to the round trip. where is where
// they will be shown.
func (t *Test) findings(l *reason.Language, where reason.Surface) []reason.Reason {
	if why := t.WhyInvalid(l, where); !t.Valid && len(why) > 0 {
		more := l.MoreReasons(len(why) - 1)
		return []reason.Reason{reason.Of(reason.NotValid, "why", why[0], "more", more)}
	}
	if t.Idle == nil {
		return nil
	}
	worst := NamedPhase{}
	for _, p := range t.Phases() {
		if p.Name != PhaseIdle && (worst.Phase == nil || p.Latency.IncreaseMs.P95 > worst.Latency.IncreaseMs.P95) {
			worst = p
		}
	}
	idle := t.Idle.Latency.RTTMs.P50
	if worst.Phase == nil {
		return []reason.Reason{reason.Of(reason.NothingLoaded, "idle_ms", idle)}
	}
	code := map[string]reason.Code{
		PhaseDownload: reason.RoundTripDownload, PhaseUpload: reason.RoundTripUpload,
		PhaseBoth: reason.RoundTripBoth, PhaseLoaded: reason.RoundTripLoaded,
	}[worst.Name]
	out := []reason.Reason{reason.Of(code, "idle_ms", idle, "loaded_ms", worst.Latency.RTTMs.P95, "meaning", "grade "+t.Grade)}
	if lossy := lossiest(t); lossy.Phase != nil && lossy.Latency.Loss >= noticeableLoss {
		code := reason.ProbesLost
		if lossy.Latency.Loss >= audibleLoss {
			code = reason.ProbesLostAudibly
		}
		out = append(out, reason.Of(code, "in", lossy.Name, "loss", lossy.Latency.Loss))
	}
	return out
}

// Sentence says in plain words what the test found, made from its figures.
func (t *Test) Sentence(l *reason.Language, where reason.Surface) string {
	return strings.Join(reason.TextsIn(t.findings(l, where), l, where), " ")
}

// VerdictIn returns the verdict in a language: English as the result carries it,
// any other from its figures.
func (t *Test) VerdictIn(l *reason.Language, where reason.Surface) string {
	if l.Tag == reason.English().Tag {
		return t.Verdict
	}
	return t.Sentence(l, where)
}

// WhyInvalid returns why the test must not be believed, in a language. A result
// that carries no reasons as data, as older ones do, has them in English only.
func (t *Test) WhyInvalid(l *reason.Language, where reason.Surface) []string {
	if l.Tag == reason.English().Tag || len(t.Reasons) == 0 {
		return t.InvalidReasons
	}
	return reason.TextsIn(t.Reasons, l, where)
}

// NotesIn returns the notes in a language. Those of results that carry none as
// data are in English, and so is what servers and systems said.
func (t *Test) NotesIn(l *reason.Language, where reason.Surface) []string {
	if l.Tag == reason.English().Tag || len(t.Remarks) == 0 {
		return t.Notes
	}
	return reason.TextsIn(t.Remarks, l, where)
}

// Remark adds notes, as data and in English.
func (t *Test) Remark(more ...reason.Reason) {
	for _, r := range more {
		t.Remarks = append(t.Remarks, r)
		t.Notes = append(t.Notes, r.Text(reason.English(), reason.Terminal))
	}
}

// Fill says what a greedy load did not fill, and what that means for the phase;
// nil if it filled what it was to fill.
func (p *Phase) Fill() *reason.Reason {
	if p.Saturated || p.FlowsDown+p.FlowsUp == 0 {
		return nil
	}
	r := reason.Of(reason.NotFilledEach)
	if len(p.Unsaturated) > 0 {
		u := p.Unsaturated[0]
		this, other, got := PhaseDownload, PhaseUpload, p.GoodputDownBps
		if u.Direction == "up" {
			this, other, got = PhaseUpload, PhaseDownload, p.GoodputUpBps
		}
		switch one := len(p.Unsaturated) == 1; {
		case one && u.Starved:
			r = reason.Of(reason.Starved, "this", this, "other", other, "got_bps", float64(unit.Rate(got)))
		case one && p.FlowsDown > 0 && p.FlowsUp > 0:
			r = reason.Of(reason.OneFilled, "this", this, "other", other)
		default:
			r = reason.Of(reason.NotFilled)
		}
		cause := u.Reason
		if cause.Code == "" { // a stored result has the words alone
			cause = reason.Of(reason.AsWritten, "text", u.Why)
		}
		r.Causes = []reason.Reason{cause}
	}
	return &r
}

// FillWords is Fill in English; "" if the load filled what it was to fill.
func (p *Phase) FillWords() string {
	if r := p.Fill(); r != nil {
		return r.Text(reason.English(), reason.Terminal)
	}
	return ""
}
