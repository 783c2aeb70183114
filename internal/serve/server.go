// Package serve has the servers of the test protocols: unbloat's own (package
// probe), with control and data connections on TCP and probes on UDP, all on
// one port; and other programs' protocols on ports of their own. A client can
// only end its own session: every line has a maximum length, every wait has a
// deadline, no datagram without a session's token is answered, and no answer is
// longer than its request.
package serve

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"unbloat/guard"
	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/probe"
	"unbloat/unit"
)

// Limits limit what clients can use. A zero value means the default.
type Limits struct {
	Sessions   int           // at once
	PerAddress int           // sessions of one client address at once
	Conns      int           // TCP connections, and requests over HTTP/2, at once, of all protocols except metrics
	Flows      int           // data connections of one session
	Streams    int           // streams of datagrams of one session
	Bytes      unit.Size     // bytes of one session over TCP, both directions together; 0: no limit
	Load       time.Duration // of one group of flows, or of one downstream stream
	Idle       time.Duration // after which an inactive session is closed
	Session    time.Duration // of one session
	Handshake  time.Duration // for the first line of a connection
	Stall      time.Duration // of a request over HTTP that receives or sends nothing
	Held       unit.Size     // of bodies over HTTP/2 that may wait in memory until they are read

	// Of one address (IPv6: of one /64), with all protocols together.
	AddressConns int           // TCP connections, and requests over HTTP/2, at once
	AddressHeld  unit.Size     // of Held
	AddressBytes unit.Size     // bytes within an hour; 0: the default, without a limit for this machine itself
	AddressTime  time.Duration // total of sessions that ended within an hour

	ownUnbounded bool // the loopback is exempt from AddressBytes
}

// DefaultLimits are for a server that anybody may use. A session may have 256
// flows in each direction, and an address two such sessions, or the requests of
// a few browsers. 100 GB are twenty tests at 1 Gbit/s, or two at 10 Gbit/s.
// Four hours of sessions per hour are four clients that measure all the time,
// or hundreds of tests. A handshake may take long, because a bloated line may
// queue for seconds and lose the first packet.
func DefaultLimits() Limits {
	return Limits{
		Sessions: 1024, PerAddress: 64, Conns: 8192, Flows: 512, Streams: 64,
		Load: 10 * time.Minute, Idle: 5 * time.Minute, Session: 2 * time.Hour, Handshake: 30 * time.Second, Stall: 30 * time.Second,
		Held: 2 * unit.GB, AddressConns: 1100, AddressHeld: 256 * unit.MB, AddressBytes: 100 * unit.GB, AddressTime: 4 * time.Hour,
	}
}

func (l Limits) withDefaults() Limits {
	l.ownUnbounded = l.AddressBytes <= 0
	return guard.WithDefaults(l, DefaultLimits())
}

// spent reports whether an address has used up its bytes.
func (l Limits) spent(from netip.Addr, moved int64) bool {
	return moved > int64(l.AddressBytes) && !(l.ownUnbounded && from.Unmap().IsLoopback())
}

// Options of a server.
type Options struct {
	Listen  string // host:port for TCP and UDP; port 0 chooses a free one
	Irtt    string // host:port for irtt's UDP; "": not served
	Iperf3  string // host:port for iperf3's TCP; "": not served
	Netperf string // host:port for netperf's control connections, TCP; "": not served
	// NetperfData are the ports for the data of netperf's tests, TCP and UDP,
	// one for each test.
	NetperfData PortRange
	Web         string           // host:port for HTTP and HTTPS; "": not served
	Page        http.Handler     // the page, at / of Web's port; nil: none
	Cert        *tls.Certificate // of HTTPS; nil: HTTP only
	Metrics     string           // host:port for Prometheus; "": not served
	// Lenient keeps the server running if the address of a protocol other than
	// our own is in use.
	Lenient bool
	// Key is the key that clients must have; "": none. With a key, Iperf3 and
	// Netperf are refused.
	Key    string
	Limits Limits       // zero values take the defaults
	Log    *slog.Logger // nil: no log. Refusals are logged once a minute, by number

	// Drain is how long running sessions may continue after the server was told
	// to end. New ones are refused then. 0: they end at once.
	Drain time.Duration
	// Hurry, if closed, ends a draining server at once; nil: never.
	Hurry <-chan struct{}
	// Stopping is called when the remaining sessions must end; nil: nothing is
	// called.
	Stopping func()
	Sockets  *Sockets // from a service manager; nil: none
	// Budgets know what an address has used at other servers; nil: there are
	// none.
	Budgets Budgets
	// Waiting returns for the metrics how many results wait for the database,
	// and how many it has refused; nil: there is no database.
	Waiting func() (waiting, refused int)
	// Servers answers /servers.json on Web's port; nil: there is no list.
	Servers http.Handler
}

// A Server is a listening test server.
type Server struct {
	clock   *netio.Clock
	limits  Limits
	log     *slog.Logger
	tcp     *net.TCPListener
	udp     *netio.PacketServer
	payload []byte
	wg      sync.WaitGroup

	key      string
	accounts *accounts
	refusals *refusals
	sockets  *Sockets
	shared   Budgets
	sharedAt atomic.Int64 // Unix time; 0: never
	waiting  func() (waiting, refused int)
	drainFor time.Duration
	hurry    <-chan struct{}
	stopping func()
	ctx      context.Context // ends with close
	cancel   context.CancelFunc
	others   []sideServer // of other protocols, on ports of their own

	mu       sync.Mutex
	closed   bool
	conns    map[*client]bool    // in the handshake, or control connections
	sessions map[string]*session // by token
	streams  streamTable         // changed under mu
	// trainsFrom has the streams of trains that come from clients, by address: *stream.
	trainsFrom sync.Map
}

// A sideServer serves another protocol on a port of its own.
type sideServer interface {
	serve() error // until close; nil after it
	close()
	addr() netip.AddrPort
	name() string
}

// Protocols, as logs and metrics name them.
const (
	protocolNative  = "unbloat"
	protocolIrtt    = "irtt"
	protocolIperf3  = "iperf3"
	protocolNetperf = "netperf"
	protocolWeb     = "web"

	protocolMetrics = "metrics"
)

// Listen opens the server's sockets. Serve must follow.
func Listen(o Options) (*Server, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		clock: netio.NewClock(), limits: o.Limits.withDefaults(), log: o.Log, payload: netio.Payload(),
		conns: map[*client]bool{}, sessions: map[string]*session{},
		refusals: newRefusals(), key: o.Key,
		sockets: o.Sockets, shared: o.Budgets, waiting: o.Waiting, drainFor: o.Drain, hurry: o.Hurry,
	}
	if o.Stopping != nil {
		s.stopping = sync.OnceFunc(o.Stopping)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.accounts = newAccounts(s.limits)
	a, err := net.ResolveTCPAddr("tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %q: %w; write it like :%d or 127.0.0.1:%d", o.Listen, err, probe.DefaultPort, probe.DefaultPort)
	}
	if s.tcp, err = s.sockets.stream(a); err != nil {
		return nil, fmt.Errorf("listen for tests: %w; is another server running? --listen chooses another port", err)
	}
	bound := s.tcp.Addr().(*net.TCPAddr)
	s.udp, err = s.sockets.packets(s.clock, net.JoinHostPort(hostOf(o.Listen), fmt.Sprint(bound.Port)))
	if err != nil {
		s.tcp.Close()
		return nil, fmt.Errorf("%w; is another server running? --listen chooses another port", err)
	}
	if err := s.listenOthers(o); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// listenOthers opens the sockets of the other protocols.
func (s *Server) listenOthers(o Options) error {
	for _, p := range []struct {
		name, address, flag string
		listen              func(address string) (sideServer, error)
	}{
		{protocolIrtt, o.Irtt, "--irtt", func(a string) (sideServer, error) { return listenIrtt(s, a, o.Key) }},
		{protocolIperf3, o.Iperf3, "--iperf3", func(a string) (sideServer, error) { return listenIperf3(s, a, o.Key) }},
		{protocolNetperf, o.Netperf, "--netperf", func(a string) (sideServer, error) { return listenNetperf(s, a, o.Key, o.NetperfData) }},
		{protocolWeb, o.Web, "--web", func(a string) (sideServer, error) { return listenWeb(s, a, o) }},
		{protocolMetrics, o.Metrics, "--metrics", func(a string) (sideServer, error) { return listenMetrics(s, a) }},
	} {
		if p.address == "" {
			continue
		}
		side, err := p.listen(p.address)
		if err != nil && o.Lenient {
			s.log.Warn("not served", "protocol", p.name, "reason", err)
			continue
		}
		if err != nil {
			return fmt.Errorf("serve %s: %w; %s chooses another port, and none with \"\"", p.name, err, p.flag)
		}
		s.others = append(s.others, side)
	}
	return nil
}

func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	return host
}

// Addr returns the server's address.
func (s *Server) Addr() netip.AddrPort { return s.tcp.Addr().(*net.TCPAddr).AddrPort() }

// Serve answers clients until ctx is done. It then lets running sessions
// continue for Options.Drain, ends them, and waits for their goroutines. It
// returns nil after such an orderly end.
func (s *Server) Serve(ctx context.Context) error {
	s.wg.Go(func() { _ = s.udp.Serve(s.datagram) }) // ends when closed
	for _, side := range s.others {
		s.wg.Go(func() {
			if err := side.serve(); err != nil {
				s.log.Warn("a server ended", "address", side.addr(), "error", err)
			}
		})
	}
	s.wg.Go(func() { s.refusals.tell(s.ctx, s.log) })
	if s.shared != nil {
		s.wg.Go(s.share)
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		s.drain()
		s.close()
	})
	err := s.accept()
	s.close()
	s.wg.Wait()
	if !stop() {
		<-ended
		return nil
	}
	return err
}

// drain refuses new sessions, and waits until the running ones have ended.
func (s *Server) drain() {
	if s.drainFor <= 0 {
		return
	}
	a, empty := s.accounts, make(chan struct{})
	a.mu.Lock()
	a.draining = true
	sessions := a.sessions
	if sessions == 0 {
		close(empty)
	} else {
		a.empty = empty
	}
	a.mu.Unlock()
	if sessions > 0 {
		s.log.Info("draining", "sessions", sessions, "longest", s.drainFor)
	}
	t := time.NewTimer(s.drainFor)
	defer t.Stop()
	select {
	case <-empty:
	case <-t.C:
	case <-s.hurry:
	case <-s.ctx.Done():
	}
}

// close closes every socket, so that every goroutine ends.
func (s *Server) close() {
	s.cancel()
	if s.stopping != nil {
		s.stopping()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	s.tcp.Close()
	s.udp.Close()
	s.accounts.close()
	for _, side := range s.others {
		side.close()
	}
	for c := range s.conns {
		c.Close()
	}
}

func (s *Server) accept() error {
	for {
		c, err := s.tcp.AcceptTCP()
		if err != nil {
			if retry(err) {
				s.log.Warn("cannot accept a connection", "error", err)
				continue
			}
			return fmt.Errorf("accept connections: %w", err)
		}
		k, err := s.client(c, protocolNative)
		if err != nil {
			continue
		}
		s.track(k)
		s.wg.Go(func() { s.greet(k) })
	}
}

// retry reports whether accepting can be tried again after err, such as too
// many open files. It waits a short time before it returns true.
func retry(err error) bool {
	var temporary interface{ Temporary() bool }
	if !errors.As(err, &temporary) || !temporary.Temporary() {
		return false
	}
	time.Sleep(50 * time.Millisecond)
	return true
}

// A client is a client's TCP connection, with its place in the accounts. Close
// gives that back, before the client can see the end and connect again.
type client struct {
	*net.TCPConn
	free func()
}

func (c *client) Close() error {
	c.free()
	return c.TCPConn.Close()
}

// client charges a new connection to its address. Beyond the limits it closes
// the connection.
func (s *Server) client(c *net.TCPConn, protocol string) (*client, error) {
	free, err := s.connect(clientAddr(c), protocol, 0)
	if err != nil {
		s.log.Debug("refused", "protocol", protocol, "from", c.RemoteAddr(), "reason", err)
		c.Close()
		return nil, err
	}
	return &client{c, free}, nil
}

// connsOf returns the connections of clients.
func connsOf(clients []*client) []*net.TCPConn {
	var out []*net.TCPConn
	for _, c := range clients {
		out = append(out, c.TCPConn)
	}
	return out
}

// track records a connection that close must close.
func (s *Server) track(c *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c.Close()
	}
	s.conns[c] = true
}

// handOver removes a connection that a session owns from here on.
func (s *Server) handOver(c *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// end closes a connection that no session owns.
func (s *Server) end(c *client) {
	s.handOver(c)
	c.Close()
}

// greet reads a connection's first line, and passes the connection to its
// session or to a new one.
func (s *Server) greet(c *client) {
	l := newLines(c.TCPConn)
	req, err := l.read(time.Now().Add(s.limits.Handshake))
	if err == nil {
		switch req.Op {
		case probe.OpHello:
			s.hello(c, l, req)
			return
		case probe.OpData:
			err = s.attach(c, l, req)
			if err == nil {
				return // the session owns the connection
			}
		default:
			err = fmt.Errorf("%w: a connection begins with %q or %q", probe.ErrRequest, probe.OpHello, probe.OpData)
		}
	}
	s.log.Debug("refused", "from", c.RemoteAddr(), "reason", err)
	s.refusals.add(protocolNative, refusalReason(err))
	l.refuse(err)
	s.end(c)
}

// refusalReason returns the metrics' name of the error that ended a handshake.
func refusalReason(err error) string {
	switch {
	case errors.Is(err, probe.ErrRequest):
		return "malformed"
	case errors.Is(err, errToken):
		return "unknown token"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "handshake too slow"
	case isCutOff(err):
		return "truncated"
	}
	return "other"
}

// isCutOff reports whether the other end closed the connection too early.
func isCutOff(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// errToken refuses a data connection without a session.
var errToken = errors.New("no session has this token")

// attach passes a data connection to its session.
func (s *Server) attach(c *client, l *lines, req probe.Request) error {
	s.mu.Lock()
	ses := s.sessions[req.Token]
	s.mu.Unlock()
	if ses == nil {
		return errToken
	}
	if err := netio.SetTCP(c.TCPConn, netio.TCPOptions{CC: req.CC, DSCP: req.DSCP}); err != nil {
		return err
	}
	if err := ses.attach(c, req); err != nil {
		return err
	}
	s.handOver(c)
	if err := l.write(probe.Reply{}); err != nil {
		c.Close() // the group will notice
	}
	return nil
}

// newToken returns 128 random bits, hexadecimal.
func newToken() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: Go ends the program instead
	return hex.EncodeToString(b[:])
}

// clientAddr returns the address at the other end.
func clientAddr(c *net.TCPConn) netip.Addr {
	a, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return a.AddrPort().Addr().Unmap()
}

// Irtt returns irtt's address; the zero value if it is not served.
func (s *Server) Irtt() netip.AddrPort { return s.side(protocolIrtt) }

// Iperf3 returns iperf3's address; the zero value if it is not served.
func (s *Server) Iperf3() netip.AddrPort { return s.side(protocolIperf3) }

// Netperf returns netperf's address; the zero value if it is not served.
func (s *Server) Netperf() netip.AddrPort { return s.side(protocolNetperf) }

// Web returns HTTP's address; the zero value if it is not served.
func (s *Server) Web() netip.AddrPort { return s.side(protocolWeb) }

// Metrics returns the address of the metrics; the zero value if they are not served.
func (s *Server) Metrics() netip.AddrPort { return s.side(protocolMetrics) }

func (s *Server) side(protocol string) netip.AddrPort {
	for _, side := range s.others {
		if side.name() == protocol {
			return side.addr()
		}
	}
	return netip.AddrPort{}
}
