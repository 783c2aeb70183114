package page

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"unbloat/guard"
)

// A Request is what a client asks.
type Request struct {
	Method string // GET, HEAD or POST
	Path   string // begins with "/"; escapes are not resolved
	Query  string // what is behind "?", as it was sent
	Header map[string]string
	Body   []byte
	From   netip.Addr // the client's address, without a zone
	At     netip.Addr // the own address that it reached
	TLS    bool
}

// A Response is the answer. Its Header needs no Content-Length.
type Response struct {
	Status int
	Header [][2]string
	Body   []byte
	// Stream, if set, writes the body piece by piece until it returns. It must return
	// when ctx ends, because the client or the server is gone, and after an error of
	// send. It is always called.
	Stream func(ctx context.Context, send func([]byte) error)
}

// limits bound what clients may use up. How many connections there are is for the
// listener to bound.
type limits struct {
	head    int           // bytes of a request without its body
	body    int64         // bytes of a request's body
	request time.Duration // for sending a request that has begun
	idle    time.Duration // between two requests
	write   time.Duration // for taking an answer, or one piece of an answer that goes on
}

// usual limits are enough for the browsers of a home.
func usual() limits {
	return limits{head: 8 << 10, body: 64 << 10, request: 5 * time.Second, idle: time.Minute, write: 10 * time.Second}
}

// Serve answers the connections of a listener until ctx ends. Then it closes the
// listener and all connections, and waits for their requests. It speaks TLS if t is set.
func (a *App) Serve(ctx context.Context, l net.Listener, t *tls.Config) error {
	return (&server{limits: usual(), handle: a.Handle, panicked: a.o.Panicked}).serve(ctx, l, t)
}

// A server gives handle whole requests of few bytes, and refuses what no browser sends
// to a page: HTTP/1.0, chunked bodies, header fields that come twice.
type server struct {
	limits
	handle   func(context.Context, *Request) Response
	panicked func(what any, stack []byte)

	mu      sync.Mutex
	closing bool
	running sync.WaitGroup // requests
}

// A connKey is the key of a connection in its requests' contexts.
type connKey struct{}

func (s *server) serve(ctx context.Context, l net.Listener, t *tls.Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	const slack = 4 << 10 // net/http takes so much more
	h := &http.Server{
		Handler: s, ReadHeaderTimeout: s.request, IdleTimeout: s.idle, MaxHeaderBytes: s.head - slack,
		ErrorLog:    log.New(io.Discard, "", 0), // what strangers do wrong would fill the log
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		Protocols:   new(http.Protocols),
	}
	h.Protocols.SetHTTP1(true)
	context.AfterFunc(ctx, func() { h.Close() })
	if t != nil {
		l = tls.NewListener(l, t)
	}
	err := h.Serve(l)
	cancel()
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.running.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("accept a connection: %w", err)
}

// ServeHTTP answers one request.
func (s *server) ServeHTTP(w http.ResponseWriter, h *http.Request) {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return
	}
	s.running.Add(1)
	s.mu.Unlock()
	defer s.running.Done()
	by := http.NewResponseController(w)
	r, refused := s.read(by, h)
	if r == nil {
		_ = by.SetWriteDeadline(time.Now().Add(s.write))
		w.Header().Set("Connection", "close")
		w.WriteHeader(refused)
		return
	}
	s.answer(w, by, h, s.handle(h.Context(), r))
}

// read reads a request; refused is the status of one that cannot be taken.
func (s *server) read(by *http.ResponseController, h *http.Request) (r *Request, refused int) {
	switch {
	case !h.ProtoAtLeast(1, 1):
		return nil, http.StatusHTTPVersionNotSupported
	case h.Method != "GET" && h.Method != "HEAD" && h.Method != "POST", len(h.TransferEncoding) > 0:
		return nil, http.StatusNotImplemented
	case !strings.HasPrefix(h.RequestURI, "/"), h.Host == "":
		return nil, http.StatusBadRequest
	case h.ContentLength > s.body:
		return nil, http.StatusRequestEntityTooLarge
	}
	conn := h.Context().Value(connKey{}).(net.Conn) // of serve
	r = &Request{Method: h.Method, Header: map[string]string{"host": h.Host}, TLS: h.TLS != nil,
		From: guard.RemoteAddress(conn.RemoteAddr()), At: guard.RemoteAddress(conn.LocalAddr())}
	r.Path, r.Query, _ = strings.Cut(h.RequestURI, "?")
	for name, values := range h.Header {
		if len(values) > 1 { // two that differ would be read differently by others
			return nil, http.StatusBadRequest
		}
		r.Header[strings.ToLower(name)] = values[0]
	}
	if h.ContentLength == 0 {
		return r, 0
	}
	late := time.Now().Add(s.request)
	_, _ = by.SetReadDeadline(late), by.SetWriteDeadline(late) // it may be told to go on
	body, err := io.ReadAll(h.Body)                            // as long as its length says
	if err != nil {
		return nil, http.StatusRequestTimeout
	}
	_ = by.SetReadDeadline(time.Time{})
	r.Body = body
	return r, 0
}

// answer sends an answer.
func (s *server) answer(w http.ResponseWriter, by *http.ResponseController, h *http.Request, out Response) {
	for _, x := range out.Header {
		w.Header().Add(x[0], x[1])
	}
	if out.Stream == nil {
		if out.Status != http.StatusNotModified { // its length would be that of what is not sent
			w.Header().Set("Content-Length", strconv.Itoa(len(out.Body)))
		}
		_ = by.SetWriteDeadline(time.Now().Add(s.write))
		w.WriteHeader(out.Status)
		_, _ = w.Write(out.Body) // to HEAD it sends none
		return
	}
	w.Header().Set("Connection", "close")
	ctx, cancel := context.WithCancel(h.Context())
	defer cancel()
	send := func(b []byte) error {
		_ = by.SetWriteDeadline(time.Now().Add(s.write))
		if _, err := w.Write(b); err != nil {
			return err
		}
		return by.Flush()
	}
	w.WriteHeader(out.Status)
	if h.Method == "HEAD" { // what the answer holds is given back all the same
		send = func([]byte) error { return http.ErrBodyNotAllowed }
	}
	guard.Contain(func() { out.Stream(ctx, send) }, s.panicked)
}
