package phases

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/verdict"
	"unbloat/reason"
	"unbloat/unit"
)

// A Tester is an open session with a test server, whatever protocol it speaks.
// *Client and *PhaseRunner are.
type Tester interface {
	Server() string    // as it is reported
	Now() unit.Instant // of the clock that phases and loads are timed by
	Phase(context.Context, PhaseSpec) (*RawPhase, error)
	// Open opens flows that are no phase's, for who measures by other means. It is
	// Source.Open: nothing flows yet.
	Open(context.Context, []FlowSpec) (Load, error)
	Judge(label string, raws []RawPhase) *verdict.Test
	Close() error
}

// A Source is what a protocol brings to a PhaseRunner: probes and load.
type Source interface {
	// Probe returns the stream of probes that runs through all phases, and
	// starts it if it does not run yet. The PhaseRunner closes it.
	Probe(context.Context) (Prober, error)
	// Open opens the flows of one phase; nothing flows yet. A server that takes
	// no load returns an error that wraps ErrNoLoad.
	Open(context.Context, []FlowSpec) (Load, error)
	Close() error
}

// A Prober is a running stream of isochronous latency probes.
type Prober interface {
	Probes
	// Resolve asks the other end what became of the newest probes, where it can tell.
	Resolve(context.Context) error
	// Steps returns how often this machine's clock was set so far.
	Steps() int
	Close() error
}

// A Load is the open flows of one phase.
type Load interface {
	Begin(context.Context) (unit.Instant, error) // makes them flow
	Moved(Direction) int64                       // bytes so far, as far as this end knows
	Stop(context.Context) ([]FlowReport, error)  // ends them; one report a direction
	Abandon()                                    // ends them at once, at any time
}

// RunnerOptions are those of a PhaseRunner, whatever the protocol.
type RunnerOptions struct {
	Server    string           // as it is to be reported
	Interval  time.Duration    // of the probes
	Probe     string           // what they are, if not the server's own, such as "icmp 192.0.2.1"
	Requests  bool             // the probes are requests over TCP, which repeats what is lost
	Peer      netip.Addr       // the server's address, where it is known: its interface's counters are watched
	Secondary []SecondaryProbe // further probes; the PhaseRunner closes them
}

// A SecondaryProbe is a stream of probes that runs with the one that is graded.
type SecondaryProbe struct {
	Name     string // such as "icmp 192.0.2.1"
	Interval time.Duration
	Prober   Prober
	Requests bool // they are requests over TCP, which repeats what is lost
}

// A PhaseRunner runs phases against any Source. Its methods are not for concurrent use.
type PhaseRunner struct {
	clock   *netio.Clock
	options RunnerOptions
	source  Source

	settling Settling

	mu     sync.Mutex
	prober Prober
}

// NewPhaseRunner returns a PhaseRunner that owns source.
func NewPhaseRunner(clock *netio.Clock, source Source, o RunnerOptions) *PhaseRunner {
	return &PhaseRunner{clock: clock, options: o, source: source, settling: Settling{Interval: o.Interval}}
}

// Server returns the server's address as it is reported.
func (l *PhaseRunner) Server() string { return l.options.Server }

// Now returns the time of the clock that phases and loads are timed by.
func (l *PhaseRunner) Now() unit.Instant { return l.clock.Now() }

// Open opens flows that are no phase's: see Source.Open.
func (l *PhaseRunner) Open(ctx context.Context, specs []FlowSpec) (Load, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, openLimit, fmt.Errorf("the flows were not open within %v", openLimit))
	defer cancel()
	return l.source.Open(ctx, specs)
}

// openLimit bounds the opening of all flows of a load: a server that answers each
// step just in time would take hours.
const openLimit = 5 * time.Minute

// Close ends the probes and the session.
func (l *PhaseRunner) Close() error {
	l.silence()
	for _, b := range l.options.Secondary {
		_ = b.Prober.Close()
	}
	return l.source.Close()
}

// Judge grades the phases of one run, of which the idle one is the first.
func (l *PhaseRunner) Judge(label string, raws []RawPhase) *verdict.Test {
	m := verdict.Meta{Label: label, Server: l.options.Server, Probe: l.options.Probe, Requests: l.options.Requests}
	if len(raws) > 0 {
		m.Time = l.clock.Time(raws[0].Start).UTC().Format(time.RFC3339)
	}
	return verdict.Judge(m, raws)
}

// probing returns the stream of probes that runs through all phases.
func (l *PhaseRunner) probing(ctx context.Context) (Prober, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.prober != nil {
		return l.prober, nil
	}
	p, err := l.source.Probe(ctx)
	if err != nil {
		return nil, err
	}
	l.prober = p
	return p, nil
}

// silence ends the stream of probes, which would be others' traffic for what is measured next;
// the next phase begins another.
func (l *PhaseRunner) silence() {
	l.mu.Lock()
	p := l.prober
	l.prober = nil
	l.mu.Unlock()
	if p != nil {
		_ = p.Close() // it has told all that phases asked for
	}
}

// counter watches the interface towards the server. Its zero value knows nothing.
func (l *PhaseRunner) counter() *netio.Counter {
	c, err := netio.NewCounter(l.clock, l.options.Peer)
	if err != nil {
		return &netio.Counter{} // others' traffic is then not judged
	}
	return c
}

// radio watches the wireless interface towards the server; nil where there is none.
func (l *PhaseRunner) radio() *netio.RadioWatch {
	w, err := netio.WatchRadio(l.clock, l.options.Peer)
	if err != nil {
		return nil // a cable, or a system that does not tell
	}
	return w
}

// fileRadio files what was heard of a radio under its phase.
func fileRadio(raw *RawPhase, w *netio.RadioWatch) {
	if w == nil {
		return
	}
	raw.RadioName = w.Name()
	for _, s := range w.Stop() {
		raw.Radio = append(raw.Radio, verdict.RadioSample(s))
	}
	if len(raw.Radio) > 0 {
		raw.Notes = append(raw.Notes, reason.Of(reason.OverWiFi))
	}
}

// pathChanges returns how often the answers' hop count changed, where the
// prober tells.
func pathChanges(p Prober) int {
	if w, ok := p.(interface{ PathChanges() int }); ok {
		return w.PathChanges()
	}
	return 0
}
