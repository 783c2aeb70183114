// This file runs a path.Tracer with sockets, and with a load if one is asked for.
// It is `unbloat path` without flags and output.

package path

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/phases"
	"unbloat/unit"
)

// ErrInterrupted is returned where nothing had been measured when ctx ended.
// Later, an interruption ends the trace early and is noted in the result.
var ErrInterrupted = errors.New("interrupted")

// A WalkConfig says what to trace. Zero values take the defaults where one is named.
type WalkConfig struct {
	Host     string     // as it was asked for
	To       netip.Addr // what it resolved to
	Way      netio.HopWay
	Path     Config
	Size     unit.Size     // of the probes' packets; path.DefaultSize
	Idle     time.Duration // of the idle phase; DefaultIdle
	Loaded   time.Duration // of the loaded phase; DefaultLoaded
	Load     *WalkLoad     // nil: idle only
	Names    bool          // look up names by reverse DNS
	Marks    bool          // send marks too; Way must be one that hears whole ICMP messages
	HomeHops int           // how many hops belong to the home; negative: guess
	Progress func(WalkProgress)
}

// Defaults of a Config.
const (
	DefaultIdle   = 10 * time.Second
	DefaultLoaded = 20 * time.Second
)

// WalkProgress is the state of a running trace.
type WalkProgress struct {
	Phase    string
	Elapsed  time.Duration // in this phase
	Duration time.Duration
	Result   *Result // so far
}

const (
	progressEvery = 250 * time.Millisecond
	// readEvery is how often arrivals are read; the kernel has their times.
	readEvery = 20 * time.Millisecond
	// warmUp is the share of the loaded phase, and its most, that is given to the
	// load to fill the line before probes count.
	warmUpShare, warmUpMost = 4, 4 * time.Second
	// nameWait is how long the end of a trace waits for names.
	nameWait = time.Second
)

func (c WalkConfig) withDefaults() WalkConfig {
	c.Way = cmp.Or(c.Way, netio.HopAuto)
	c.Size = cmp.Or(c.Size, DefaultSize)
	if c.Idle <= 0 {
		c.Idle = DefaultIdle
	}
	if c.Loaded <= 0 {
		c.Loaded = DefaultLoaded
	}
	if c.Path.Interval <= 0 {
		c.Path.Interval = DefaultInterval
	}
	return c
}

// Walk traces the path: a round of discovery, the idle phase, and with a Load
// the loaded phase. Errors wrap netio.ErrNotAllowed, netio.ErrNotSupported,
// netio.ErrNoRoute or ErrInterrupted, or are those of package phases.
func Walk(ctx context.Context, cfg WalkConfig) (*Result, error) {
	cfg = cfg.withDefaults()
	w, err := newWalker(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("trace the path to %s: %w", cfg.Host, err)
	}
	defer w.close()
	if err := w.run(ctx); err != nil {
		return nil, fmt.Errorf("trace the path to %s: %w", cfg.Host, err)
	}
	w.tracer.Close(w.clock.Now())
	w.names.finish(ctx)
	return w.result(), nil
}

// A walker is one trace under way.
type walker struct {
	cfg    WalkConfig
	clock  *netio.Clock
	socket netio.HopSocket
	sleep  *netio.Sleeper
	stop   func() bool // stops watching ctx
	codec  Codec
	tracer *Tracer
	names  *names
	facts  Capabilities
	buf    []byte

	phase       string
	began, last unit.Instant // the phase; the last progress
	duration    time.Duration
	sent        int
	unsent      int
	unsentWhy   error
	interrupted bool
}

func newWalker(ctx context.Context, cfg WalkConfig) (*walker, error) {
	source, err := netio.SourceFor(cfg.To)
	if err != nil {
		return nil, err
	}
	w := &walker{cfg: cfg, clock: netio.NewClock()}
	if w.socket, err = netio.DialHops(w.clock, cfg.To, cfg.Way); err != nil {
		return nil, err
	}
	if w.sleep, err = netio.NewSleeper(w.clock); err != nil {
		w.socket.Close()
		return nil, err
	}
	w.names = newNames(ctx, cfg.Names)
	w.stop = context.AfterFunc(ctx, w.sleep.Close)
	way := w.socket.Way()
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails (crypto/rand)
	w.codec = Codec{
		UDP: way == netio.HopUDP, AnyID: way == netio.HopICMP, Target: cfg.To.Unmap(), Size: cfg.Size,
		ID: binary.BigEndian.Uint16(random[:]), Token: binary.BigEndian.Uint32(random[2:]),
	}
	now := w.clock.Now()
	if cfg.Marks {
		cfg.Path.Marks = classes(marks())
		w.cfg.Path.Marks = cfg.Path.Marks
	}
	w.tracer = New(cfg.Path, now)
	w.facts = Capabilities{
		Time: w.clock.Time(now), Host: cfg.Host, Target: cfg.To, Source: source, Method: string(way), Size: cfg.Size,
		Interval: cfg.Path.Interval, HomeHops: cfg.HomeHops,
	}
	return w, nil
}

func (w *walker) close() {
	w.stop()
	w.sleep.Close()
	w.socket.Close()
	w.names.close()
}

// run goes through the phases. An interruption ends it early.
func (w *walker) run(ctx context.Context) error {
	if err := w.probe("discovery", Uncounted, w.cfg.Path.Interval); err != nil {
		return err
	}
	if w.interrupted {
		return ErrInterrupted
	}
	err := w.counted("idle", Idle, w.cfg.Idle)
	if err == nil && w.cfg.Marks && !w.interrupted {
		err = w.marks(ctx)
	}
	if err != nil || w.interrupted || w.cfg.Load == nil {
		return err
	}
	return w.underLoad(ctx)
}

// marks sends each hop each mark, and the server of the load.
func (w *walker) marks(ctx context.Context) error {
	w.facts.Marked = true
	interval := w.cfg.Path.Interval
	if err := w.probe("marks", Marked, time.Duration(len(w.cfg.Path.Marks)*markRounds)*interval); err != nil {
		return err
	}
	if err := w.settle(); err != nil || w.interrupted {
		return err
	}
	var err error
	w.facts.Server, err = w.ask(ctx, marks(), markEach)
	return w.unless(ctx, err)
}

// ask asks the server of the load, if it can tell, with which marks packets come. It only reads w.
func (w *walker) ask(ctx context.Context, of []mark, each int) ([]ServerMark, error) {
	if w.cfg.Load == nil {
		return nil, nil
	}
	client, can := w.cfg.Load.Client.(phases.Marker)
	if !can {
		return nil, nil
	}
	seen, err := client.Marks(ctx, classes(of), each, markGap)
	if err != nil {
		return nil, err
	}
	return serverMarks(of, seen), nil
}

// underLoad runs the loaded phase, warm-up first.
func (w *walker) underLoad(ctx context.Context) error {
	l := w.cfg.Load
	warmUp := min(w.cfg.Loaded/warmUpShare, warmUpMost)
	if err := l.start(ctx, warmUp+w.cfg.Loaded); err != nil {
		return w.unless(ctx, err)
	}
	err := w.probe("warm-up", Uncounted, warmUp)
	from := l.Client.Now()
	to := from.Add(w.cfg.Loaded)
	if err == nil && !w.interrupted {
		w.facts.Load = l.report()
		asked := w.askMeanwhile(ctx)
		err = errors.Join(w.counted(l.phaseName(), Loaded, w.cfg.Loaded), asked())
		to = min(to, l.Client.Now())
	}
	report, stopErr := l.stop(ctx, from, to)
	if err != nil || stopErr != nil {
		return w.unless(ctx, errors.Join(err, stopErr))
	}
	if w.facts.Load != nil { // the phase began
		w.facts.Load = report
	}
	return nil
}

// askMeanwhile asks the server for the marks that queues set, for as long as the loaded phase
// lasts, and returns what waits for that.
func (w *walker) askMeanwhile(ctx context.Context) (wait func() error) {
	if !w.cfg.Marks {
		return func() error { return nil }
	}
	of, done := underLoad(), make(chan error, 1)
	var found []ServerMark
	go func() {
		var err error
		found, err = w.ask(ctx, of, int(w.cfg.Loaded/markGap)/len(of))
		done <- err
	}()
	return func() error {
		err := <-done
		w.facts.Marks = found
		return err
	}
}

// unless drops an error that an interruption caused.
func (w *walker) unless(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	w.interrupted = true
	return nil
}

// counted runs a phase whose probes count, and waits for the answers under way.
func (w *walker) counted(name string, p Phase, d time.Duration) error {
	cpu := netio.NewCPUMeter()
	if err := w.probe(name, p, d); err != nil {
		return err
	}
	w.facts.Lateness = append(w.facts.Lateness, w.tracer.Lateness(p)...)
	if busy, err := cpu.Busiest(); err == nil { // where the load is not known, it does not count against the trace
		w.facts.CPU = max(w.facts.CPU, busy)
	}
	return w.settle()
}

// probe sends the probes of a phase.
func (w *walker) probe(name string, p Phase, d time.Duration) error {
	now := w.clock.Now()
	w.phase, w.began, w.duration = name, now, d
	w.tracer.Begin(p, now)
	end := now.Add(d)
	for {
		now := w.clock.Now()
		if err := w.read(); err != nil {
			return err
		}
		if !now.Before(end) {
			return nil
		}
		next := w.send(now)
		if p == Uncounted && w.sent == 0 && w.unsentWhy != nil {
			return w.unsentWhy // not one probe can leave
		}
		w.report(now)
		if !w.sleep.Until(min(next, now.Add(readEvery), end)) {
			w.interrupted = true
			return nil
		}
	}
}

// send sends what is due, and returns when more is.
func (w *walker) send(now unit.Instant) unit.Instant {
	for {
		p, due, next := w.tracer.Poll(now)
		if !due {
			return next
		}
		w.buf = w.codec.Append(w.buf[:0], p.Seq)
		err := w.socket.Mark(p.Class)
		if err == nil {
			err = w.socket.Send(p.TTL, w.codec.Port(p.Seq), w.buf)
		}
		if err != nil {
			w.unsent++
			w.unsentWhy = err
		} else {
			w.sent++
		}
		now = w.clock.Now()
	}
}

// read handles what has arrived.
func (w *walker) read() error {
	return w.socket.Drain(func(e netio.HopEvent) {
		r, ok := w.codec.Parse(Heard{Form: form(e.Form), From: e.From, Type: e.Type, Code: e.Code, Port: e.Port, Data: e.Data})
		if ok {
			w.tracer.Receive(e.At, r)
			w.names.want(r.From)
		}
	})
}

func form(f netio.HopForm) Form {
	switch f {
	case netio.HopMessage:
		return Message
	case netio.HopError:
		return Error
	}
	return Datagram
}

// settle waits until no more answers are expected.
func (w *walker) settle() error {
	for !w.interrupted {
		now := w.clock.Now()
		if err := w.read(); err != nil {
			return err
		}
		if w.tracer.Settled(now) {
			return nil
		}
		w.report(now)
		if !w.sleep.Until(now.Add(readEvery)) {
			w.interrupted = true
		}
	}
	return nil
}

func (w *walker) report(now unit.Instant) {
	if w.cfg.Progress == nil || now.Sub(w.last) < progressEvery {
		return
	}
	w.last = now
	w.cfg.Progress(WalkProgress{Phase: w.phase, Elapsed: min(now.Sub(w.began), w.duration), Duration: w.duration, Result: w.result()})
}

// result judges what is known so far.
func (w *walker) result() *Result {
	f := w.facts
	f.Reached = w.tracer.Reached()
	f.Names = w.names.known()
	if w.interrupted {
		f.Notes = append(f.Notes, fmt.Sprintf("Interrupted in the %s phase.", w.phase))
	}
	if w.unsent > 0 {
		f.Notes = append(f.Notes, fmt.Sprintf("%d of %d probes could not be sent (%v); they count as lost.", w.unsent, w.unsent+w.sent, w.unsentWhy))
	}
	if n := w.tracer.Counts().Skipped; n > 0 {
		f.Notes = append(f.Notes, fmt.Sprintf("%d probes were due but did not leave: this machine was busy elsewhere.", n))
	}
	return Judge(w.tracer.Hops(w.clock.Now()), f)
}
