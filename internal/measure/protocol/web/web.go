package web

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"unbloat/guard"
	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/protocol"
	"unbloat/unit"
)

// Kind is what is special to one protocol over HTTP.
type Kind struct {
	Find Find
	// Load opens the flows of a phase; nil: requests, with one connection for
	// each flow.
	Load func(ctx context.Context, s *Source, specs []phases.FlowSpec) (phases.Load, error)
}

// A Source is an HTTP server. Probes are small requests on a separate
// connection and on the loaded ones.
type Source struct {
	Session *protocol.Session
	At      Endpoints
	Payload []byte // of uploads, incompressible
	wires   *wires // of the probes
	prober  phases.Prober
	load    func(ctx context.Context, s *Source, specs []phases.FlowSpec) (phases.Load, error)
}

// payloadSize is the longest message that a load sends at once.
const payloadSize = unit.Size(1 << 20)

// Open opens a session with a server.
func Open(ctx context.Context, s *protocol.Session, k Kind) (phases.Tester, error) {
	source := &Source{Session: s, Payload: netio.Incompressible(payloadSize), load: k.Load}
	if source.load == nil {
		source.load = openRequests
	}
	source.wires = newWires()
	client := newClient(s, source.wires)
	var err error
	if source.At, err = find(ctx, s, k, client); err != nil {
		return nil, fmt.Errorf("open %s: %w", s.Server, err)
	}
	own := phases.SecondaryProbe{Interval: max(s.Options.Probe.Interval, protocol.CallInterval)}
	if s.Options.Ping != "" { // then they are for comparison, and share the line
		own.Interval = max(own.Interval, besideInterval)
	}
	p := protocol.Probing{Clock: s.Clock, Host: s.Address.Host, Interval: own.Interval, Options: s.Options}
	if small := source.At.Small; small != "" {
		own.Requests = true
		own.Name = "http " + small
		own.Prober, err = protocol.StartCalls(p, func(ctx context.Context, _ unit.Instant) (time.Duration, error) {
			return smallGet(ctx, s.Clock, client, small, phases.Grace)
		})
	} else { // without a small URL: TCP handshakes
		own.Name = "tcp " + p.Host
		own.Prober, err = protocol.StartTCP(ctx, p)
	}
	if err != nil {
		return nil, err
	}
	source.prober = own.Prober
	if s.Options.Ping == "" {
		return s.ProbedRunner(ctx, source, own), nil
	}
	asked, err := s.Probe(ctx, s.Options.Ping) // then these are graded
	if err != nil {
		source.Close()
		return nil, err
	}
	source.prober = asked.Prober
	return s.ProbedRunner(ctx, source, asked, own), nil
}

// besideInterval is the interval of requests beside better probes.
const besideInterval = 250 * time.Millisecond

// find asks the server for its endpoints, within the time limit for connecting.
func find(ctx context.Context, s *protocol.Session, k Kind, client *http.Client) (Endpoints, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Options.Timeout)
	defer cancel()
	if s.Options.Endpoints != nil {
		return s.Options.Endpoints(ctx)
	}
	return k.Find(s, func(url string) ([]byte, error) { return get(ctx, client, url, s.Options.Patience) })
}

// Probe implements measure.Source.
func (s *Source) Probe(context.Context) (phases.Prober, error) { return s.prober, nil }

// Open implements measure.Source.
func (s *Source) Open(ctx context.Context, specs []phases.FlowSpec) (phases.Load, error) {
	if s.Session.Options.Endpoints != nil { // the probes stay with the first ones
		at, err := s.Session.Options.Endpoints(ctx)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", s.Session.Server, err)
		}
		s.At.Down, s.At.Up = at.Down, at.Up
	}
	return s.load(ctx, s, specs)
}

// Close implements measure.Source.
func (s *Source) Close() error { return s.prober.Close() }

// Unreachable makes err wrap measure.ErrUnreachable, unless it wraps one of our
// errors already. An untrusted certificate's error wraps
// protocol.ErrCertificate.
func Unreachable(what string, err error) error {
	var unknown *tls.CertificateVerificationError
	if errors.As(err, &unknown) {
		return fmt.Errorf("%w: %s: %w", protocol.ErrCertificate, what, err)
	}
	return protocol.Unreachable(what, err)
}

// tlsConfig returns the TLS settings of a session: to accept any certificate, a
// pinned one, or those of trusted authorities.
func tlsConfig(o protocol.Options) *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: o.Insecure || o.Pin != ""}
	if pin := o.Pin; pin != "" {
		c.VerifyPeerCertificate = func(raw [][]byte, _ [][]*x509.Certificate) error {
			if len(raw) > 0 {
				if sum := sha256.Sum256(raw[0]); hex.EncodeToString(sum[:]) == pin {
					return nil
				}
			}
			return fmt.Errorf("%w: it is not the pinned one", protocol.ErrCertificate)
		}
	}
	return c
}

// wires are the TCP connections of a client, so that bytes on the line can be
// counted and the kernel's figures read.
type wires struct {
	mu    sync.Mutex
	conns []*net.TCPConn
	sent  atomic.Int64
	o     netio.TCPOptions
	clock *netio.Clock // of arrivals

	// The bytes of ended connections on the interface, and the connections
	// themselves; see passed.
	ended      map[*net.TCPConn]bool
	in, out    int64
	unreadable bool // the count of an ended connection is not known

	arrivals map[*net.TCPConn]*netio.Arrivals // nil: not wanted
}

// watch starts to record the arrivals of all connections, future ones too.
func (w *wires) watch(clock *netio.Clock) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock, w.arrivals = clock, map[*net.TCPConn]*netio.Arrivals{}
	for _, c := range w.conns {
		w.arrivals[c] = netio.WatchArrivals(clock, c, protocol.GoodputBin)
	}
}

// mark records what has arrived by now.
func (w *wires) mark() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c, a := range w.arrivals {
		if !w.ended[c] {
			a.Mark()
		}
	}
}

// waiting reports whether a connection has data behind a hole.
func (w *wires) waiting() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c, a := range w.arrivals {
		if !w.ended[c] && a.Waiting() {
			return true
		}
	}
	return false
}

// arrived returns the bytes that arrived on all connections, in bins from start
// on: payload and everything above TCP. It is nil if the system does not
// provide the counts.
func (w *wires) arrived(start unit.Instant) *netio.Bins {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum := netio.Bins{Start: start, Width: protocol.GoodputBin}
	for _, a := range w.arrivals {
		b := a.Bins(start, protocol.GoodputBin)
		for i, n := range b.Bytes {
			at := start.Add(time.Duration(i) * protocol.GoodputBin)
			sum.Add(at, at.Add(protocol.GoodputBin), n)
		}
	}
	if len(sum.Bytes) == 0 {
		return nil
	}
	return &sum
}

func newWires() *wires { return &wires{ended: map[*net.TCPConn]bool{}} }

// wire counts what is written to one connection.
type wire struct {
	*net.TCPConn
	w *wires
}

func (c wire) Write(b []byte) (int, error) {
	n, err := c.TCPConn.Write(b)
	c.w.sent.Add(int64(n))
	return n, err
}

// Close closes the connection. Its bytes still count.
func (c wire) Close() error {
	c.w.mu.Lock()
	if !c.w.ended[c.TCPConn] {
		in, out, ok := netio.PassedBy([]*net.TCPConn{c.TCPConn})
		if a := c.w.arrivals[c.TCPConn]; a != nil {
			a.Mark()
		}
		c.w.ended[c.TCPConn] = true
		c.w.in, c.w.out, c.w.unreadable = c.w.in+in, c.w.out+out, c.w.unreadable || !ok
	}
	c.w.mu.Unlock()
	return c.TCPConn.Close()
}

// passed returns the bytes of all connections on this machine's interface so
// far. ok is false if the system does not provide the counts.
func (w *wires) passed() (in, out int64, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	in, out, ok = w.in, w.out, !w.unreadable
	for _, c := range w.conns {
		if !ok || w.ended[c] {
			continue
		}
		i, o, known := netio.PassedBy([]*net.TCPConn{c})
		in, out, ok = in+i, out+o, known
	}
	return in, out, ok
}

func (w *wires) dial(ctx context.Context, _, address string) (net.Conn, error) {
	c, err := netio.DialTCP(ctx, address, phases.Grace, w.o)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, c)
	if w.arrivals != nil {
		w.arrivals[c] = netio.WatchArrivals(w.clock, c, protocol.GoodputBin)
	}
	return wire{c, w}, nil
}

// list returns the connections so far.
func (w *wires) list() []*net.TCPConn {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*net.TCPConn(nil), w.conns...)
}

// newClient returns an HTTP client with a connection of its own.
func newClient(s *protocol.Session, w *wires) *http.Client {
	return &http.Client{Transport: keyed{s.Options, &http.Transport{
		DialContext: w.dial, TLSClientConfig: tlsConfig(s.Options), ForceAttemptHTTP2: true, DisableCompression: true,
		MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute, WriteBufferSize: 64 << 10, ReadBufferSize: 64 << 10,
		TLSHandshakeTimeout: s.Options.Patience, MaxResponseHeaderBytes: mostHead,
	}}}
}

// ClientHTTP1 returns a client on the flow's connection that only uses
// HTTP/1.1, as WebSockets need.
func (f *Flow) ClientHTTP1() *http.Client {
	config := tlsConfig(f.session.Options)
	config.NextProtos = []string{"http/1.1"}
	return &http.Client{Transport: keyed{f.session.Options, &http.Transport{
		DialContext: f.wires.dial, TLSClientConfig: config, WriteBufferSize: 64 << 10, ReadBufferSize: 64 << 10, MaxResponseHeaderBytes: mostHead,
	}}}
}

// keyed adds the headers that every request has.
type keyed struct {
	o    protocol.Options
	next *http.Transport
}

func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("User-Agent", "unbloat "+k.o.Agent)
	if k.o.Key != "" {
		r.Header.Set("Authorization", "Bearer "+k.o.Key)
	}
	return k.next.RoundTrip(r)
}

// CloseIdleConnections is what http.Client calls on its transport.
func (k keyed) CloseIdleConnections() { k.next.CloseIdleConnections() }

// The most that is read of a small resource, and of the head of any answer.
const (
	mostSmall unit.Size = 64 << 10
	mostHead            = 64 << 10
)

// get downloads a small resource within patience.
func get(ctx context.Context, c *http.Client, url string, patience time.Duration) ([]byte, error) {
	var resp *http.Response
	b, _, err := guard.Limit{Size: mostSmall, Time: patience}.Take(ctx, func(ctx context.Context, out, _ io.Writer) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		if resp, err = c.Do(r); err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			_, err = io.Copy(out, resp.Body)
		}
		return err
	})
	switch {
	case errors.Is(err, guard.ErrLong), errors.Is(err, guard.ErrLate):
		return nil, fmt.Errorf("GET %s: %w", url, err)
	case err != nil: // names the request already
		return nil, err
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusTooManyRequests:
		return nil, fmt.Errorf("%w: GET %s: %s", phases.ErrRefused, url, resp.Status)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return b, nil
}

// smallGet returns the time from the end of the request to the first byte of
// the answer.
func smallGet(ctx context.Context, clock *netio.Clock, c *http.Client, url string, patience time.Duration) (time.Duration, error) {
	var begun, asked, answered atomic.Int64
	trace := &httptrace.ClientTrace{
		GotConn:              func(httptrace.GotConnInfo) { begun.Store(int64(clock.Now())) },
		WroteRequest:         func(httptrace.WroteRequestInfo) { asked.Store(int64(clock.Now())) },
		GotFirstResponseByte: func() { answered.Store(int64(clock.Now())) },
	}
	if _, err := get(httptrace.WithClientTrace(ctx, trace), c, url, patience); err != nil {
		return 0, err
	}
	from, to := asked.Load(), answered.Load()
	if from == 0 || from > to { // the answer arrived before the transport reported the request as sent
		from = begun.Load()
	}
	if from == 0 || from > to {
		return 0, errors.New("not timed")
	}
	return time.Duration(to - from), nil
}
