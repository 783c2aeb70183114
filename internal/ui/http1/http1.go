// Package http1 serves a strict part of HTTP/1.1, for pages of routers: small
// requests, whole bodies, and answers that go on (Server-Sent Events). It is a
// quarter of the size of net/http, which a router's flash has no room for. What it
// does not understand it refuses, and closes the connection: no chunked requests, no
// folded headers, no HTTP/1.0.
//
// What a client can use up is bounded: the bytes of a request, and the time that it takes
// to send one or to take an answer. How many connections there are is for the listener to
// bound.
package http1

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"unbloat/internal/door"
)

// Limits bound what clients may use up.
type Limits struct {
	Head    int           // bytes of a request without its body
	Body    int           // bytes of a request's body
	Request time.Duration // for sending a request that has begun
	Idle    time.Duration // between two requests
	Write   time.Duration // for taking an answer, or one piece of an answer that goes on
}

// DefaultLimits are enough for the browsers of a home.
func DefaultLimits() Limits {
	return Limits{Head: 8 << 10, Body: 64 << 10, Request: 5 * time.Second, Idle: time.Minute, Write: 10 * time.Second}
}

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

// A Server answers requests.
type Server struct {
	Limits Limits
	// Handle answers one request. It may be called several times at once.
	Handle func(ctx context.Context, r *Request) Response
	// TLS encrypts a connection; nil: none is.
	TLS func(net.Conn) net.Conn
	// Panicked is told what a request made Handle panic with; nil: nobody.
	Panicked func(any)

	mu   sync.Mutex
	open map[*conn]struct{}
	wg   sync.WaitGroup
}

// A conn is one connection.
type conn struct {
	net.Conn
	s        *Server
	in       *bufio.Reader
	from, at netip.Addr
}

// Serve answers the connections of a listener until ctx ends. Then it closes the
// listener and all connections, and waits for their requests.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	s.mu.Lock()
	s.open = map[*conn]struct{}{}
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer s.wg.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		l.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		for c := range s.open {
			c.Close()
		}
	})
	defer stop()
	for {
		nc, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept a connection: %w", err)
		}
		s.accept(ctx, nc)
	}
}

func (s *Server) accept(ctx context.Context, nc net.Conn) {
	c := &conn{Conn: nc, s: s, from: door.Address(nc.RemoteAddr()), at: door.Address(nc.LocalAddr())}
	if s.TLS != nil {
		c.Conn = s.TLS(nc) // it shakes hands when it is read
	}
	s.mu.Lock()
	s.open[c] = struct{}{}
	s.mu.Unlock()
	s.wg.Go(func() {
		defer s.leave(c)
		c.run(ctx)
	})
}

func (s *Server) leave(c *conn) {
	c.Conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

// run answers the requests of a connection, one after the other.
func (c *conn) run(ctx context.Context) {
	c.in = bufio.NewReaderSize(c.Conn, 2<<10)
	for first := true; ; first = false {
		idle := c.s.Limits.Idle
		if first {
			idle = c.s.Limits.Request
		}
		_ = c.SetDeadline(time.Now().Add(idle)) // TLS writes before we do
		if _, err := c.in.Peek(1); err != nil {
			return
		}
		_ = c.SetReadDeadline(time.Now().Add(c.s.Limits.Request))
		r, refused := c.read()
		if r == nil && refused == 0 {
			return
		}
		if refused != 0 {
			_ = c.write(&Request{}, Response{Status: refused}, false)
			c.linger()
			return
		}
		r.TLS = c.s.TLS != nil
		out := c.answer(ctx, r)
		keep := r.Header["connection"] != "close" && ctx.Err() == nil
		if out.Stream != nil {
			c.stream(ctx, r, out)
			return
		}
		if c.write(r, out, keep) != nil || !keep {
			return
		}
	}
}

// answer asks the handler. What panics is an error of the program, not of the daemon.
func (c *conn) answer(ctx context.Context, r *Request) (out Response) {
	defer func() {
		if p := recover(); p != nil {
			if c.s.Panicked != nil {
				c.s.Panicked(p)
			}
			out = Response{Status: 500}
		}
	}()
	return c.s.Handle(ctx, r)
}

// linger takes a little of what the client still sends: to close at once would throw
// away the answer that says what was wrong.
func (c *conn) linger() {
	const most, patience = 64 << 10, time.Second
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		_ = h.CloseWrite()
	}
	_ = c.SetReadDeadline(time.Now().Add(min(patience, c.s.Limits.Request)))
	_, _ = io.CopyN(io.Discard, c.in, most)
}

// write sends an answer.
func (c *conn) write(r *Request, out Response, keep bool) error {
	b := head(out)
	if out.Status != 304 { // its length would be that of what is not sent
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, int64(len(out.Body)), 10)
		b = append(b, "\r\n"...)
	}
	if !keep {
		b = append(b, "Connection: close\r\n"...)
	}
	b = append(b, "\r\n"...)
	if r.Method != "HEAD" {
		b = append(b, out.Body...)
	}
	_ = c.SetWriteDeadline(time.Now().Add(c.s.Limits.Write))
	_, err := c.Write(b)
	return err
}

var errHead = errors.New("the answer to HEAD has no body")

// stream sends an answer that goes on. Its end is that of the connection.
func (c *conn) stream(ctx context.Context, r *Request, out Response) {
	send := func(b []byte) error {
		_ = c.SetWriteDeadline(time.Now().Add(c.s.Limits.Write))
		_, err := c.Write(b)
		return err
	}
	failed := send(append(head(out), "Connection: close\r\n\r\n"...))
	if r.Method == "HEAD" {
		failed = errHead
	}
	if failed != nil { // what the answer holds is given back all the same
		send = func([]byte) error { return failed }
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_ = c.SetReadDeadline(time.Time{})
	gone := make(chan struct{})
	go func() { // whatever it sends, or its end, ends the answer
		defer close(gone)
		defer cancel()
		_, _ = c.in.Peek(1)
	}()
	defer func() {
		if p := recover(); p != nil && c.s.Panicked != nil {
			c.s.Panicked(p)
		}
		c.Close()
		<-gone
	}()
	out.Stream(ctx, send)
}

// head begins an answer.
func head(out Response) []byte {
	b := make([]byte, 0, 512+len(out.Body))
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(out.Status), 10)
	b = append(b, ' ')
	b = append(b, phrase(out.Status)...)
	b = append(b, "\r\n"...)
	for _, h := range out.Header {
		b = append(b, h[0]...)
		b = append(b, ": "...)
		b = append(b, h[1]...)
		b = append(b, "\r\n"...)
	}
	return b
}

// phrase names a status, for people who look at the wire.
func phrase(status int) string {
	switch status {
	case 200:
		return "OK"
	case 304:
		return "Not Modified"
	case 400:
		return "Bad Request"
	case 403:
		return "Forbidden"
	case 404:
		return "Not Found"
	case 408:
		return "Request Timeout"
	case 413:
		return "Content Too Large"
	case 431:
		return "Request Header Fields Too Large"
	case 500:
		return "Internal Server Error"
	}
	return "Answer"
}
