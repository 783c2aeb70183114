// Package phases is the client: it opens a session with a test server, sends
// isochronous probes, loads the line, and hands what it saw to package
// verdict. Run is the whole of `unbloat test`; its parts (Phase, StartFlows,
// StartProbe, StartStream) are for the lab and the tuner.
package phases

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/probe"
	"unbloat/internal/measure/verdict"
	"unbloat/unit"
)

// ErrUnreachable is wrapped by errors of Dial when no server answers there.
var ErrUnreachable = errors.New("no test server answers")

// ErrRefused is wrapped by errors that the server reported.
var ErrRefused = errors.New("the server refused")

// ErrNoLoad is wrapped by errors of servers that answer probes but take no load.
var ErrNoLoad = errors.New("this server takes no load")

// Options of a client. Zero values take the defaults.
type Options struct {
	Timeout  time.Duration // for connecting; 10 s
	Patience time.Duration // for each answer on the control connection; 60 s, for it may travel through the bloat
	Probe    ProbeSpec     // of the probes that Phase looks at
	Agent    string        // what the server logs
	Key      string        // shared with the server; "" if it wants none
}

// A Client is a session with a test server. Its methods may be called from
// several goroutines, but only one Phase at a time.
type Client struct {
	clock   *netio.Clock
	options Options
	server  string         // host:port
	peer    netip.AddrPort // what it resolved to
	token   string
	control *control
	payload func() []byte
	groups  atomic.Uint32
	runner  *PhaseRunner

	mu    sync.Mutex
	probe *Probe // of the phases; started by the first one
}

const (
	defaultTimeout  = 10 * time.Second
	defaultPatience = 60 * time.Second
)

// Dial opens a session with the server (see ParseServer). Errors: *AddressError,
// or wrapping ErrUnreachable or ErrRefused.
func Dial(ctx context.Context, server string, o Options) (*Client, error) {
	address, err := ParseServer(server)
	if err != nil {
		return nil, err
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.Patience <= 0 {
		o.Patience = defaultPatience
	}
	conn, err := netio.DialTCP(ctx, address, o.Timeout, netio.TCPOptions{})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	clock := netio.NewClock()
	c := &Client{
		clock: clock, options: o, server: address,
		peer:    conn.RemoteAddr().(*net.TCPAddr).AddrPort(),
		control: newControl(clock, conn, o.Patience), payload: sync.OnceValue(netio.Payload),
	}
	hello := probe.Request{Op: probe.OpHello, Versions: []int{probe.Version}, Agent: o.Agent}
	reply, err := c.control.doWithin(ctx, hello, o.Timeout)
	if err == nil && reply.Challenge != "" {
		if o.Key != "" {
			hello.Auth = probe.Authenticate(o.Key, reply.Challenge)
		}
		reply, err = c.control.doWithin(ctx, hello, o.Timeout)
	}
	switch {
	case errors.Is(err, ErrRefused):
	case err != nil:
		err = fmt.Errorf("%w: greet %s: %w", ErrUnreachable, address, err)
	case reply.Version != probe.Version || reply.Token == "":
		err = fmt.Errorf("%w: greet %s: what answers there is no unbloat server", ErrUnreachable, address)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	c.token = reply.Token
	c.runner = NewPhaseRunner(clock, (*nativeSource)(c), RunnerOptions{Server: address, Peer: c.peer.Addr().Unmap(), Interval: o.Probe.withDefaults().Interval})
	return c, nil
}

// Server returns the server's address as it is reported.
func (c *Client) Server() string { return c.server }

// Now returns the client's clock.
func (c *Client) Now() unit.Instant { return c.clock.Now() }

// Time returns an instant of the client's clock as a time of day.
func (c *Client) Time(i unit.Instant) time.Time { return c.clock.Time(i) }

// Phase runs one phase: see PhaseRunner.Phase.
func (c *Client) Phase(ctx context.Context, spec PhaseSpec) (*RawPhase, error) {
	return c.runner.Phase(ctx, spec)
}

// Open opens flows that are no phase's: see Source.Open.
func (c *Client) Open(ctx context.Context, specs []FlowSpec) (Load, error) {
	return c.runner.Open(ctx, specs)
}

// Idle measures a phase without load, and remembers it as what the line is
// like when idle.
func (c *Client) Idle(ctx context.Context, d time.Duration, progress func(Event)) (*RawPhase, error) {
	return c.Phase(ctx, PhaseSpec{Name: verdict.PhaseIdle, Duration: d, Progress: progress})
}

// Judge grades the phases of one run, of which the idle one is the first.
func (c *Client) Judge(label string, raws []RawPhase) *verdict.Test {
	return c.runner.Judge(label, raws)
}

// AddSecondary adds probes that run with the client's own. It must be called
// before the first phase; the client closes them.
func (c *Client) AddSecondary(b ...SecondaryProbe) {
	c.runner.options.Secondary = append(c.runner.options.Secondary, b...)
}

// Close ends the session; the server stops whatever it still does for it.
func (c *Client) Close() error { return c.runner.Close() }

// A control is the control connection: one request and its reply at a time.
type control struct {
	clock    *netio.Clock
	patience time.Duration
	mu       sync.Mutex
	conn     *net.TCPConn
	in       *bufio.Reader
	broken   error         // why it can no longer be used
	quickest time.Duration // exchange so far
	offset   time.Duration // of the server's clock, from that exchange
}

func newControl(clock *netio.Clock, conn *net.TCPConn, patience time.Duration) *control {
	return &control{
		clock: clock, patience: patience, conn: conn, in: bufio.NewReaderSize(conn, 1<<16),
		quickest: math.MaxInt64,
	}
}

func (c *control) clockOffset() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offset
}

// do asks the server. A refusal wraps ErrRefused; after any other error the
// connection is unusable.
func (c *control) do(ctx context.Context, r probe.Request) (probe.Reply, error) {
	return c.doWithin(ctx, r, c.patience)
}

func (c *control) doWithin(ctx context.Context, r probe.Request, patience time.Duration) (probe.Reply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken != nil {
		return probe.Reply{}, c.broken
	}
	asked := c.clock.Now()
	reply, err := ask(ctx, c.conn, c.in, r, patience)
	if took := c.clock.Now().Sub(asked); err == nil && reply.Now != 0 && took < c.quickest {
		c.quickest, c.offset = took, reply.Now.Sub(asked.Add(took/2))
	}
	if err != nil {
		c.broken = fmt.Errorf("ask %s to %s: %w", c.conn.RemoteAddr(), r.Op, err)
		return reply, c.broken
	}
	if reply.Error != "" {
		return reply, fmt.Errorf("ask %s to %s: %w: %s", c.conn.RemoteAddr(), r.Op, ErrRefused, reply.Error)
	}
	return reply, nil
}

// ask sends one request and reads its reply.
func ask(ctx context.Context, conn *net.TCPConn, in *bufio.Reader, r probe.Request, patience time.Duration) (probe.Reply, error) {
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return probe.Reply{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := conn.Write(probe.AppendLine(nil, r)); err != nil {
		return probe.Reply{}, cause(ctx, err)
	}
	line, err := readLine(in, int(probe.MaxReply))
	if err != nil {
		return probe.Reply{}, cause(ctx, err)
	}
	return probe.ParseReply(line)
}

// cause prefers the reason why ctx ended to the deadline that it set.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// readLine reads up to and including a newline, at most limit bytes.
func readLine(in *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		if err == nil {
			return line, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
		if len(line) > limit {
			return nil, fmt.Errorf("a reply of more than %d bytes", limit)
		}
	}
}
