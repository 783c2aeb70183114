package serve

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/coder/websocket"
)

// Subprotocol names what is spoken on the WebSocket of /api/probe. First the
// server sends a Hello as text. Then every binary message of the page (a probe:
// its number, 4 bytes big endian, and up to 60 more that mean nothing) is
// answered with one of 28 bytes, all big endian: the number; when the probe was
// received and when the answer was sent, each in ns of the server's clock, in 8
// bytes; and how many bytes the session's uploads had brought by then, in 8.
const Subprotocol = "unbloat.probe.1"

// A Hello tells the page what it may do.
type Hello struct {
	Session string  `json:"session"` // to be named in every other request
	Seconds float64 `json:"seconds"` // until the session is ended
	Flows   int     `json:"flows"`   // at once, at most
	Bytes   int64   `json:"bytes"`   // in all, at most
	Server  string  `json:"server"`  // how results call this server
	// Certificate is the SHA-256, in hexadecimal, of that of /api/datagrams on
	// the page's host and port, a WebTransport server that answers the
	// session's probes too; "": there is none.
	Certificate string `json:"certificate"`
}

const (
	mostProbe      = 64  // bytes
	mostReason     = 123 // bytes, of why a WebSocket is closed (RFC 6455 section 5.5)
	answerLen      = 4 + 3*8
	mostPerSecond  = 250 // probes
	allowedBurst   = 500 // probes that may come at once after a stall
	closeTryLater  = websocket.StatusTryAgainLater
	closeTooFast   = websocket.StatusPolicyViolation
	closeTimeIsUp  = websocket.StatusNormalClosure
	helloTimeLimit = 10 * time.Second
)

// probe opens a session and answers its probes until the page leaves.
func (h *Page) probe(w http.ResponseWriter, r *http.Request) {
	// A browser does not tell scripts why a WebSocket was refused, so a visitor
	// for whom there is no room is let in and then sent away with the reason. The library has
	// refused other origins by then.
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{Subprotocol}, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		h.log.Debug("refuse WebSocket", "from", r.RemoteAddr, "err", err)
		return
	}
	defer c.CloseNow()
	c.SetReadLimit(mostProbe)
	s, err := h.begin(r)
	if err != nil {
		why := err.Error()
		_ = c.Close(closeTryLater, why[:min(len(why), mostReason)])
		return
	}
	defer h.finish(s)
	// The library cuts a connection whose read is cancelled, so that it could
	// no longer say why: when time is up, another goroutine closes it.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	said := make(chan struct{})
	stop := context.AfterFunc(s.ctx, func() {
		defer close(said)
		cut := time.AfterFunc(time.Second, cancel)
		defer cut.Stop()
		_ = c.Close(closeTimeIsUp, "the session's time is up")
	})
	code, why := h.echo(ctx, s, c, r)
	if !stop() {
		<-said
	}
	h.log.Debug("session ends", "from", r.RemoteAddr, "why", why, "bytes", s.moved.Load())
	_ = c.Close(code, why) // the page may be gone, which is the usual end
}

// echo says hello and answers probes; it returns how to close.
func (h *Page) echo(ctx context.Context, s *pageSession, c *websocket.Conn, r *http.Request) (websocket.StatusCode, string) {
	hello, err := json.Marshal(Hello{
		Session: s.token, Seconds: h.limits.Session.Seconds(), Flows: h.limits.Flows,
		Bytes: int64(h.limits.Bytes), Server: h.nameFor(r), Certificate: h.certificate.hash(),
	})
	if err != nil {
		return websocket.StatusInternalError, "no hello"
	}
	if err := within(ctx, helloTimeLimit, func(ctx context.Context) error { return c.Write(ctx, websocket.MessageText, hello) }); err != nil {
		return closeTimeIsUp, "hello not taken"
	}
	for {
		var at time.Duration
		var msg []byte
		err := within(ctx, h.limits.Silence, func(ctx context.Context) (err error) {
			_, msg, err = c.Read(ctx)
			at = time.Since(s.start)
			return err
		})
		switch {
		case s.ctx.Err() != nil:
			return closeTimeIsUp, "the session's time is up"
		case err != nil && websocket.CloseStatus(err) == -1 && !errors.Is(err, websocket.ErrMessageTooBig):
			return closeTimeIsUp, "the page fell silent"
		case err != nil:
			return closeTimeIsUp, fmt.Sprintf("closed with status %d", websocket.CloseStatus(err))
		case len(msg) < 4:
			return closeTooFast, "a probe has at least 4 bytes"
		case !s.may(at):
			return closeTooFast, "too many probes"
		}
		err = within(ctx, h.limits.Silence, func(ctx context.Context) error {
			return c.Write(ctx, websocket.MessageBinary, s.answer(msg, at))
		})
		if err != nil {
			return closeTimeIsUp, "the answer was not taken"
		}
	}
}

// may reports whether the session may send one more probe at an instant of its
// clock, by whatever way.
func (s *pageSession) may(at time.Duration) bool {
	return float64(s.probes.Add(1)) <= allowedBurst+at.Seconds()*mostPerSecond
}

// within runs do, which has to end in time.
func within(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return do(ctx)
}

// answer makes the answer to a probe received at, an instant of the server's
// clock. That clock begins with the session and is monotonic.
func (s *pageSession) answer(msg []byte, at time.Duration) []byte {
	b := make([]byte, 0, answerLen)
	b = append(b, msg[:4]...)
	b = binary.BigEndian.AppendUint64(b, uint64(at))
	b = binary.BigEndian.AppendUint64(b, uint64(time.Since(s.start)))
	return binary.BigEndian.AppendUint64(b, uint64(s.up.Load()))
}
