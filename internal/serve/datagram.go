package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/webtransport-go"
)

// Bounds of what a connection of datagrams may take, in addition to those of its session.
const (
	mostPending    = 64 // connections that belong to no session yet, at once
	pendingLimit   = 5 * time.Second
	datagramsQuiet = 10 * time.Second // after which a connection without a packet ends
	mostHeader     = 4 << 10
	mostStreams    = 4 // the request, and HTTP/3's own
	pageWindow     = 16 << 10
)

// datagrams is the page's side of WebTransport: probes and their answers as QUIC
// datagrams, which no lost packet and no load holds up.
type datagrams struct {
	handler   *Page
	socket    *net.UDPConn
	transport *quic.Transport
	listener  *quic.EarlyListener
	server    *webtransport.Server
	ctx       context.Context // ends with close
	stop      context.CancelFunc
	pending   atomic.Int32
}

// ListenDatagrams has the probes of browsers that know WebTransport travel as
// QUIC datagrams to the UDP port at address, which should have the number of
// the port that the page is served from; others use the WebSocket. It is to be
// called once, before the first request. The port is closed by Close.
func (h *Page) ListenDatagrams(address string) (netip.AddrPort, error) {
	a, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("serve datagrams on %s: %w", address, err)
	}
	socket, err := net.ListenUDP("udp", a)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("serve datagrams: %w", err)
	}
	return h.ServeDatagrams(socket)
}

// ServeDatagrams is ListenDatagrams of a socket that is open already, which it
// takes over.
func (h *Page) ServeDatagrams(socket *net.UDPConn) (netip.AddrPort, error) {
	cert, err := newShortCert(h.now)
	if err != nil {
		socket.Close()
		return netip.AddrPort{}, fmt.Errorf("serve datagrams: %w", err)
	}
	d := &datagrams{handler: h, socket: socket}
	d.ctx, d.stop = context.WithCancel(context.Background())
	d.transport = &quic.Transport{
		Conn: socket,
		// Whoever does not answer at his address gets a packet no longer than his own.
		VerifySourceAddress:              func(net.Addr) bool { return true },
		DisableVersionNegotiationPackets: true,
		ConnContext:                      d.admit,
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/api/datagrams", d.probe)
	d.server = &webtransport.Server{
		ReorderingTimeout: time.Second,
		H3:                &http3.Server{Handler: mux, MaxHeaderBytes: mostHeader, IdleTimeout: datagramsQuiet},
	}
	webtransport.ConfigureHTTP3Server(d.server.H3)
	secret := http3.ConfigureTLSConfig(&tls.Config{
		MinVersion:     tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert.now() },
	})
	d.listener, err = d.transport.ListenEarly(secret, &quic.Config{
		HandshakeIdleTimeout: pendingLimit, MaxIdleTimeout: datagramsQuiet, EnableDatagrams: true, EnableStreamResetPartialDelivery: true,
		MaxIncomingStreams: mostStreams, MaxIncomingUniStreams: mostStreams,
		InitialStreamReceiveWindow: pageWindow, MaxStreamReceiveWindow: pageWindow,
		InitialConnectionReceiveWindow: 2 * pageWindow, MaxConnectionReceiveWindow: 2 * pageWindow,
	})
	if err != nil {
		socket.Close()
		return netip.AddrPort{}, fmt.Errorf("serve datagrams on %s: %w", socket.LocalAddr(), err)
	}
	h.datagrams, h.certificate = d, cert
	h.wg.Go(d.accept)
	return socket.LocalAddr().(*net.UDPAddr).AddrPort(), nil
}

// admit lets in a connection whose address is proven, unless too many are in
// that have not shown a session yet. Each gets some seconds for that.
func (d *datagrams) admit(ctx context.Context, _ *quic.ClientInfo) (context.Context, error) {
	if d.pending.Add(1) > mostPending {
		d.pending.Add(-1)
		return nil, errBusy
	}
	k := &visit{pending: &d.pending}
	context.AfterFunc(ctx, k.admitted)
	return context.WithValue(ctx, visitKey{}, k), nil
}

// A visit is a connection that has, or has not yet, shown a session.
type visit struct {
	conn    *quic.Conn
	pending *atomic.Int32
	is      atomic.Bool
}

// admitted stops counting the connection as one without a session.
func (k *visit) admitted() {
	if k.is.CompareAndSwap(false, true) {
		k.pending.Add(-1)
	}
}

type visitKey struct{}

// accept serves connections until the listener is closed.
func (d *datagrams) accept() {
	for {
		c, err := d.listener.Accept(d.ctx)
		if err != nil {
			return
		}
		d.handler.wg.Go(func() {
			k := c.Context().Value(visitKey{}).(*visit) // of admit
			k.conn = c
			cut := time.AfterFunc(pendingLimit, func() {
				if !k.is.Load() {
					_ = c.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeRequestRejected), "no session was shown")
				}
			})
			defer cut.Stop()
			if err := d.server.ServeQUICConn(c); err != nil && !errors.Is(err, http.ErrServerClosed) {
				d.handler.log.Debug("datagrams", "from", c.RemoteAddr(), "err", err)
			}
		})
	}
}

// probe answers the probes of a session that a WebSocket has opened, as long as
// that lasts.
func (d *datagrams) probe(w http.ResponseWriter, r *http.Request) {
	h := d.handler
	s := h.session(r)
	if s == nil {
		fail(w, http.StatusForbidden, "datagrams run only during a test: there is no such session")
		return
	}
	if s.datagrams.Swap(true) {
		fail(w, http.StatusConflict, "this session has datagrams already")
		return
	}
	c, err := d.server.Upgrade(w, r)
	if err != nil {
		s.datagrams.Store(false)
		fail(w, http.StatusBadRequest, "this is for WebTransport")
		return
	}
	k := r.Context().Value(visitKey{}).(*visit)
	k.admitted()
	defer func() { _ = k.conn.CloseWithError(0, "") }() // it was for this session only
	stop := context.AfterFunc(s.ctx, func() { _ = c.CloseWithError(0, "the session's time is up") })
	defer stop()
	why := s.echoDatagrams(s.ctx, c)
	h.log.Debug("datagrams end", "from", r.RemoteAddr, "why", why)
	_ = c.CloseWithError(0, why)
}

// echoDatagrams answers probes until the page leaves or asks too much. A probe
// that is malformed is ignored: anything may arrive in a datagram.
func (s *pageSession) echoDatagrams(ctx context.Context, c *webtransport.Session) string {
	for {
		msg, err := c.ReceiveDatagram(ctx)
		at := time.Since(s.start)
		switch {
		case err != nil:
			return "the page left"
		case len(msg) < 4 || len(msg) > mostProbe:
			continue
		case !s.may(at):
			return "too many probes"
		}
		if err := c.SendDatagram(s.answer(msg, at)); err != nil {
			return "the answer was not taken"
		}
	}
}

// close ends all connections and frees the port.
func (d *datagrams) close() {
	d.stop()
	_ = d.server.Close()
	_ = d.listener.Close()
	_ = d.transport.Close()
	_ = d.socket.Close()
}
