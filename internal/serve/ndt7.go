package serve

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/protocol/web"
	"unbloat/unit"
)

// An ndt7Test is one subtest of ndt7 on its WebSocket.
type ndt7Test struct {
	web   *webServer
	conn  *websocket.Conn
	r     *http.Request
	name  string
	began unit.Instant
	moved atomic.Int64
}

// ndt7 upgrades a request and runs a subtest, bounded in time.
func (w *webServer) ndt7(run func(context.Context, *ndt7Test) error) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		leave, ok := w.enter(rw, r)
		if !ok {
			return
		}
		t := &ndt7Test{web: w, r: r, name: r.URL.Path[len("/ndt/v7/"):], began: w.server.clock.Now()}
		defer func() { leave(t.moved.Load()) }()
		c, err := websocket.Accept(coalescing{rw, w.bulk}, r, &websocket.AcceptOptions{
			Subprotocols: []string{web.Subprotocol}, InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled,
		})
		if err != nil {
			w.server.refusals.add(protocolWeb, "malformed")
			return // Accept has sent an error
		}
		defer c.CloseNow()
		c.SetReadLimit(int64(web.MaxAccept))
		if c.Subprotocol() != web.Subprotocol {
			w.server.refusals.add(protocolWeb, "malformed")
			_ = c.Close(websocket.StatusPolicyViolation, "the subprotocol must be "+web.Subprotocol)
			return
		}
		t.conn = c
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), web.MaxDuration)
		defer cancel()
		go func() { // ends with ctx; a server that stops ends the test
			select {
			case <-w.front.done:
				cancel()
			case <-ctx.Done():
			}
		}()
		err = run(ctx, t)
		w.server.log.Info("session", "protocol", "ndt7", "test", t.name, "from", r.RemoteAddr, "bytes", t.moved.Load(),
			"lasted", w.server.clock.Now().Sub(t.began).Round(time.Millisecond), "end", endReason(err))
	}
}

// ndt7Download sends binary messages, and sometimes a measurement.
func (w *webServer) ndt7Download(ctx context.Context, t *ndt7Test) error {
	heard := make(chan error, 1)
	go func() { heard <- t.listen(ctx, false) }()
	defer func() { t.conn.CloseNow(); <-heard }()
	end, next, size := t.began.Add(web.Duration), t.began.Add(web.MeasureMin), web.MinMessage
	for {
		now := w.server.clock.Now()
		if !now.Before(end) {
			break
		}
		if !now.Before(next) {
			if err := t.measure(ctx, now); err != nil {
				return err
			}
			next = now.Add(web.MeasureMin)
		}
		if !w.server.spend(remote(t.r), size) {
			w.server.refusals.add(protocolWeb, "budget during a session")
			break
		}
		if err := t.conn.Write(ctx, websocket.MessageBinary, w.bulk.Bytes()[:size]); err != nil {
			return err
		}
		size = web.NextMessage(size, unit.Size(t.moved.Add(int64(size))))
	}
	return t.conn.Close(websocket.StatusNormalClosure, "")
}

// ndt7Upload receives binary messages, and sometimes sends a measurement.
func (w *webServer) ndt7Upload(ctx context.Context, t *ndt7Test) error {
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	defer func() { cancel(); <-done }()
	go func() { // Upload waits for it
		defer close(done)
		tick := time.NewTicker(web.MeasureMin)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				now := w.server.clock.Now()
				if t.measure(ctx, now) != nil {
					return
				}
				if now.Sub(t.began) >= web.Duration {
					_ = t.conn.Close(websocket.StatusNormalClosure, "") // the reader gets an error
					return
				}
			}
		}
	}()
	return t.listen(ctx, true)
}

// listen reads messages until the end. If count is set, they are the load.
func (t *ndt7Test) listen(ctx context.Context, count bool) error {
	buf := make([]byte, 64<<10)
	for {
		_, r, err := t.conn.Reader(ctx)
		for err == nil {
			var n int
			n, err = r.Read(buf)
			if count {
				t.moved.Add(int64(n))
				if !t.web.server.spend(remote(t.r), unit.Size(n)) {
					t.web.server.refusals.add(protocolWeb, "budget during a session")
					return t.conn.Close(websocket.StatusTryAgainLater, "budget")
				}
			}
		}
		if err != nil && err != io.EOF {
			if websocket.CloseStatus(err) == websocket.StatusNormalClosure {
				return nil
			}
			return err
		}
	}
}

// measure sends a measurement.
func (t *ndt7Test) measure(ctx context.Context, now unit.Instant) error {
	m := web.Measurement{
		AppInfo: &web.AppInfo{ElapsedTime: now.Sub(t.began).Microseconds(), NumBytes: t.moved.Load()},
		Origin:  "server", Test: t.name,
		ConnectionInfo: &web.ConnectionInfo{Client: t.r.RemoteAddr, Server: t.web.addr().String(), UUID: "unbloat"},
	}
	if c := tcpOf(t.r); c != nil {
		if s, err := netio.ReadTCPStats(c); err == nil {
			m.TCPInfo = &web.TCPInfo{
				ElapsedTime: now.Sub(t.began).Microseconds(), RTT: s.RTT.Microseconds(), RTTVar: s.RTTVar.Microseconds(),
				MinRTT: s.MinRTT.Microseconds(), BytesAcked: s.Acked, BytesReceived: s.Received, BytesSent: s.Sent,
				BytesRetrans: s.Retransmitted, BusyTime: s.Busy.Microseconds(), RWndLimited: s.RwndLimited.Microseconds(),
				SndBufLimited: s.BufLimited.Microseconds(),
			}
		}
	}
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return t.conn.Write(ctx, websocket.MessageText, b)
}
