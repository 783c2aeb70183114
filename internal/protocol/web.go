//go:build !omit_http

package protocol

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
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"unbloat/internal/measure"
	"unbloat/internal/netio"
	"unbloat/internal/probe"
	"unbloat/internal/protocol/ndt7"
	"unbloat/internal/protocol/nq"
	"unbloat/internal/protocol/ping"
	"unbloat/unit"
)

// endpoints are where an HTTP server takes load and answers probes.
type endpoints struct{ small, down, up string }

// webSource is an HTTP server: load is requests, one connection a flow; probes
// are small requests on a connection of their own, and on the loaded ones.
type webSource struct {
	d       *dialer
	at      endpoints
	prober  measure.Prober
	payload []byte
	open    func(*webSource, context.Context, []measure.FlowSpec) (measure.Load, error)
	name    string // of the probes
}

// web opens a session with a server of the HTTP family.
func (d *dialer) web(ctx context.Context) (measure.Tester, error) {
	s := &webSource{d: d, payload: netio.Incompressible(ndt7.MaxMessage), open: openWebLoad}
	find := map[string]func(context.Context, *http.Client) (endpoints, error){
		"librespeed": d.librespeed, "cloudflare": d.cloudflare, "rpm": d.networkQuality, "ndt7": d.ndt7,
	}[strings.SplitN(d.a.scheme, "+", 2)[0]]
	client := d.client(newWires())
	var err error
	if s.at, err = find(ctx, client); err != nil {
		return nil, fmt.Errorf("open %s: %w", d.server, err)
	}
	interval := max(d.o.Probe.Interval, callInterval)
	if strings.HasPrefix(d.a.scheme, "ndt7") {
		s.open = openNDT7Load
	}
	if s.at.small != "" {
		s.name = "http " + s.at.small
		s.prober, err = measure.StartProbeLoop(d.clock, newCalls(d.clock, func(ctx context.Context, _ unit.Instant) (time.Duration, error) {
			return smallGet(ctx, d.clock, client, s.at.small)
		}), probe.Config{Interval: interval, Size: ping.MinSize, Codec: ping.Echo{Nonce: nonce()}})
	} else { // nothing small is to be had there: handshakes
		s.name = "tcp " + d.a.host
		s.prober, err = measure.StartProbeLoop(d.clock, handshakes(d.clock, d.a.host, d.o),
			probe.Config{Interval: interval, Size: ping.MinSize, Codec: ping.Echo{Nonce: nonce()}})
	}
	if err != nil {
		return nil, err
	}
	if d.o.Ping != "" { // then that is what is graded, and the requests are beside it
		b, err := pingTo(ctx, d.clock, d.o.Ping, d.o)
		if err != nil {
			s.Close()
			return nil, err
		}
		beside := measure.SecondaryProbe{Name: s.name, Interval: interval, Prober: s.prober}
		s.prober = b.Prober
		return measure.NewPhaseRunner(d.clock, s, measure.RunnerOptions{Server: d.server, Peer: d.peer(ctx), Interval: b.Interval, Probe: b.Name, Secondary: []measure.SecondaryProbe{beside}}), nil
	}
	return measure.NewPhaseRunner(d.clock, s, measure.RunnerOptions{Server: d.server, Peer: d.peer(ctx), Interval: interval, Probe: s.name}), nil
}

func (s *webSource) Probe(context.Context) (measure.Prober, error) { return s.prober, nil }

func (s *webSource) Open(ctx context.Context, specs []measure.FlowSpec) (measure.Load, error) {
	return s.open(s, ctx, specs)
}

func (s *webSource) Close() error { return s.prober.Close() }

// untrusted says whether a handshake ended because no authority vouches for the
// server's certificate.
func untrusted(err error) bool {
	var unknown *tls.CertificateVerificationError
	return errors.As(err, &unknown)
}

// tlsConfig trusts whom it is told to.
func (d *dialer) tlsConfig() *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: d.o.Insecure || d.o.Pin != ""}
	if pin := d.o.Pin; pin != "" {
		c.VerifyPeerCertificate = func(raw [][]byte, _ [][]*x509.Certificate) error {
			if len(raw) > 0 {
				if sum := sha256.Sum256(raw[0]); hex.EncodeToString(sum[:]) == pin {
					return nil
				}
			}
			return fmt.Errorf("%w: it is not the pinned one", ErrCertificate)
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

func newWires() *wires { return &wires{} }

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

// client returns an HTTP client with one connection of its own.
func (d *dialer) client(w *wires) *http.Client {
	return &http.Client{Transport: keyed{d.o, &http.Transport{
		DialContext: w.dial, TLSClientConfig: d.tlsConfig(), ForceAttemptHTTP2: true, DisableCompression: true,
		MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute, WriteBufferSize: 64 << 10, ReadBufferSize: 64 << 10,
		TLSHandshakeTimeout: patience,
	}}}
}

// keyed adds what every request carries.
type keyed struct {
	o    Options
	next *http.Transport
}

func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("User-Agent", "unbloat "+k.o.Agent)
	if k.o.Key != "" {
		r.Header.Set("Authorization", "Bearer "+k.o.Key)
	}
	return k.next.RoundTrip(r)
}

// CloseIdleConnections lets http.Client reach the transport.
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

// base returns the URL without a final slash.
func (d *dialer) base() string { return strings.TrimSuffix(d.a.url.String(), "/") }

// librespeed finds LibreSpeed's backend by the names it goes by.
func (d *dialer) librespeed(ctx context.Context, c *http.Client) (endpoints, error) {
	ctx, cancel := context.WithTimeout(ctx, d.o.Timeout)
	defer cancel()
	var last error
	for _, n := range [][2]string{{"/backend/", ".php"}, {"/", ".php"}, {"/backend/", ""}, {"/", ""}} {
		name := func(s string) string { return d.base() + n[0] + s + n[1] }
		if b, err := get(ctx, c, name("empty")); err != nil {
			last = err
		} else if len(b) == 0 {
			return endpoints{name("empty"), name("garbage") + "?ckSize=100", name("empty")}, nil
		}
	}
	return endpoints{}, unreachable("find LibreSpeed's backend", last)
}

// cloudflare needs no finding.
func (d *dialer) cloudflare(ctx context.Context, c *http.Client) (endpoints, error) {
	ctx, cancel := context.WithTimeout(ctx, d.o.Timeout)
	defer cancel()
	at := endpoints{d.base() + "/__down?bytes=0", d.base() + "/__down?bytes=100000000", d.base() + "/__up"}
	if _, err := get(ctx, c, at.small); err != nil {
		return at, unreachable("ask", err)
	}
	return at, nil
}

// networkQuality reads the server's configuration.
func (d *dialer) networkQuality(ctx context.Context, c *http.Client) (endpoints, error) {
	ctx, cancel := context.WithTimeout(ctx, d.o.Timeout)
	defer cancel()
	url := d.base()
	if strings.Trim(d.a.url.Path, "/") == "" {
		url += nq.WellKnown
	}
	b, err := get(ctx, c, url)
	if err != nil {
		return endpoints{}, unreachable("read the configuration", err)
	}
	cfg, err := nq.Parse(b)
	if err != nil {
		return endpoints{}, unreachable("read the configuration", err)
	}
	return endpoints{cfg.URLs.Small, cfg.URLs.Large, cfg.URLs.Upload}, nil
}
