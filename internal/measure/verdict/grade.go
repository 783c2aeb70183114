package verdict

import (
	"slices"
	"time"

	"unbloat/reason"
	"unbloat/unit"
)

// Grades, best first, on DSLReports' scale of latency increase. It is applied
// to the 95th percentile here, not to the mean: the tail is what calls hear.
const (
	GradeAPlus = "A+"
	GradeA     = "A"
	GradeB     = "B"
	GradeC     = "C"
	GradeD     = "D"
	GradeF     = "F"
)

// Grade returns the grade of a latency increase: below 5 ms A+, 30 A, 60 B,
// 200 C, 400 D, else F.
func Grade(increase time.Duration) string {
	switch {
	case increase < 5*time.Millisecond:
		return GradeAPlus
	case increase < 30*time.Millisecond:
		return GradeA
	case increase < 60*time.Millisecond:
		return GradeB
	case increase < 200*time.Millisecond:
		return GradeC
	case increase < 400*time.Millisecond:
		return GradeD
	}
	return GradeF
}

// Worse returns the worse of two grades; no grade ("") is better than any.
func Worse(a, b string) string {
	if rank(a) >= rank(b) {
		return a
	}
	return b
}

func rank(g string) int {
	for i, h := range []string{"", GradeAPlus, GradeA, GradeB, GradeC, GradeD, GradeF} {
		if g == h {
			return i
		}
	}
	return -1
}

// Meta is what a Test says of itself besides its phases.
type Meta struct {
	Time   string // RFC 3339
	Label  string
	Server string
	Probe  string // what the graded probes are, where they are not the server's own
	// Requests says that the graded probes are requests over TCP, which repeats
	// what is lost.
	Requests bool
}

// Judge evaluates the phases of one run, the idle one first, and passes
// judgement: valid or not, grades, and one sentence.
func Judge(m Meta, raws []Raw) *Test {
	t := &Test{Schema: TestSchema, Time: m.Time, Label: m.Label, Server: m.Server, Probe: m.Probe, InvalidReasons: []string{}}
	if len(raws) == 0 || raws[0].Name != PhaseIdle {
		t.Spoil(reason.Terminal, reason.Of(reason.NoIdlePhase))
		return t
	}
	base, origin := NewBaseline(raws[0]), raws[0].Start
	phases, worst := make([]*Phase, len(raws)), 0.0
	for i, raw := range raws {
		phases[i] = Evaluate(raw, base, origin)
		if raw.Name != PhaseIdle {
			worst = max(worst, phases[i].Latency.IncreaseMs.P95)
		}
	}
	for i, raw := range raws {
		p := phases[i]
		switch raw.Name {
		case PhaseIdle:
			t.Idle = p
		case PhaseDownload:
			t.Download = p
		case PhaseUpload:
			t.Upload = p
		case PhaseBoth:
			t.Both = p
		case PhaseLoaded:
			t.Loaded = p
		}
		most := MostLateness(MaxLatenessMs, p.Latency.IncreaseMs.P95)
		if raw.Name == PhaseIdle {
			most = MostLateness(MaxLatenessMs, worst) // what it is compared with
		}
		t.Reasons = append(t.Reasons, invalid(raw, p, most)...)
		remarks := raw.Notes
		if late := p.ProbeLatenessMs.P99; late > MaxLatenessMs && late <= most {
			remarks = append(slices.Clip(remarks), reason.Of(reason.LatenessBound, "p99_ms", late).In(raw.Name))
		}
		if raw.CPUUnknown != "" {
			remarks = append([]reason.Reason{reason.Of(reason.CPUNotJudged, "why", raw.CPUUnknown)}, remarks...)
		}
		for _, n := range remarks {
			if !slices.Contains(t.Notes, n.Text(reason.English(), reason.Terminal)) {
				t.Remark(n)
			}
		}
		if raw.Name != PhaseIdle {
			if p.RPM > 0 && (t.RPM == 0 || p.RPM < t.RPM) {
				t.RPM = p.RPM
			}
			if p.Voice != nil && (t.Voice == nil || p.Voice.R < t.Voice.R) {
				t.Voice = p.Voice
			}
		}
	}
	if m.Requests {
		t.Remark(reason.Of(reason.RequestsAsProbes, "probe", m.Probe))
	}
	if t.Spoil(reason.Terminal); t.Valid {
		t.GradeDown, t.GradeUp = GradeOf(t.Download), GradeOf(t.Upload)
		t.Outcomes = outcomes(t)
		for _, p := range t.Phases() {
			if p.Name != PhaseIdle {
				t.Grade = Worse(t.Grade, GradeOf(p.Phase))
			}
		}
	}
	t.Verdict = t.Sentence(reason.English(), reason.Terminal)
	return t
}

// GradeOf returns the grade of a loaded phase's 95th percentile; "" of none.
func GradeOf(p *Phase) string {
	if p == nil {
		return ""
	}
	return Grade(unit.FromMs(p.Latency.IncreaseMs.P95))
}

// Shares of lost probes from which on the sentence speaks of them. The grade is
// of delay alone; it must not be read as all being well.
const (
	noticeableLoss = 0.01
	audibleLoss    = 0.05
)

func lossiest(t *Test) (worst NamedPhase) {
	for _, p := range t.Phases() {
		if p.Name != PhaseIdle && (worst.Phase == nil || p.Latency.Loss > worst.Latency.Loss) {
			worst = p
		}
	}
	return worst
}

// ms prints milliseconds with three significant digits.
func ms(v float64) string { return reason.English().Ms(v) }
