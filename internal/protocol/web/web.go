//go:build !omit_http

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

	"unbloat/internal/measure"
	"unbloat/internal/netio"
	"unbloat/internal/protocol"
	"unbloat/internal/protocol/ping"
	"unbloat/unit"
)

// Kind is what one protocol over HTTP does in its own way.
type Kind struct {
	Find Find
	// Load opens the flows of a phase; nil: requests, one connection a flow.
	Load func(ctx context.Context, s *Source, specs []measure.FlowSpec) (measure.Load, error)
}

// A Source is an HTTP server: probes are small requests on a connection of their
// own, and on the loaded ones.
type Source struct {
	Session *protocol.Session
	At      Endpoints
	Payload []byte // of uploads, incompressible
	prober  measure.Prober
	load    func(ctx context.Context, s *Source, specs []measure.FlowSpec) (measure.Load, error)
}

// payloadSize is the longest message that a load sends at once.
const payloadSize = unit.Size(1 << 20)

// Open opens a session with a server.
func Open(ctx context.Context, s *protocol.Session, k Kind) (measure.Tester, error) {
	source := &Source{Session: s, Payload: netio.Incompressible(payloadSize), load: k.Load}
	if source.load == nil {
		source.load = openRequests
	}
	client := newClient(s, &wires{})
	var err error
	if source.At, err = find(ctx, s, k, client); err != nil {
		return nil, fmt.Errorf("open %s: %w", s.Server, err)
	}
	own := measure.SecondaryProbe{Interval: max(s.Options.Probe.Interval, protocol.CallInterval)}
	p := protocol.Probing{Clock: s.Clock, Host: s.Address.Host, Interval: own.Interval, Options: s.Options}
	if small := source.At.Small; small != "" {
		own.Name = "http " + small
		own.Prober, err = ping.StartCalls(p, func(ctx context.Context, _ unit.Instant) (time.Duration, error) {
			return smallGet(ctx, s.Clock, client, small)
		})
	} else { // the server has no small URL: TCP handshakes
		own.Name = "tcp " + p.Host
		own.Prober, err = ping.StartTCP(ctx, p)
	}
	if err != nil {
		return nil, err
	}
	source.prober = own.Prober
	if s.Options.Ping == "" {
		return s.ProbedRunner(ctx, source, own), nil
	}
	asked, err := s.Probe(ctx, s.Options.Ping) // these are graded then
	if err != nil {
		source.Close()
		return nil, err
	}
	source.prober = asked.Prober
	return s.ProbedRunner(ctx, source, asked, own), nil
}

// find asks the server for its endpoints, as long as connecting may take.
func find(ctx context.Context, s *protocol.Session, k Kind, client *http.Client) (Endpoints, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Options.Timeout)
	defer cancel()
	return k.Find(s, func(url string) ([]byte, error) { return get(ctx, client, url) })
}

// Probe implements measure.Source.
func (s *Source) Probe(context.Context) (measure.Prober, error) { return s.prober, nil }

// Open implements measure.Source.
func (s *Source) Open(ctx context.Context, specs []measure.FlowSpec) (measure.Load, error) {
	return s.load(ctx, s, specs)
}

// Close implements measure.Source.
func (s *Source) Close() error { return s.prober.Close() }

// Unreachable marks an error of connecting, unless it is marked already; one of
// a certificate that no authority vouches for wraps protocol.ErrCertificate.
func Unreachable(what string, err error) error {
	var unknown *tls.CertificateVerificationError
	if errors.As(err, &unknown) {
		return fmt.Errorf("%w: %s: %w", protocol.ErrCertificate, what, err)
	}
	return protocol.Unreachable(what, err)
}

// tlsConfig returns the TLS settings of a session: any certificate, a pinned one,
// or those of known authorities.
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

// wires are the TCP connections under a client, so that the kernel can be
// asked about them and bytes on the wire be counted.
type wires struct {
	mu    sync.Mutex
	conns []*net.TCPConn
	sent  atomic.Int64
	o     netio.TCPOptions
}

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

func (w *wires) dial(ctx context.Context, _, address string) (net.Conn, error) {
	c, err := netio.DialTCP(ctx, address, measure.Grace, w.o)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, c)
	return wire{c, w}, nil
}

// list returns the connections so far.
func (w *wires) list() []*net.TCPConn {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*net.TCPConn(nil), w.conns...)
}

// newClient returns an HTTP client with one connection of its own.
func newClient(s *protocol.Session, w *wires) *http.Client {
	return &http.Client{Transport: keyed{s.Options, &http.Transport{
		DialContext: w.dial, TLSClientConfig: tlsConfig(s.Options), ForceAttemptHTTP2: true, DisableCompression: true,
		MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute, WriteBufferSize: 64 << 10, ReadBufferSize: 64 << 10,
		TLSHandshakeTimeout: protocol.Patience,
	}}}
}

// ClientHTTP1 returns a client on the flow's own connection that speaks HTTP/1.1
// only, as a WebSocket wants.
func (f *Flow) ClientHTTP1() *http.Client {
	config := tlsConfig(f.session.Options)
	config.NextProtos = []string{"http/1.1"}
	return &http.Client{Transport: keyed{f.session.Options, &http.Transport{
		DialContext: f.wires.dial, TLSClientConfig: config, WriteBufferSize: 64 << 10, ReadBufferSize: 64 << 10,
	}}}
}

// keyed adds what every request carries.
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

// get fetches a small thing.
func get(ctx context.Context, c *http.Client, url string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	switch {
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusTooManyRequests:
		return nil, fmt.Errorf("%w: GET %s: %s", measure.ErrRefused, url, resp.Status)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return b, err
}

// smallGet returns how long the first byte of an answer took after its question was written.
func smallGet(ctx context.Context, clock *netio.Clock, c *http.Client, url string) (time.Duration, error) {
	var begun, asked, answered atomic.Int64
	trace := &httptrace.ClientTrace{
		GotConn:              func(httptrace.GotConnInfo) { begun.Store(int64(clock.Now())) },
		WroteRequest:         func(httptrace.WroteRequestInfo) { asked.Store(int64(clock.Now())) },
		GotFirstResponseByte: func() { answered.Store(int64(clock.Now())) },
	}
	if _, err := get(httptrace.WithClientTrace(ctx, trace), c, url); err != nil {
		return 0, err
	}
	from, to := asked.Load(), answered.Load()
	if from == 0 || from > to { // the answer overtook the news of the writing
		from = begun.Load()
	}
	if from == 0 || from > to {
		return 0, errors.New("not timed")
	}
	return time.Duration(to - from), nil
}
