package serve

import (
	"bufio"
	"net"
	"net/http"

	"unbloat/internal/netio"
)

// coalescing is a response whose connection, once taken over by a WebSocket,
// sends a large frame's head and its payload by one system call: apart, the
// head would be a packet of its own. Frames of bulk are sent without copying it.
type coalescing struct {
	http.ResponseWriter
	bulk *netio.Bulk
}

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
	return &headed{peeked: p, bulk: w.bulk}, rw, nil
}

// headed holds the head of a large frame back until its payload comes. Writes
// are of one goroutine at a time.
type headed struct {
	*peeked
	bulk *netio.Bulk
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
