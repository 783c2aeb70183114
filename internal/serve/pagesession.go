package serve

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"unbloat/guard"
	"unbloat/unit"
)

// A session is one visitor's test. It lives as long as its WebSocket.
type pageSession struct {
	token  string
	start  time.Time
	addr   netip.Addr // whose account it is booked on
	from   netip.Addr // where it comes from
	leave  func()     // the account
	ctx    context.Context
	end    context.CancelFunc
	up     atomic.Int64 // bytes that uploads brought
	moved  atomic.Int64 // bytes both ways
	flows  atomic.Int32
	probes atomic.Int64

	datagrams atomic.Bool // it has a connection for them
	stored    atomic.Bool // its one result has been kept
}

var (
	errBusy   = errors.New("this server is busy with other tests; please try again in a minute")
	errClosed = errors.New("this server is stopping")
)

// begin opens a session. finish must follow.
func (h *Page) begin(r *http.Request) (*pageSession, error) {
	s := &pageSession{token: rand.Text(), start: h.now(), addr: clientOf(r), from: guard.SourceOf(r.RemoteAddr)}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() != nil {
		return nil, errClosed
	}
	if len(h.sessions) >= h.limits.Sessions || h.perAddr[s.addr] >= h.limits.PerAddress {
		return nil, errBusy
	}
	var err error
	if s.leave, err = h.account.Enter(s.from); err != nil {
		return nil, err
	}
	s.ctx, s.end = context.WithTimeout(h.ctx, h.limits.Session)
	h.sessions[s.token] = s
	h.perAddr[s.addr]++
	h.wg.Add(1)
	return s, nil
}

func (h *Page) finish(s *pageSession) {
	s.end()
	s.leave()
	h.mu.Lock()
	delete(h.sessions, s.token)
	if h.perAddr[s.addr]--; h.perAddr[s.addr] <= 0 {
		delete(h.perAddr, s.addr)
	}
	h.mu.Unlock()
	h.wg.Done()
}

// session returns the session that a request names, or nil.
func (h *Page) session(r *http.Request) *pageSession {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sessions[r.URL.Query().Get("session")]
}

// take opens a flow of the session, if it may have one more.
func (s *pageSession) take(limit int) bool {
	if s.flows.Add(1) <= int32(limit) {
		return true
	}
	s.flows.Add(-1)
	return false
}

// move books bytes of a session's load; false if it has had enough.
func (h *Page) move(s *pageSession, n int) bool {
	return s.moved.Add(int64(n)) <= int64(h.limits.Bytes) && h.account.Spend(s.from, unit.Size(n))
}

// clientOf returns on whose account a request is booked.
func clientOf(r *http.Request) netip.Addr { return guard.Charged(guard.SourceOf(r.RemoteAddr)) }
