package verdict

import (
	"slices"
	"time"

	"unbloat/internal/measure/probe"
	"unbloat/reason"
	"unbloat/unit"
)

// Bounds of validity. A measurement beyond one of them says something about
// the machine or the line's other users, not about the line's queues.
const (
	MaxCPU         = 0.85 // busiest processor
	MaxLatenessMs  = 1.0  // p99 of probes leaving late, or …
	latenessOf     = 0.02 // … as a share of the p95 increase if that is more: it is what the figures are wrong by
	MinSamples     = 30   // answered, per phase
	MaxRise        = 1.25 // last third's goodput over the first third's
	MinBusy        = 0.90 // share of time for which senders had data to send
	MaxHeldBack    = 0.50 // share of it for which an end's buffers held them back
	idleSpreadMs   = 30.0 // p90 over p50 of the idle round trip, or …
	idleSpreadOf   = 0.5  // … as a share of p50 if that is more
	standingQueue  = 5.0  // ms of median one-way increase that prove a queue
	minThirdLength = time.Second
)

// load is how well one direction of a phase was loaded.
type load struct {
	name        string
	flows       int
	goodput     float64 // bit/s, as the next
	first, last float64 // goodput of the first and the last third
	long        bool    // the thirds are long enough to be compared
	known       bool    // whether the system reports what follows
	busy        float64
	heldBack    float64
	retransmits int64
	queueMs     float64 // median one-way increase
}

// load gathers what shows whether the two directions were full.
func (raw *Raw) load(p *Phase) (down, up load) {
	down = raw.direction("down", raw.Down, raw.DownSenders)
	up = raw.direction("up", raw.Up, raw.UpSenders)
	down.queueMs, up.queueMs = p.Latency.DownMs.P50, p.Latency.UpMs.P50
	return down, up
}

func (raw *Raw) direction(name string, flows []Series, senders [][]probe.SenderSample) load {
	l := load{name: name, flows: len(flows), goodput: Goodput(flows, raw.From, raw.To), known: len(senders) > 0}
	third := raw.To.Sub(raw.From) / 3
	l.long = third >= minThirdLength
	l.first = max(Goodput(flows, raw.From, raw.From.Add(third)), arrived(senders, raw.From, raw.From.Add(third)))
	l.last = max(Goodput(flows, raw.To.Add(-third), raw.To), arrived(senders, raw.To.Add(-third), raw.To))
	var able, busy, held float64 // seconds, summed over flows
	for _, group := range senders {
		a, b, ok := around(group, raw.From, raw.To)
		l.known = l.known && ok
		able += b.At.Sub(a.At).Seconds() * float64(b.Flows)
		busy += (b.Busy - a.Busy).Seconds()
		held += (b.RwndLimited + b.BufLimited - a.RwndLimited - a.BufLimited).Seconds()
		l.retransmits += b.Retransmits - a.Retransmits
	}
	if able > 0 && busy > 0 {
		l.busy, l.heldBack = busy/able, held/busy
	}
	return l
}

// unsaturated says why the load did not fill the line, or nil if it did. Full
// means that the senders always had data to send, that the rate did not rise
// any more, and that it was the network that held them back: their congestion
// windows did, or a queue stood, or packets were lost, and not merely the
// buffers of an end.
func (l *load) unsaturated() *reason.Reason {
	why := func(code reason.Code, args ...any) *reason.Reason {
		r := reason.Of(code, append([]any{"direction", l.name}, args...)...)
		return &r
	}
	switch {
	case l.flows == 0:
		return nil
	case l.goodput <= 0:
		return why(reason.NothingArrived)
	case l.long && l.last > l.first*MaxRise:
		return why(reason.RateRising, "first_bps", l.first, "last_bps", l.last)
	case l.known && l.busy < MinBusy:
		return why(reason.SendersIdle, "busy", l.busy)
	case l.known && l.heldBack > MaxHeldBack && l.retransmits <= 0 && l.queueMs < standingQueue:
		return why(reason.SendersHeldBack, "held", l.heldBack)
	}
	return nil
}

// MostLateness is how late probes may leave, in ms, where the round trip rises by so
// much: what is late is what the figures may be wrong by. least is always allowed.
func MostLateness(least, increaseMs float64) float64 { return max(least, latenessOf*increaseMs) }

// Certain says what is true of a test that is not valid: by how much the round
// trip rose at least. nil if nothing is, or if the test is valid.
func (t *Test) Certain() *reason.Reason {
	least, in := t.certain()
	if in == "" {
		return nil
	}
	code := reason.CertainRise
	if Grade(unit.FromMs(least)) == GradeF {
		code = reason.CertainF
	}
	r := reason.Of(code, "in", in, "ms", least)
	return &r
}

// CertainMs is the rise that Certain tells of.
func (t *Test) CertainMs() (ms float64, known bool) {
	least, in := t.certain()
	return least, in != ""
}

// certain returns by how much the round trip rose at least, and in which phase; "" if
// nothing is certain.
func (t *Test) certain() (least float64, in string) {
	if t.Valid || t.Idle == nil {
		return 0, ""
	}
	for _, r := range t.Reasons { // what was compared with what is not known then
		if r.Code == reason.ClockSet || r.Code == reason.PathChanged || r.Code == reason.NoIdlePhase {
			return 0, ""
		}
	}
	idle := t.Idle.Latency.RTTMs
	for _, p := range t.Phases() {
		if p.Name == PhaseIdle || p.Latency.Received < MinSamples {
			continue
		}
		rose := p.Latency.IncreaseMs.P50 - max(0, idle.P90-idle.P50) - p.ProbeLatenessMs.P99 - t.Idle.ProbeLatenessMs.P99
		if rose > least {
			least, in = rose, p.Name
		}
	}
	if least < certainMs {
		return 0, ""
	}
	return least, in
}

// certainMs is the rise below which nothing is said of an invalid test.
const certainMs = 30.0

// invalid returns why a phase must not be believed. mostLate is how late its
// probes may leave, in ms.
func invalid(raw Raw, p *Phase, mostLate float64) []reason.Reason {
	var why []reason.Reason
	add := func(code reason.Code, args ...any) { why = append(why, reason.Of(code, args...).In(raw.Name)) }
	if p.CPU > MaxCPU {
		add(reason.CPUBusy, "busy", p.CPU, "most", MaxCPU)
	}
	if p.ServerCPU > MaxCPU {
		add(reason.ServerCPUBusy, "busy", p.ServerCPU, "most", MaxCPU)
	}
	if p.ProbeLatenessMs.P99 > mostLate {
		add(reason.ProbesLate, "p99_ms", p.ProbeLatenessMs.P99, "most_ms", mostLate)
	}
	if p.Latency.Received < MinSamples {
		add(reason.TooFewProbes, "received", p.Latency.Received, "sent", p.Latency.Sent, "least", MinSamples)
	}
	if raw.ClockSteps > 0 {
		add(reason.ClockSet, "count", raw.ClockSteps)
	}
	if raw.PathChanges > 0 {
		add(reason.PathChanged, "count", raw.PathChanges)
	}
	for _, r := range []*reason.Reason{tooManyOthers(p), p.Radio.bottleneck()} {
		if r != nil {
			why = append(why, r.In(raw.Name))
		}
	}
	if n := len(raw.Broken); n > 0 {
		add(reason.FlowsBroken, "count", n, "error", raw.Broken[0])
	}
	if raw.Name == PhaseIdle {
		q := p.Latency.RTTMs
		if spread := q.P90 - q.P50; spread > max(idleSpreadMs, idleSpreadOf*q.P50) {
			add(reason.IdleUnsteady, "p50_ms", q.P50, "p90_ms", q.P90)
		}
	}
	if causes := notFull(raw, p); len(causes) > 0 {
		r := reason.Of(reason.LoadNotFull).In(raw.Name)
		r.Causes = causes
		why = append(why, r)
	}
	return why
}

// OnlyUnsaturated reports whether all that speaks against the test is that loads
// did not fill the line, or not yet: what it measured is true of the time in
// which it was measured, and proves nothing beyond. It is false of a valid test.
func (t *Test) OnlyUnsaturated() bool {
	return !t.Valid && !slices.ContainsFunc(t.Reasons, func(r reason.Reason) bool { return r.Code != reason.LoadNotFull })
}

// Spoil makes the test invalid for further reasons, which come first, and words
// all of them for where they are shown.
func (t *Test) Spoil(where reason.Surface, more ...reason.Reason) {
	t.Reasons = append(more, t.Reasons...)
	if t.Valid = len(t.Reasons) == 0; t.Valid {
		return
	}
	t.Grade, t.GradeDown, t.GradeUp = "", "", ""
	t.InvalidReasons = t.InvalidReasons[:0]
	for _, r := range t.Reasons {
		t.InvalidReasons = append(t.InvalidReasons, r.Text(reason.English(), where))
	}
	t.Verdict = t.Sentence(reason.English(), where)
}

// notFull says why a greedy phase did not fill the line. When both directions
// are loaded one full direction is enough: a full uplink may starve the other
// one of acknowledgements, which is an effect of the queue that is measured.
func notFull(raw Raw, p *Phase) []reason.Reason {
	if !raw.Greedy {
		return nil
	}
	var why []reason.Reason
	for _, u := range raw.unsaturated(p) {
		why = append(why, u.Reason)
	}
	if loaded := min(p.FlowsDown, 1) + min(p.FlowsUp, 1); len(why) < loaded {
		return nil // one is full
	}
	return why
}
