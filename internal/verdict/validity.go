package verdict

import (
	"fmt"
	"strings"
	"time"

	"unbloat/internal/probe"
	"unbloat/unit"
)

// Bounds of validity. A measurement beyond one of them says something about
// the machine or the line's other users, not about the line's queues.
const (
	MaxCPU         = 0.85 // busiest processor
	MaxLatenessMs  = 1.0  // p99 of probes leaving late
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
	known       bool    // whether the system tells what follows
	busy        float64
	heldBack    float64
	retransmits int64
	queueMs     float64 // median one-way increase
}

// load gathers what tells whether the two directions were full.
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

// unsaturated says why the load did not fill the line, or "" if it did. Full
// means that the senders always had data to send, that the rate did not rise
// any more, and that it was the network that held them back: their congestion
// windows did, or a queue stood, or packets were lost, and not merely the
// buffers of an end.
func (l *load) unsaturated() string {
	switch {
	case l.flows == 0:
		return ""
	case l.goodput <= 0:
		return fmt.Sprintf("nothing arrived in the %s direction", l.name)
	case l.long && l.last > l.first*MaxRise:
		return fmt.Sprintf("the %s rate was still rising (%s, later %s); a longer test (--seconds) settles",
			l.name, unit.Rate(l.first).Short(), unit.Rate(l.last).Short())
	case l.known && l.busy < MinBusy:
		return fmt.Sprintf("the %s senders had data in flight for only %.0f %% of the time", l.name, 100*l.busy)
	case l.known && l.heldBack > MaxHeldBack && l.retransmits <= 0 && l.queueMs < standingQueue:
		return fmt.Sprintf("the %s senders were held back by their own buffers for %.0f %% of the time, not by the line; more flows (--flows) fill it",
			l.name, 100*l.heldBack)
	}
	return ""
}

// invalid returns why a phase must not be believed.
func invalid(raw Raw, p *Phase) []string {
	var why []string
	add := func(format string, args ...any) {
		why = append(why, raw.Name+": "+fmt.Sprintf(format, args...))
	}
	if p.CPU > MaxCPU {
		add("this machine's busiest processor was %.0f %% busy (at most %.0f %%), so it measured itself", 100*p.CPU, 100*MaxCPU)
	}
	if p.ServerCPU > MaxCPU {
		add("the server's busiest processor was %.0f %% busy (at most %.0f %%)", 100*p.ServerCPU, 100*MaxCPU)
	}
	if p.ProbeLatenessMs.P99 > MaxLatenessMs {
		add("probes left late (p99 %.2f ms, at most %.0f ms): this machine was too busy", p.ProbeLatenessMs.P99, MaxLatenessMs)
	}
	if p.Latency.Received < MinSamples {
		add("only %d of %d probes were answered in time to be counted (at least %d are needed)", p.Latency.Received, p.Latency.Sent, MinSamples)
	}
	if raw.ClockSteps > 0 {
		add("this machine's clock was set %s meanwhile", times(raw.ClockSteps))
	}
	if raw.PathChanges > 0 {
		add("the path to the server changed %s meanwhile (by the answers' hop count)", times(raw.PathChanges))
	}
	if reason := tooManyOthers(p); reason != "" {
		add("%s", reason)
	}
	if reason := p.Radio.bottleneck(); reason != "" {
		add("%s", reason)
	}
	if n := len(raw.Broken); n > 0 {
		add("%d flows broke off: %s", n, raw.Broken[0])
	}
	if raw.Name == PhaseIdle {
		q := p.Latency.RTTMs
		if spread := q.P90 - q.P50; spread > max(idleSpreadMs, idleSpreadOf*q.P50) {
			add("the round trip was unsteady (p50 %.1f ms, p90 %.1f ms): something else uses the line", q.P50, q.P90)
		}
	}
	if reason := notFull(raw, p); reason != "" {
		add("%s%s", whyNotFull, reason)
	}
	return why
}

// whyNotFull begins the reason for which a load that did not fill the line is
// not to be believed, after the phase's name.
const whyNotFull = "the line was not full, which proves nothing: "

// OnlyUnfilled reports whether all that speaks against the test is that loads
// did not fill the line, or not yet: what it measured is true of the time in
// which it was measured, and proves nothing beyond. It is false of a valid test.
func (t *Test) OnlyUnfilled() bool {
	for _, why := range t.InvalidReasons {
		if _, why, _ = strings.Cut(why, ": "); !strings.HasPrefix(why, whyNotFull) {
			return false
		}
	}
	return !t.Valid
}

// notFull says why a greedy phase did not fill the line. When both directions
// are loaded one full direction is enough: a full uplink may starve the other
// one of acknowledgements, which is an effect of the queue that is measured.
func notFull(raw Raw, p *Phase) string {
	if !raw.Greedy {
		return ""
	}
	var why []string
	for _, u := range raw.unfilled(p) {
		why = append(why, u.Why)
	}
	if loaded := min(p.FlowsDown, 1) + min(p.FlowsUp, 1); len(why) < loaded {
		return "" // one is full
	}
	return strings.Join(why, "; ")
}

// times says how often something happened.
func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
