package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"unbloat/internal/measure/protocol/web"
	"unbloat/unit"
)

const (
	garbageUnit    = 1 << 20 // of LibreSpeed's ckSize
	garbageDefault = 4
	garbageMax     = 1024
	cloudflareMax  = 10 * unit.GB
	nqLarge        = 10 * unit.GB
	// freeSize is the size of requests that need no session: probes.
	freeSize = 4 * unit.KB
)

// garbage is LibreSpeed's download.
func (w *webServer) garbage(rw http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.URL.Query().Get("ckSize"))
	if err != nil || n < 1 {
		n = garbageDefault
	}
	rw.Header().Set("Content-Disposition", "attachment; filename=random.dat")
	w.send(rw, r, unit.Size(min(n, garbageMax))*garbageUnit)
}

// whoAmI is LibreSpeed's getIP.
func (w *webServer) whoAmI(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Content-Type", "application/json")
	b, err := json.Marshal(map[string]string{"processedString": remote(r).String(), "rawIspInfo": ""})
	if err != nil { // cannot happen: a map of strings
		panic("serve: marshal: " + err.Error())
	}
	_, _ = rw.Write(b) // the client may be gone
}

// cloudflareDown is Cloudflare's download.
func (w *webServer) cloudflareDown(rw http.ResponseWriter, r *http.Request) {
	n, err := strconv.ParseInt(r.URL.Query().Get("bytes"), 10, 64)
	if err != nil || n < 0 || n > int64(cloudflareMax) {
		w.server.refusals.add(protocolWeb, "malformed")
		http.Error(rw, fmt.Sprintf("bytes must be 0 to %d", int64(cloudflareMax)), http.StatusBadRequest)
		return
	}
	rw.Header().Set("Server-Timing", "cfRequestDuration;dur=0.1")
	w.send(rw, r, unit.Size(n))
}

// cloudflareUp is Cloudflare's upload: the answer follows the whole body.
func (w *webServer) cloudflareUp(rw http.ResponseWriter, r *http.Request) {
	began := w.server.clock.Now()
	if !w.take(rw, r) {
		return
	}
	rw.Header().Set("Server-Timing", fmt.Sprintf("cfRequestDuration;dur=%.3f", unit.Ms(w.server.clock.Now().Sub(began))))
	rw.WriteHeader(http.StatusOK)
}

// swallow reads an upload and answers with an empty body: for the uploads of
// LibreSpeed and networkQuality, and for LibreSpeed's ping.
func (w *webServer) swallow(rw http.ResponseWriter, r *http.Request) {
	if w.take(rw, r) {
		rw.WriteHeader(http.StatusOK)
	}
}

// nqConfig returns the endpoints for networkQuality's clients.
func (w *webServer) nqConfig(rw http.ResponseWriter, r *http.Request) {
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	b, err := json.Marshal(web.MakeRPMConfig(scheme + r.Host))
	if err != nil { // cannot happen: structs of strings
		panic("serve: marshal: " + err.Error())
	}
	rw.Header().Set("Content-Type", "application/json")
	_, _ = rw.Write(b) // the client may be gone
}

// errBudget ends a request that takes too long or moves too many bytes.
var errBudget = errors.New("the time of a request or the bytes of this address are used up")

// bodyReason returns the metrics' name of the error that ended a body.
func bodyReason(err error) string {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return "stalled"
	}
	return "truncated"
}

// cut logs and counts a request that is cut off.
func (w *webServer) cut(r *http.Request, reason string, err error) {
	w.server.log.Debug("request cut off", "protocol", protocolWeb, "from", r.RemoteAddr, "path", r.URL.Path, "reason", err)
	w.server.refusals.add(protocolWeb, reason)
}

// enter opens a session for a request, or answers why that was refused.
func (w *webServer) enter(rw http.ResponseWriter, r *http.Request) (leave func(moved int64), ok bool) {
	s, from, began := w.server, remote(r), w.server.clock.Now()
	left, err := s.admit(from, protocolWeb)
	if err != nil {
		s.log.Debug("refused", "protocol", protocolWeb, "from", r.RemoteAddr, "path", r.URL.Path, "reason", err)
		rw.Header().Set("Retry-After", "60")
		http.Error(rw, err.Error(), http.StatusTooManyRequests)
		return nil, false
	}
	return func(moved int64) {
		lasted := s.clock.Now().Sub(began)
		left()
		s.log.Debug("request", "from", r.RemoteAddr, "path", r.URL.Path, "bytes", moved, "lasted", lasted.Round(time.Millisecond))
	}, true
}

// send sends n bytes.
func (w *webServer) send(rw http.ResponseWriter, r *http.Request, n unit.Size) {
	moved := int64(0)
	if n > freeSize {
		leave, ok := w.enter(rw, r)
		if !ok {
			return
		}
		defer func() { leave(moved) }()
	}
	rw.Header().Set("Content-Type", "application/octet-stream")
	rw.Header().Set("Content-Length", strconv.FormatInt(int64(n), 10))
	if r.Method == http.MethodHead {
		return
	}
	s, control, bulk := w.server, http.NewResponseController(rw), w.bulk.Bytes()
	end := time.Now().Add(s.limits.Load)
	for moved < int64(n) {
		part := bulk[:min(int64(n)-moved, int64(len(bulk)))]
		if time.Now().After(end) || !s.spend(remote(r), unit.Size(len(part))) {
			w.cut(r, "budget during a session", errBudget)
			panic(http.ErrAbortHandler) // cuts the body off, since its length was announced
		}
		_ = control.SetWriteDeadline(time.Now().Add(s.limits.Stall))
		k, err := rw.Write(part)
		moved += int64(k)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			w.cut(r, "stalled", err)
		}
		if err != nil {
			return // the client has closed
		}
	}
}

// take reads a request's body. It returns false if it has answered the request
// itself.
func (w *webServer) take(rw http.ResponseWriter, r *http.Request) bool {
	if r.ContentLength == 0 {
		return true
	}
	moved := int64(0)
	leave, ok := w.enter(rw, r)
	if !ok {
		return false
	}
	defer func() { leave(moved) }()
	s, control := w.server, http.NewResponseController(rw)
	end := time.Now().Add(s.limits.Load)
	buf := make([]byte, 256<<10)
	for {
		_ = control.SetReadDeadline(time.Now().Add(s.limits.Stall))
		n, err := r.Body.Read(buf)
		moved += int64(n)
		if err == io.EOF {
			_ = control.SetReadDeadline(time.Time{})
			return true
		}
		if err != nil {
			w.cut(r, bodyReason(err), err)
			return false
		}
		if time.Now().After(end) || !s.spend(remote(r), unit.Size(n)) {
			w.cut(r, "budget during a session", errBudget)
			http.Error(rw, errBudget.Error(), http.StatusTooManyRequests)
			return false
		}
	}
}
