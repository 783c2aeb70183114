package serve

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"
)

// flow opens a load of the session that the request names. The returned context
// ends with the request, with the session or with the handler, and then the
// request's reads and writes fail at once. On false the request is answered.
func (h *Page) flow(w http.ResponseWriter, r *http.Request) (s *pageSession, ctx context.Context, done func(), ok bool) {
	w.Header().Set("Cache-Control", "no-store, no-transform")
	s = h.session(r)
	if s == nil {
		fail(w, http.StatusForbidden, "loads run only during a test: there is no such session")
		return nil, nil, nil, false
	}
	if !s.take(h.limits.Flows) {
		fail(w, http.StatusTooManyRequests, "this session has "+strconv.Itoa(h.limits.Flows)+" loads already")
		return nil, nil, nil, false
	}
	ctx, cancel := context.WithCancel(r.Context())
	control := http.NewResponseController(w)
	// An error means that the transport (a test's recorder) knows no deadlines;
	// then the loops' own look at ctx has to do.
	_ = control.SetReadDeadline(time.Time{}) // the server's own are for pages
	_ = control.SetWriteDeadline(time.Time{})
	stop := context.AfterFunc(s.ctx, func() {
		cancel()
		past := time.Unix(1, 0)
		_ = control.SetReadDeadline(past)
		_ = control.SetWriteDeadline(past)
	})
	return s, ctx, func() { stop(); cancel(); s.flows.Add(-1) }, true
}

// down sends as many bytes as are asked for, all incompressible.
func (h *Page) down(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(r.URL.Query().Get("bytes"), 10, 64)
	if err != nil || n < 1 || n > int64(h.limits.Bytes) {
		fail(w, http.StatusBadRequest, "bytes must be a number from 1 to "+strconv.FormatInt(int64(h.limits.Bytes), 10))
		return
	}
	s, ctx, done, ok := h.flow(w, r)
	if !ok {
		return
	}
	defer done()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	const piece = 64 << 10 // small enough that an end is noticed soon
	for at := 0; n > 0 && ctx.Err() == nil; {
		part := h.block[at:min(len(h.block), at+piece)]
		part = part[:min(int64(len(part)), n)]
		if !h.move(s, len(part)) {
			break // the length that was promised is missed, which the page sees as an error
		}
		if _, err := w.Write(part); err != nil {
			break
		}
		n -= int64(len(part))
		at = (at + piece) % len(h.block)
	}
	if n > 0 {
		panic(http.ErrAbortHandler) // ends the connection: the page must not take this for all
	}
}

// up takes what is sent, counts it, and answers with the number of bytes.
func (h *Page) up(w http.ResponseWriter, r *http.Request) {
	s, ctx, done, ok := h.flow(w, r)
	if !ok {
		return
	}
	defer done()
	var total int64
	buf := make([]byte, 128<<10)
	for ctx.Err() == nil {
		n, err := r.Body.Read(buf)
		total += int64(n)
		s.up.Add(int64(n))
		if !h.move(s, n) {
			fail(w, http.StatusRequestEntityTooLarge, "this session, or its address, has moved all the bytes it may")
			return
		}
		if errors.Is(err, io.EOF) {
			answer(w, http.StatusOK, map[string]int64{"bytes": total})
			return
		}
		if err != nil { // the page ends its uploads by breaking them off
			return
		}
	}
}
