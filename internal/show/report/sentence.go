package report

import (
	"math"
	"strings"

	"unbloat/internal/measure/verdict"
	"unbloat/reason"
)

// outcome is how an after compares with its before.
type outcome int

const (
	unknown outcome = iota // nothing to compare, or a measurement is invalid
	better
	same
	worse
)

// Two latencies count as the same when they differ by less than a tenth, or by
// less than 2 ms, as verdict.Compare has it; two speeds when they differ by less
// than a twentieth. One run each cannot show a smaller difference; `unbloat
// prove` can.
const (
	sameLatency   = 0.10
	sameLatencyMs = 2.0
	sameSpeed     = 0.05
)

// finite reports whether v is a figure at all.
func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// compareLatency judges b against a, in ms; less is better.
func compareLatency(a, b float64) outcome {
	switch {
	case !finite(a) || !finite(b):
		return unknown
	case math.Abs(a-b) < max(sameLatencyMs, sameLatency*math.Abs(a)):
		return same
	case b < a:
		return better
	}
	return worse
}

// compareSpeed judges b against a, in bit/s; more is better.
func compareSpeed(a, b float64) outcome {
	switch {
	case !finite(a) || !finite(b) || a <= 0 && b <= 0:
		return unknown
	case math.Abs(a-b) < sameSpeed*a:
		return same
	case b > a:
		return better
	}
	return worse
}

// added returns the p95 increase over idle of a phase in ms, NaN when nothing was answered.
func added(p *verdict.Phase) float64 {
	if p == nil || p.Latency.Received <= 0 {
		return math.NaN()
	}
	return max(0, p.Latency.IncreaseMs.P95)
}

// worstPhase returns the loaded phase whose added latency is worst. Phases
// without any answer count as worst of all.
func worstPhase(t *verdict.Test) (name string, p *verdict.Phase) {
	for _, q := range t.Phases() {
		if q.Name == verdict.PhaseIdle {
			continue
		}
		a, b := added(q.Phase), added(p)
		if p == nil || math.IsNaN(a) && !math.IsNaN(b) || a > b {
			name, p = q.Name, q.Phase
		}
	}
	return name, p
}

// speeds returns the goodput of the phases that measure it, in bit/s; NaN if none did.
func speeds(t *verdict.Test) (down, up float64) {
	down, up = math.NaN(), math.NaN()
	for _, name := range []string{verdict.PhaseLoaded, verdict.PhaseBoth, verdict.PhaseDownload} {
		if p := phase(t, name); p != nil && p.GoodputDownBps > 0 {
			down = p.GoodputDownBps
		}
	}
	for _, name := range []string{verdict.PhaseLoaded, verdict.PhaseBoth, verdict.PhaseUpload} {
		if p := phase(t, name); p != nil && p.GoodputUpBps > 0 {
			up = p.GoodputUpBps
		}
	}
	return down, up
}

// Sentence says what changed from before to after in words a person
// understands; with one of them nil, it says what the other shows.
func Sentence(before, after *verdict.Test) string {
	s, _ := english().compare(before, after)
	return s
}

// compare returns the sentence and the outcome it states.
func (l language) compare(before, after *verdict.Test) (string, outcome) {
	if before == nil || after == nil {
		return l.single(before, after), unknown
	}
	if s := l.invalid(before, after); s != "" {
		return s, unknown
	}
	name, p := worstPhase(before)
	q := phase(after, name)
	a, b := added(p), added(q)
	o := compareLatency(a, b)
	if o == unknown {
		return l.Say(reason.Incomparable) + l.incomparable(name, p, q), unknown
	}
	s := ""
	switch o {
	case same:
		s = l.Say(reason.HardlyChanged)
	case worse:
		s = l.Say(reason.GotWorse)
	}
	s += l.Say(reason.CallsWaited, "while", whileName(name), "before", l.shortMs(a), "after", l.shortMs(b))
	s += l.speedWords(before, after) + "."
	if n, r, w := regressed(before, after, name); n != "" {
		code := reason.ButRose
		if o == worse {
			code = reason.AlsoRose
		}
		s += l.Say(code, "while", whileName(n), "before", l.shortMs(r), "after", l.shortMs(w))
		if o == same {
			o = worse
		}
	}
	return capital(s), o
}

// single is the sentence for one test.
func (l language) single(before, after *verdict.Test) string {
	t := after
	if t == nil {
		t = before
	}
	if t == nil {
		return l.Say(reason.NothingMeasured)
	}
	if !t.Valid {
		return l.Say(reason.IsInvalid, "why", l.reasons(t))
	}
	if v := clean(t.VerdictIn(l.Language, reason.Terminal)); v != "" {
		return v
	}
	name, p := worstPhase(t)
	if a := added(p); !math.IsNaN(a) {
		return capital(l.Say(reason.CallsWaitedOnce, "while", whileName(name), "added", l.shortMs(a)))
	}
	return l.Say(reason.NoLatencyMeasured)
}

// invalid says which of the two measurements proves nothing, and why.
func (l language) invalid(before, after *verdict.Test) string {
	switch {
	case !before.Valid && !after.Valid:
		return l.Say(reason.BothInvalid, "before", l.reasons(before), "after", l.reasons(after))
	case !before.Valid:
		return l.Say(reason.BeforeInvalid, "why", l.reasons(before))
	case !after.Valid:
		return l.Say(reason.AfterInvalid, "why", l.reasons(after))
	}
	return ""
}

// reasons joins why a test is invalid.
func (l language) reasons(t *verdict.Test) string { return strings.Join(l.listReasons(t), "; ") }

// listReasons returns why a test is invalid, at least one reason.
func (l language) listReasons(t *verdict.Test) (out []string) {
	for _, r := range t.WhyInvalid(l.Language, reason.Terminal) {
		if r = strings.TrimSuffix(clean(r), "."); r != "" {
			out = append(out, r)
		}
	}
	if len(out) == 0 {
		return []string{l.Say(reason.NoReasonKept)}
	}
	return out
}

func (l language) incomparable(name string, before, after *verdict.Phase) string {
	code := reason.NoAnswerAfter
	switch {
	case before == nil:
		code = reason.NoLoadBefore
	case after == nil:
		code = reason.OnlyBefore
	case before.Latency.Received <= 0 && after.Latency.Received <= 0:
		code = reason.NoAnswerEither
	case before.Latency.Received <= 0:
		code = reason.NoAnswerBefore
	}
	return l.Say(code, "while", whileName(name))
}

// regressed returns another loaded phase that got worse, the worst of them.
func regressed(before, after *verdict.Test, but string) (name string, was, is float64) {
	for _, p := range before.Phases() {
		if p.Name == but || p.Name == verdict.PhaseIdle {
			continue
		}
		a, b := added(p.Phase), added(phase(after, p.Name))
		if compareLatency(a, b) == worse && b > is {
			name, was, is = p.Name, a, b
		}
	}
	return name, was, is
}

// speedWords tells the speeds, before → after, and says so when one was lost.
func (l language) speedWords(before, after *verdict.Test) string {
	d1, u1 := speeds(before)
	d2, u2 := speeds(after)
	s := ""
	if !math.IsNaN(d1 + d2) {
		s += l.Say(reason.DownloadSpeed, "speeds", fromTo(l.speed(d1), l.speed(d2))) + l.drop(d1, d2)
	}
	if !math.IsNaN(u1 + u2) {
		s += l.Say(reason.UploadSpeed, "speeds", fromTo(l.speed(u1), l.speed(u2))) + l.drop(u1, u2)
	}
	return s
}

// drop says by how much a speed fell, when that is more than noise.
func (l language) drop(a, b float64) string {
	if compareSpeed(a, b) != worse {
		return ""
	}
	return l.Say(reason.SpeedLost, "lost", (a-b)/a)
}

// fromTo prints a change from a to b. A unit that both have is printed once.
func fromTo(a, b quantity) string { return a.before(b) + " → " + b.String() }
