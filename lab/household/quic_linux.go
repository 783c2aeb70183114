package household

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"unbloat/guard"
	"unbloat/internal/measure/netio"
	"unbloat/lab/scenario"
)

const (
	quicName  = "quic.lab"
	quicIdle  = 10 * time.Minute // a flow that is starved is not given up
	quicChunk = 1 << 16
)

// quicFlows are greedy flows by HTTP/3: each has a connection of its own, and
// one body that does not end.
type quicFlows struct {
	task    Task
	server  *http3.Server
	clients []*http3.Transport
	meters  []*meter // what arrived of each flow
	base    string
	up      bool
	// near and far carry the packets where they go through something; nil: sockets
	// of their own. One flow alone can have them.
	near, far net.PacketConn
}

func (q *quicFlows) prepare(ctx context.Context) error {
	q.up = q.task.Load.Kind == scenario.QUICUpload
	if q.near == nil {
		if err := q.task.giveAddresses(ctx, 1); err != nil {
			return err
		}
	}
	addr := net.JoinHostPort(q.task.address(1), "443")
	socket := q.far
	if socket == nil {
		var err error
		if socket, err = listenUDP(q.task.Home.ServerNode, addr); err != nil {
			return err
		}
	}
	now := time.Now()
	cert, err := guard.Certificate{Subject: pkix.Name{CommonName: quicName}, Names: []string{quicName},
		From: now.Add(-time.Hour), To: now.Add(24 * time.Hour)}.Make()
	if err != nil {
		return err
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		return fmt.Errorf("read the certificate: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	config := &quic.Config{MaxIdleTimeout: quicIdle, KeepAlivePeriod: 10 * time.Second}
	q.server = &http3.Server{Handler: http.HandlerFunc(q.serve), QUICConfig: config,
		TLSConfig: http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{*cert}})}
	go func() { _ = q.server.Serve(socket) }() // ends when the server is closed
	q.base = (&url.URL{Scheme: "https", Host: addr}).String()
	for k := range q.task.Load.Flows {
		c := &http3.Transport{QUICConfig: config, DisableCompression: true, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: quicName}}
		if q.near != nil {
			c.Dial = q.through
		}
		q.clients, q.meters = append(q.clients, c), append(q.meters, newMeter())
		answer, err := q.ask(ctx, k, http.MethodHead, nil)
		if err != nil {
			return fmt.Errorf("connect flow %d by QUIC: %w", k+1, err)
		}
		answer.Body.Close()
	}
	return nil
}

// through connects to the far side by the packets' own way.
func (q *quicFlows) through(ctx context.Context, addr string, t *tls.Config, c *quic.Config) (*quic.Conn, error) {
	to, err := net.ResolveUDPAddr("udp4", addr)
	if err != nil {
		return nil, err
	}
	return (&quic.Transport{Conn: q.near}).DialEarly(ctx, to, t, c)
}

func (q *quicFlows) close() {
	for _, c := range q.clients {
		_ = c.Close()
	}
	if q.server != nil {
		_ = q.server.Close()
	}
}

// ask sends a request for the k-th flow.
func (q *quicFlows) ask(ctx context.Context, k int, method string, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, q.base+"/"+strconv.Itoa(k), body)
	if err != nil {
		return nil, err
	}
	return q.clients[k].RoundTrip(r)
}

// serve is the far side: it takes what is uploaded, and sends without an end.
func (q *quicFlows) serve(w http.ResponseWriter, r *http.Request) {
	k, err := strconv.Atoi(r.URL.Path[1:])
	if err != nil || k < 0 || k >= len(q.meters) {
		http.NotFound(w, r)
		return
	}
	switch r.Method {
	case http.MethodPost:
		_ = drain(r.Body, q.meters[k]) // ends when the client stops
	case http.MethodGet:
		for chunk := make([]byte, quicChunk); ; {
			if _, err := w.Write(chunk); err != nil {
				return // the client left
			}
		}
	}
}

func (q *quicFlows) run(ctx context.Context, d time.Duration) (*Outcome, error) {
	began := netio.NewClock().Now().Add(-q.task.Load.Start)
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	errs := make([]error, len(q.clients))
	var wg sync.WaitGroup
	for k := range q.clients {
		wg.Go(func() { errs[k] = q.flow(ctx, k) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	o := &Outcome{}
	for _, m := range q.meters {
		o.Bodies = append(o.Bodies, *m.series())
	}
	o.QoE.QUIC = Shares(o.Bodies, began.Add(q.task.From), began.Add(q.task.To))
	return o, nil
}

// flow sends or fetches one body until the time is over.
func (q *quicFlows) flow(ctx context.Context, k int) error {
	method, body := http.MethodGet, io.Reader(nil)
	if q.up {
		method, body = http.MethodPost, endless{ctx}
	}
	answer, err := q.ask(ctx, k, method, body)
	if err == nil {
		defer answer.Body.Close()
		err = drain(answer.Body, q.meters[k])
	}
	if ctx.Err() != nil {
		return nil // the time is over
	}
	if err == nil {
		err = errors.New("the body ended early")
	}
	return fmt.Errorf("flow %d: %w", k+1, err)
}

// endless is a body that ends with its context.
type endless struct{ ctx context.Context }

// Read implements io.Reader.
func (e endless) Read(b []byte) (int, error) {
	if err := e.ctx.Err(); err != nil {
		return 0, err
	}
	return len(b), nil
}

// drain reads a body to its end and counts it.
func drain(r io.Reader, m *meter) error {
	for buf := make([]byte, quicChunk); ; {
		n, err := r.Read(buf)
		m.add(n)
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}
