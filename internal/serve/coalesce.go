package serve

import (
	"bufio"
	"net"
	"net/http"

	"unbloat/internal/measure/netio"
)

// coalescing is a response for WebSockets: on the connection that was taken
// over, a large frame's head and its payload are sent by one system call.
// Otherwise the head would be a packet of its own. Bulk frames are sent without
// being copied.
type coalescing struct {
	http.ResponseWriter
	bulk *netio.Bulk
}

// Unwrap gives http.ResponseController the inner ResponseWriter.
func (w coalescing) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack implements http.Hijacker.
func (w coalescing) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	p, ok := c.(*peeked)
	if !ok {
		return c, rw, nil // TLS makes its own records
	}
	return &headed{peeked: p, bulk: w.bulk}, rw, nil
}

// headed holds the head of a large frame back until its payload comes. Only one
// goroutine at a time writes.
type headed struct {
	*peeked
	bulk *netio.Bulk
	head []byte
}

// bigFrame reports whether b is the head of a binary frame without mask, with a
// length of 8 bytes (RFC 6455 section 5.2). Its payload is the next write.
func bigFrame(b []byte) bool { return len(b) == 10 && b[0] == 0x82 && b[1] == 127 }

func (h *headed) Write(b []byte) (int, error) {
	if len(h.head) == 0 {
		if bigFrame(b) {
			h.head = append(h.head, b...)
			return len(b), nil
		}
		return h.peeked.Write(b)
	}
	held, n, err := len(h.head), 0, error(nil)
	if h.bulk.Begins(b) {
		n, err = h.bulk.Write(h.TCPConn, h.head, len(b))
	} else {
		parts := net.Buffers{h.head, b}
		var all int64
		all, err = parts.WriteTo(h.TCPConn)
		n = int(all)
	}
	h.head = h.head[:0]
	return max(n-held, 0), err
}
