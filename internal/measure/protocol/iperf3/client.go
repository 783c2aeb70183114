package iperf3

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"
	"time"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/protocol"
	"unbloat/internal/measure/verdict"
	"unbloat/unit"
)

// Protocol is what iperf3's servers speak.
func Protocol() protocol.Protocol {
	return protocol.Protocol{Schemes: []protocol.Scheme{{Name: "iperf3", Port: Port}}, Dial: dial}
}

// source is a server that takes load but answers no probes. Probes go to the
// host of --ping, or to the server by ICMP.
type source struct {
	s       *protocol.Session
	prober  phases.Prober
	payload []byte
}

// dial opens a session with an iperf3 server. It contacts the server only with
// the first load.
func dial(ctx context.Context, s *protocol.Session) (phases.Tester, error) {
	to := s.Options.Ping
	if to == "" {
		host, _, err := net.SplitHostPort(s.Address.Host)
		if err != nil {
			return nil, err
		}
		to = protocol.ICMPScheme + "://" + host
	}
	p, err := s.Probe(ctx, to)
	if err != nil {
		return nil, fmt.Errorf("an iperf3 server answers no probes, so something else must: %w", err)
	}
	return s.ProbedRunner(ctx, &source{s: s, prober: p.Prober, payload: netio.Payload()}, p), nil
}

func (s *source) Probe(context.Context) (phases.Prober, error) { return s.prober, nil }

func (s *source) Close() error { return s.prober.Close() }

// load is one test.
type load struct {
	source  *source
	control *net.TCPConn
	cookie  Cookie
	params  Params
	up      []*net.TCPConn
	down    []*net.TCPConn
	options []netio.TCPOptions // of the upload's streams
	start   unit.Instant
	sender  *netio.Sender
	receive *netio.Receiver
}

// Open opens the control connection and all streams but the last, because the
// server starts when it has all.
func (s *source) Open(ctx context.Context, specs []phases.FlowSpec) (phases.Load, error) {
	l := &load{source: s, params: Params{TCP: true, ClientVersion: "3.12"}}
	for _, spec := range specs {
		l.params.Time = max(l.params.Time, int(spec.Limit/time.Second)+2)
		l.params.Congestion = spec.CC
		if spec.Dir == phases.Up {
			for range spec.Flows {
				l.options = append(l.options, netio.TCPOptions{CC: spec.CC, DSCP: spec.DSCP})
			}
			continue
		}
		l.params.Reverse = true
		l.params.Parallel += spec.Flows
		l.params.TOS = max(l.params.TOS, spec.DSCP<<2) // there is one value for all
	}
	if l.params.Reverse && len(l.options) > 0 {
		l.params.Reverse, l.params.Bidirectional = false, true
	}
	l.params.Parallel = max(l.params.Parallel, len(l.options))
	for len(l.options) > 0 && len(l.options) < l.params.Parallel {
		l.options = append(l.options, l.options[0])
	}
	if err := l.open(ctx); err != nil {
		l.Abandon()
		return nil, fmt.Errorf("open an iperf3 test: %w", err)
	}
	return l, nil
}

// betweenTests is how long a refusal is not final: after a test iperf3's own
// server answers that it is busy until it has cleaned up, and then closes its
// port and opens it again.
const betweenTests = 2 * time.Second

// errBusy is the server's refusal because another test is running.
var errBusy = errors.New(AccessDenied.String())

// greet connects to the server, again if it is between two tests, and sends the
// cookie.
func (l *load) greet(ctx context.Context) error {
	for began := time.Now(); ; {
		err := l.knock(ctx)
		if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, errBusy) || time.Since(began) > betweenTests {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(betweenTests / 40):
		}
	}
}

// knock is one attempt of greet.
func (l *load) knock(ctx context.Context) (err error) {
	if l.control != nil {
		l.control.Close()
	}
	if l.control, err = netio.DialTCP(ctx, l.source.s.Address.Host, l.source.s.Options.Timeout, netio.TCPOptions{}); err != nil {
		l.control = nil
		return protocol.Unreachable("connect", err)
	}
	return l.within(ctx, func() error {
		if _, err := l.control.Write(l.cookie[:]); err != nil {
			return err
		}
		return l.expect(ParamExchange)
	})
}

func (l *load) open(ctx context.Context) error {
	var random [CookieSize - 1]byte
	_, _ = rand.Read(random[:]) // never fails: Go ends the program instead
	l.cookie = MakeCookie(random)
	if err := l.greet(ctx); err != nil {
		return err
	}
	if err := l.within(ctx, func() error {
		b, err := Frame(l.params)
		if err != nil {
			return err
		}
		if _, err := l.control.Write(b); err != nil {
			return err
		}
		return l.expect(CreateStreams)
	}); err != nil {
		return err
	}
	for range l.params.Up() + l.params.Down() - 1 {
		if err := l.stream(ctx); err != nil {
			return err
		}
	}
	return nil
}

// within limits the time of a step on the control connection.
func (l *load) within(ctx context.Context, step func() error) error {
	if err := l.control.SetDeadline(time.Now().Add(l.source.s.Options.Patience)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = l.control.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	err := step()
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// expect reads states until the wanted one.
func (l *load) expect(want State) error {
	var b [1]byte
	if _, err := l.control.Read(b[:]); err != nil {
		return fmt.Errorf("wait for %q: %w", want, err)
	}
	switch s := State(b[0]); s {
	case want:
		return nil
	case AccessDenied:
		return fmt.Errorf("%w: %w", phases.ErrRefused, errBusy)
	case ServerError, ServerTerminate:
		return fmt.Errorf("%w: %s", phases.ErrRefused, s)
	default:
		return fmt.Errorf("the server says %q, not %q", s, want)
	}
}

// stream opens the next stream: first those of the upload, then those of the
// download.
func (l *load) stream(ctx context.Context) error {
	up := len(l.up) < l.params.Up()
	var o netio.TCPOptions
	if up {
		o = l.options[len(l.up)]
	}
	c, err := netio.DialTCP(ctx, l.control.RemoteAddr().String(), l.source.s.Options.Patience, o)
	if err != nil {
		return err
	}
	if up {
		l.up = append(l.up, c)
	} else {
		l.down = append(l.down, c)
	}
	_, err = c.Write(l.cookie[:])
	return err
}

// Begin opens the last stream, after which the server starts.
func (l *load) Begin(ctx context.Context) (unit.Instant, error) {
	err := l.stream(ctx)
	if err == nil {
		err = l.within(ctx, func() error {
			if err := l.expect(TestStart); err != nil {
				return err
			}
			return l.expect(TestRunning)
		})
	}
	if err != nil {
		return 0, fmt.Errorf("begin an iperf3 test: %w", err)
	}
	l.start = l.source.s.Clock.Now()
	if len(l.down) > 0 {
		l.receive = netio.NewReceiver(l.source.s.Clock, protocol.GoodputBin, netio.Budget{}, l.down)
	}
	if len(l.up) > 0 {
		l.sender = netio.NewSender(l.source.s.Clock, l.source.payload, netio.Budget{}, l.up)
	}
	return l.start, nil
}

// Moved implements measure.Load.
func (l *load) Moved(d phases.Direction) int64 {
	switch {
	case d == phases.Down && l.receive != nil:
		return l.receive.Total()
	case d == phases.Up && l.sender != nil:
		return l.sender.Acked()
	}
	return 0
}

// Passed implements measure.ByteCounter.
func (l *load) Passed() (in, out int64, ok bool) {
	return netio.PassedBy(slices.Concat(l.up, l.down))
}

// Stop implements measure.Load.
func (l *load) Stop(ctx context.Context) ([]phases.FlowReport, error) {
	defer l.Abandon()
	end := l.source.s.Clock.Now()
	if l.sender != nil {
		l.sender.Pause()
	}
	theirs, err := l.finish(ctx)
	if err != nil {
		return nil, fmt.Errorf("end an iperf3 test: %w", err)
	}
	report := phases.FlowReport{Start: l.start, End: end, ServerCPU: theirs.CPUTotal / 100}
	var out []phases.FlowReport
	if l.receive != nil {
		r := report
		r.Dir = phases.Down
		bins, broke := l.receive.Stop()
		for _, b := range bins {
			r.Series = append(r.Series, verdict.Series{Start: b.Start, Bin: b.Width, Bytes: b.Bytes})
		}
		r.Broken = broken(broke, end)
		out = append(out, r)
	}
	if l.sender != nil {
		r := report
		r.Dir = phases.Up
		samples, broke := l.sender.Stop()
		r.Sender, r.Broken = samples, broken(broke, end)
		r.Series = protocol.Acked(samples, len(l.up))
		out = append(out, r)
	}
	return out, nil
}

func broken(errs []netio.FlowError, end unit.Instant) []string {
	var out []string
	for _, e := range errs {
		if e.At.Before(end) {
			out = append(out, e.Error())
		}
	}
	return out
}

// finish tells the server that the test is over and exchanges results.
func (l *load) finish(ctx context.Context) (theirs Results, err error) {
	mine := Results{HasRetransmits: -1}
	seconds := l.source.s.Clock.Now().Sub(l.start).Seconds()
	var bytes []int64
	if l.sender != nil {
		bytes = append(bytes, l.sender.Written()...)
	}
	if l.receive != nil {
		bytes = append(bytes, l.receive.Totals()...)
	}
	for i, n := range bytes {
		mine.Streams = append(mine.Streams, StreamResult{ID: StreamID(i), Bytes: n, Retransmits: -1, EndTime: seconds})
	}
	frame, err := Frame(mine)
	if err != nil {
		return theirs, err
	}
	return theirs, l.within(ctx, func() error {
		if _, err := l.control.Write([]byte{byte(TestEnd)}); err != nil {
			return err
		}
		if err := l.expect(ExchangeResults); err != nil {
			return err
		}
		if _, err := l.control.Write(frame); err != nil {
			return err
		}
		b, err := ReadFrame(l.control)
		if err != nil {
			return err
		}
		if theirs, err = ParseResults(b); err != nil {
			return err
		}
		if err := l.expect(DisplayResults); err != nil {
			return err
		}
		_, err = l.control.Write([]byte{byte(Done)})
		return err
	})
}

// Abandon implements measure.Load.
func (l *load) Abandon() {
	if l.sender != nil {
		l.sender.Stop()
	}
	if l.receive != nil {
		l.receive.Stop()
	}
	for _, c := range append(l.up, l.down...) {
		c.Close()
	}
	if l.control != nil && !errors.Is(l.control.Close(), net.ErrClosed) {
		l.control = nil
	}
}
