package terminal

import (
	"slices"
	"time"

	"unbloat/internal/cure/tune"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/verdict"
	"unbloat/unit"
)

// A Line is what is known of a test, or of a tuning, while it runs.
type Line struct {
	title    string
	server   string
	expected []string      // names of the phases to come, of a test
	length   time.Duration // of the whole, about
	most     bool          // length is a bound, not a guess
	log      bool          // latencies are drawn on a logarithmic axis

	phases []*phase
	rtts   []point // ms, by when the answer came
	down   []point // Mbit/s
	up     []point
	rtt    time.Duration // newest
	tuning *tune.Stage   // newest; nil: this is a test
	ending string
}

// phase is one stretch of the measurement.
type phase struct {
	name     string
	began    time.Duration // since the view began
	event    phases.Event  // newest
	answers  []time.Duration
	downSum  float64 // bit/s, over counted events
	upSum    float64
	counted  int
	figures  verdict.Quantiles
	computed int // how many answers the figures are of
}

// NewTest returns the view of a test, runs times the four phases.
func NewTest(server string, idle, load time.Duration, runs int) *Line {
	names := verdict.PhaseNames()
	return &Line{
		title: "unbloat test", server: clean(server), expected: names,
		length: time.Duration(max(runs, 1)) * (idle + 3*load),
	}
}

// NewTune returns the view of a tuning, which takes at most most.
func NewTune(server string, most time.Duration) *Line {
	return &Line{title: "unbloat tune", server: clean(server), length: most, most: true, log: true}
}

// Observe adds an event of a phase, at a time since the view began.
func (l *Line) Observe(now time.Duration, e phases.Event) {
	p := l.current()
	if p == nil || e.Phase != p.name || e.Elapsed < p.event.Elapsed {
		p = &phase{name: e.Phase, began: max(0, now-time.Duration(e.Elapsed))}
		l.phases = append(l.phases, p)
	}
	p.event = e
	for _, a := range e.Answers {
		l.rtt = time.Duration(a.RTT)
		l.rtts = append(l.rtts, point{min(p.began+time.Duration(a.Sent)+l.rtt, now), unit.Ms(l.rtt)})
		if a.Sent >= e.Head {
			p.answers = append(p.answers, l.rtt)
		}
	}
	if e.Draining || e.Elapsed == 0 {
		return
	}
	if e.FlowsDown > 0 {
		l.down = append(l.down, point{now, e.Down.Mbit()})
	}
	if e.FlowsUp > 0 {
		l.up = append(l.up, point{now, e.Up.Mbit()})
	}
	if e.Elapsed > e.Head && e.FlowsDown+e.FlowsUp > 0 {
		p.downSum, p.upSum, p.counted = p.downSum+float64(e.Down), p.upSum+float64(e.Up), p.counted+1
	}
}

// Tuning sets the newest stage of a tuning.
func (l *Line) Tuning(s tune.Stage) {
	l.tuning = &s
}

// End says that the measurement is being ended early, and why.
func (l *Line) End(why string) { l.ending = why }

func (l *Line) current() *phase {
	if len(l.phases) == 0 {
		return nil
	}
	return l.phases[len(l.phases)-1]
}

// quantiles returns the figures of the phase's counted answers so far.
func (p *phase) quantiles() verdict.Quantiles {
	if p.computed != len(p.answers) {
		p.figures = verdict.Summarise(slices.Clone(p.answers))
		p.computed = len(p.answers)
	}
	return p.figures
}

// down and up are the mean rates of the phase so far, in bit/s.
func (p *phase) down() unit.Rate { return unit.Rate(p.downSum / float64(max(p.counted, 1))) }
func (p *phase) up() unit.Rate   { return unit.Rate(p.upSum / float64(max(p.counted, 1))) }

// idle returns the newest idle phase with answers.
func (l *Line) idle() *phase {
	for _, p := range slices.Backward(l.phases) {
		if p.name == verdict.PhaseIdle && len(p.answers) > 0 {
			return p
		}
	}
	return nil
}

// over returns by how many ms v is above the idle median; false if that is unknown.
func (l *Line) over(v float64) (float64, bool) {
	if i := l.idle(); i != nil {
		return v - i.quantiles().P50, true
	}
	return 0, false
}

// newest returns the last phase of that name, nil if there was none.
func (l *Line) newest(name string) *phase {
	for _, p := range slices.Backward(l.phases) {
		if p.name == name {
			return p
		}
	}
	return nil
}
