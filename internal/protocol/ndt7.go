//go:build !omit_http

package protocol

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/coder/websocket"

	"unbloat/internal/measure"
	"unbloat/internal/protocol/ndt7"
	"unbloat/unit"
)

// tlsState is what a handshake ended with; nobody looks at it.
type tlsState = tls.ConnectionState

// A full TLS record and what it costs (RFC 8446 section 5.2: head, type and tag).
const (
	tlsRecord = 16384.0
	tlsHead   = 5 + 1 + 16
)

// ndt7 needs no finding; nothing small is to be had of it.
func (d *dialer) ndt7(ctx context.Context, _ *http.Client) (endpoints, error) {
	if _, err := resolve(ctx, d.a.host); err != nil {
		return endpoints{}, err
	}
	return endpoints{down: d.base() + ndt7.DownloadPath, up: d.base() + ndt7.UploadPath}, nil
}

// openNDT7Load opens a WebSocket a flow. ndt7 ends each test after ten seconds;
// then the flow opens the next one.
func openNDT7Load(s *webSource, ctx context.Context, specs []measure.FlowSpec) (measure.Load, error) {
	l := newWebLoad(s)
	for _, spec := range specs {
		for range spec.Flows {
			f := l.add(spec)
			// A message counts when it is written whole, too coarse to tell the
			// payload's share by; heads of frames are next to nothing.
			f.share = 1
			if s.d.a.url.Scheme == "https" {
				f.share = tlsRecord / (tlsRecord + tlsHead)
			}
			f.client = s.d.webSocketClient(f.wires)
			first, err := ndt7Dial(ctx, s, f)
			if err != nil {
				l.Abandon()
				return nil, unreachable("open an ndt7 test", err)
			}
			current := make(chan *websocket.Conn, 1) // the one that is probed
			f.ping = func(ctx context.Context) (time.Duration, error) {
				select {
				case c := <-current:
					current <- c
					began := f.clock.Now()
					ctx, cancel := context.WithTimeout(ctx, measure.Grace)
					defer cancel()
					err := c.Ping(ctx)
					return f.clock.Now().Sub(began), err
				default:
					return 0, context.Canceled
				}
			}
			f.run = func(ctx context.Context, f *webFlow) error {
				for c := first; ; {
					current <- c
					ended, err := ndt7Flow(ctx, s, f, c)
					<-current
					c.CloseNow()
					if !ended || ctx.Err() != nil {
						return err
					}
					if c, err = ndt7Dial(ctx, s, f); err != nil {
						return err
					}
				}
			}
		}
	}
	return l, nil
}

// webSocketClient speaks HTTP/1.1 only, as a WebSocket wants.
func (d *dialer) webSocketClient(w *wires) *http.Client {
	config := d.tlsConfig()
	config.NextProtos = []string{"http/1.1"}
	return &http.Client{Transport: keyed{d.o, &http.Transport{
		DialContext: w.dial, TLSClientConfig: config, WriteBufferSize: 64 << 10, ReadBufferSize: 64 << 10,
	}}}
}

func ndt7Dial(ctx context.Context, s *webSource, f *webFlow) (*websocket.Conn, error) {
	to := s.at.down
	if f.spec.Dir == measure.Up {
		to = s.at.up
	}
	u, err := url.Parse(to)
	if err != nil {
		return nil, err
	}
	u.RawQuery = url.Values{"client_name": {"unbloat"}}.Encode()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, resp, err := websocket.Dial(ctx, u.String(), &websocket.DialOptions{
		HTTPClient: f.client, Subprotocols: []string{ndt7.Subprotocol}, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		if resp != nil && resp.StatusCode >= 400 {
			return nil, fmt.Errorf("%w: %s", measure.ErrRefused, resp.Status)
		}
		return nil, err
	}
	c.SetReadLimit(int64(ndt7.MaxAccept))
	return c, nil
}

// ndt7Flow runs one test; ended says that its time was over, in an orderly way.
func ndt7Flow(ctx context.Context, s *webSource, f *webFlow, c *websocket.Conn) (ended bool, err error) {
	began := s.d.clock.Now()
	read := func() error {
		buf := make([]byte, 64<<10)
		for {
			kind, r, err := c.Reader(ctx)
			for err == nil {
				var n int
				n, err = r.Read(buf)
				if kind == websocket.MessageBinary && f.spec.Dir == measure.Down {
					f.count(n)
				}
			}
			if r == nil { // not merely the message has ended
				return err
			}
		}
	}
	if f.spec.Dir == measure.Up {
		done := make(chan error, 1)
		go func() { done <- read() }()
		size, sent := ndt7.MinMessage, unit.Size(0)
		for err == nil && s.d.clock.Now().Sub(began) < ndt7.Duration {
			if err = c.Write(ctx, websocket.MessageBinary, s.payload[:size]); err == nil {
				f.count(int(size))
				sent += size
				size = ndt7.NextMessage(size, sent)
			}
		}
		c.CloseNow()
		if rerr := <-done; websocket.CloseStatus(rerr) == websocket.StatusNormalClosure {
			err = nil
		}
	} else {
		err = read()
	}
	// An orderly end comes after about ten seconds, whatever it looks like.
	ended = err == nil || websocket.CloseStatus(err) == websocket.StatusNormalClosure || s.d.clock.Now().Sub(began) >= ndt7.Duration-time.Second
	if ended {
		err = nil
	}
	return ended, err
}
