package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"unbloat/guard"
	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/protocol/web"
	"unbloat/unit"
)

// webServer serves all protocols over HTTP, with HTTP and HTTPS on one port:
// ndt7, LibreSpeed, Cloudflare's and networkQuality's.
type webServer struct {
	server  *Server
	front   *front
	page    http.Handler // nil: none
	servers http.Handler // nil: none
	http    *http.Server
	key     keyCheck
	bulk    *netio.Bulk // the longest message of ndt7
}

// connKey is the context's key for a request's connection.
type connKey struct{}

func listenWeb(s *Server, address string, o Options) (*webServer, error) {
	a, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return nil, err
	}
	l, err := o.Sockets.stream(a)
	if err != nil {
		return nil, err
	}
	w := &webServer{server: s, page: o.Page, servers: o.Servers, key: keyCheck{o.Key}, bulk: netio.NewBulk(web.MaxMessage)}
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	if o.Cert != nil {
		config.Certificates = []tls.Certificate{*o.Cert}
	}
	w.front = newFront(s, l, config, o.Cert != nil)
	w.http = &http.Server{
		Handler: w.mux(), TLSConfig: config, MaxHeaderBytes: 16 << 10,
		ReadHeaderTimeout: s.limits.Handshake, ConnState: w.watch,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: 64, MaxReceiveBufferPerStream: int(streamWindow), MaxReceiveBufferPerConnection: 4 * int(streamWindow),
			MaxReadFrameSize: 16 << 10, // the least there is: a connection keeps the memory of its largest frame
			WriteByteTimeout: s.limits.Stall,
		},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		ErrorLog:    s.refusals.httpLog(s.log),
	}
	return w, nil
}

func (w *webServer) name() string { return protocolWeb }

func (w *webServer) addr() netip.AddrPort { return w.front.l.Addr().(*net.TCPAddr).AddrPort() }

func (w *webServer) close() {
	w.front.Close()
	_ = w.http.Close() // closes every connection
}

func (w *webServer) serve() error {
	w.front.wg.Go(w.front.accept)
	err := w.http.Serve(w.front)
	w.front.Close()
	w.front.wg.Wait()
	w.front.handlers.Wait()
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// mux routes every endpoint. LibreSpeed's have several names, as its backends
// do.
func (w *webServer) mux() http.Handler {
	m := http.NewServeMux()
	for _, base := range []string{"/", "/backend/"} {
		for _, end := range []string{"", ".php"} {
			m.HandleFunc("GET "+base+"garbage"+end, w.garbage)
			m.HandleFunc(base+"empty"+end, w.swallow)
			m.HandleFunc("GET "+base+"getIP"+end, w.whoAmI)
		}
	}
	if w.servers != nil {
		m.Handle("GET /servers.json", w.servers)
	}
	m.HandleFunc("GET /__down", w.cloudflareDown)
	m.HandleFunc("/__up", w.cloudflareUp)
	m.HandleFunc("GET "+web.WellKnown, w.nqConfig)
	m.HandleFunc("GET /config", w.nqConfig) // the path of older servers
	m.HandleFunc("GET /nq/small", func(rw http.ResponseWriter, r *http.Request) { w.send(rw, r, 1) })
	m.HandleFunc("GET /nq/large", func(rw http.ResponseWriter, r *http.Request) { w.send(rw, r, nqLarge) })
	m.HandleFunc("/nq/upload", w.swallow)
	m.HandleFunc("GET "+web.DownloadPath, w.ndt7(w.ndt7Download))
	m.HandleFunc("GET "+web.UploadPath, w.ndt7(w.ndt7Upload))
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.front.handlers.Add(1)
		defer w.front.handlers.Done()
		if p := peekedOf(r); p != nil {
			p.asked.Store(true)
		}
		free := w.begin(rw, r)
		defer free()
		w.route(m, rw, r)
		r.Body.Close() // what was not read of it waits no longer
		if r.ProtoMajor > 1 {
			_ = http.NewResponseController(rw).Flush() // it is charged until its answer is taken
		}
	})
}

// route answers a request: the page for people, a protocol's endpoint, or why not.
func (w *webServer) route(endpoints http.Handler, rw http.ResponseWriter, r *http.Request) {
	people := w.page != nil && forPeople(r.URL.Path)
	if !people {
		h := rw.Header()
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Access-Control-Allow-Headers", "*")
		h.Set("Access-Control-Expose-Headers", "Server-Timing") // Cloudflare's client subtracts it
		h.Set("Timing-Allow-Origin", "*")
		h.Set("Cache-Control", "no-store, no-transform")
	}
	switch {
	case r.ContentLength != 0 && r.Method != http.MethodPost && r.Method != http.MethodPut:
		w.server.refusals.add(protocolWeb, "body")
		http.Error(rw, "a "+r.Method+" takes no body here", http.StatusRequestEntityTooLarge)
	case people && r.URL.Path == keyPath:
		if !w.key.serve(rw, r) {
			w.refused(r)
		}
	case !people && r.Method == http.MethodOptions:
		rw.WriteHeader(http.StatusNoContent)
	case !(people && w.key.free(r)) && !w.key.allows(r):
		w.refused(r)
		w.key.refuse(rw)
	case people: // with its own strict headers and limits
		seen := &answered{ResponseWriter: rw}
		w.page.ServeHTTP(seen, r)
		if seen.status == http.StatusTooManyRequests || seen.status == http.StatusServiceUnavailable {
			w.server.refusals.add(protocolWeb, "page busy")
		}
	default:
		endpoints.ServeHTTP(rw, r)
	}
}

// mostIdle is how long a connection may wait for its next request at most.
const mostIdle = time.Minute

// watch closes connections that are idle for too long. net/http could do it, but when a
// connection of HTTP/2 ends with open requests its timer begins anew (closeStream), and
// keeps some 70 kB of the connection, which nobody is charged for, until it has run out.
func (w *webServer) watch(c net.Conn, state http.ConnState) {
	p := peekedIn(c)
	if p == nil {
		return
	}
	if p.idle != nil {
		p.idle.Stop()
	}
	if state == http.StateIdle {
		p.idle = time.AfterFunc(min(w.server.limits.Idle, mostIdle), func() { c.Close() })
	}
}

// streamWindow is what a client may send of a body over HTTP/2 before the server
// has read any of it. A load of a few streams must fill the queue of its line.
const streamWindow = 8 * unit.MB

// begin bounds a request in time, until its handler knows better. One of HTTP/2
// takes what a connection does, and its body may wait in memory: it is charged to
// its address until free, and beyond the limits it is cut off.
func (w *webServer) begin(rw http.ResponseWriter, r *http.Request) (free func()) {
	s, control := w.server, http.NewResponseController(rw)
	end := time.Now().Add(s.limits.Stall)
	_ = control.SetWriteDeadline(end) // an error means that the connection has ended
	body := unit.Size(r.ContentLength)
	if body < 0 || body > streamWindow {
		body = streamWindow
	}
	if body > 0 {
		_ = control.SetReadDeadline(end)
	}
	if r.ProtoMajor < 2 {
		return func() {}
	}
	free, err := s.connect(remote(r), protocolWeb, body)
	if err != nil {
		s.log.Debug("refused", "protocol", protocolWeb, "from", r.RemoteAddr, "path", r.URL.Path, "reason", err)
		panic(http.ErrAbortHandler)
	}
	return free
}

// forPeople reports whether a path belongs to the page, and not to a protocol.
func forPeople(path string) bool {
	if path == "/" || path == "/favicon.svg" {
		return true
	}
	for _, prefix := range []string{"/assets/", "/r/", "/api/"} {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

// refused counts a request without the key.
func (w *webServer) refused(r *http.Request) {
	w.server.log.Debug("refused", "protocol", protocolWeb, "from", r.RemoteAddr, "path", r.URL.Path, "reason", errNoKey)
	w.server.refusals.add(protocolWeb, "key")
}

// remote returns the client's address.
func remote(r *http.Request) netip.Addr { return guard.SourceOf(r.RemoteAddr) }

// A front accepts connections and detects TLS by the first byte. Each
// connection has its own goroutine, so that a silent one does not delay others.
type front struct {
	server   *Server
	l        *net.TCPListener
	config   *tls.Config
	secure   bool
	ready    chan net.Conn
	done     chan struct{}
	once     sync.Once
	wg       sync.WaitGroup
	handlers sync.WaitGroup
}

func newFront(s *Server, l *net.TCPListener, config *tls.Config, secure bool) *front {
	return &front{
		server: s, l: l, config: config, secure: secure, ready: make(chan net.Conn), done: make(chan struct{}),
	}
}

// accept accepts connections until the front is closed.
func (f *front) accept() {
	for {
		c, err := f.l.AcceptTCP()
		if err != nil {
			if retry(err) {
				continue
			}
			f.Close()
			return
		}
		k, err := f.server.client(c, protocolWeb)
		if err != nil {
			continue
		}
		f.wg.Go(func() { f.sniff(k) })
	}
}

// sniff reads the first byte and passes the connection on.
func (f *front) sniff(c *client) {
	_ = c.SetReadDeadline(time.Now().Add(f.server.limits.Handshake))
	stop := make(chan struct{})
	defer close(stop)
	f.wg.Go(func() { // Close ends the wait
		select {
		case <-stop:
		case <-f.done:
			_ = c.SetReadDeadline(time.Unix(1, 0))
		}
	})
	p := &peeked{client: c, server: f.server}
	if n, err := c.Read(p.first[:]); n < 1 {
		if !errors.Is(err, io.EOF) { // browsers open connections in advance, and may close them unused
			f.server.log.Debug("refused", "protocol", protocolWeb, "from", c.RemoteAddr(), "reason", fmt.Errorf("said nothing: %w", err))
			f.server.refusals.add(protocolWeb, "silent")
		}
		p.asked.Store(true)
		p.Close()
		return
	}
	p.left = 1
	_ = c.SetReadDeadline(time.Time{})
	const handshake = 0x16 // the first byte of TLS (RFC 8446 section 5.1)
	var conn net.Conn = p
	if p.first[0] == handshake && f.secure {
		conn = tls.Server(p, f.config)
	}
	select {
	case f.ready <- conn:
	case <-f.done:
		p.Close()
	}
}

// Accept implements net.Listener.
func (f *front) Accept() (net.Conn, error) {
	select {
	case c := <-f.ready:
		return c, nil
	case <-f.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (f *front) Close() error {
	f.once.Do(func() { close(f.done); f.l.Close() })
	return nil
}

// Addr implements net.Listener.
func (f *front) Addr() net.Addr { return f.l.Addr() }

// peeked is a connection whose first byte was read already.
type peeked struct {
	*client
	first [1]byte
	left  int
	once  sync.Once

	server *Server
	asked  atomic.Bool // a whole request has arrived
	idle   *time.Timer // closes it; only of the goroutine that serves it
}

func (p *peeked) Read(b []byte) (int, error) {
	if p.left > 0 && len(b) > 0 {
		p.left = 0
		b[0] = p.first[0]
		return 1, nil
	}
	return p.TCPConn.Read(b)
}

// ReadFrom lets the kernel copy, where it can.
func (p *peeked) ReadFrom(r io.Reader) (int64, error) { return p.TCPConn.ReadFrom(r) }

func (p *peeked) Close() error {
	p.once.Do(func() {
		s := p.server
		if !p.asked.Load() { // too slow, cut off, too large, or not HTTP
			s.log.Debug("refused", "protocol", protocolWeb, "from", p.RemoteAddr(), "reason", "no whole request came")
			s.refusals.add(protocolWeb, "no request")
		}
	})
	return p.client.Close()
}

// answered records the status of an answer.
type answered struct {
	http.ResponseWriter
	status int
}

// Unwrap gives http.ResponseController the inner ResponseWriter.
func (a *answered) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (a *answered) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

// peekedOf returns the connection of a request, nil if there is none.
func peekedOf(r *http.Request) *peeked {
	c, _ := r.Context().Value(connKey{}).(net.Conn)
	return peekedIn(c)
}

// peekedIn returns what a connection is in the end, nil if it is none of a front.
func peekedIn(c net.Conn) *peeked {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	p, _ := c.(*peeked)
	return p
}

// tcpOf returns the TCP connection of a request, nil if there is none.
func tcpOf(r *http.Request) *net.TCPConn {
	if p := peekedOf(r); p != nil {
		return p.TCPConn
	}
	return nil
}
