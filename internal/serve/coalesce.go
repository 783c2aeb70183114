package serve

import (
	"bufio"
	"net"
	"net/http"
)

// coalescing is a response whose connection, once taken over by a WebSocket,
// sends a large frame's head and its payload by one system call: apart, the
// head would be a packet of its own.
type coalescing struct{ http.ResponseWriter }

// Unwrap lets http.ResponseController reach what is inside.
func (w coalescing) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack implements http.Hijacker.
func (w coalescing) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	p, ok := c.(*peeked)
	if !ok {
		return c, rw, nil // TLS makes records of its own
	}
	return &headed{peeked: p}, rw, nil
}

// headed holds the head of a large frame back until its payload comes. Writes
// are of one goroutine at a time.
type headed struct {
	*peeked
	head []byte
}

// bigFrame is the head of a binary frame without mask whose length takes 8
// bytes (RFC 6455 section 5.2): its payload is written next, by itself.
func bigFrame(b []byte) bool { return len(b) == 10 && b[0] == 0x82 && b[1] == 127 }

func (h *headed) Write(b []byte) (int, error) {
	if len(h.head) == 0 {
		if bigFrame(b) {
			h.head = append(h.head, b...)
			return len(b), nil
		}
		return h.peeked.Write(b)
	}
	parts := net.Buffers{h.head, b}
	held := len(h.head)
	n, err := parts.WriteTo(h.TCPConn)
	h.head = h.head[:0]
	return max(int(n)-held, 0), err
}
