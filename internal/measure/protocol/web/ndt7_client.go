package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/coder/websocket"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/protocol"
	"unbloat/unit"
)

// The size of a full TLS record, and its overhead (RFC 8446 section 5.2: head,
// type and tag).
const (
	tlsRecord = 16384.0
	tlsHead   = 5 + 1 + 16
)

// dial opens a session. These servers have no small URL to probe.
func dial(ctx context.Context, s *protocol.Session) (phases.Tester, error) {
	if _, err := protocol.Resolve(ctx, s.Address.Host); err != nil {
		return nil, fmt.Errorf("open %s: %w", s.Server, err)
	}
	base := s.Address.Base()
	return Open(ctx, s, Kind{
		Find: func(*protocol.Session, Get) (Endpoints, error) {
			return Endpoints{Down: base + DownloadPath, Up: base + UploadPath}, nil
		},
		Load: load,
	})
}

// load opens a WebSocket for each flow. ndt7 ends each test after ten seconds;
// the flow then starts the next one.
func load(ctx context.Context, s *Source, specs []phases.FlowSpec) (phases.Load, error) {
	l := NewLoad(s)
	for _, spec := range specs {
		for range spec.Flows {
			f := l.Add(spec)
			// A message counts when it is written whole, which is too coarse to
			// derive the payload's share from it. Heads of frames are
			// negligible.
			f.Share = 1
			if s.Session.Address.URL.Scheme == "https" {
				f.Share = tlsRecord / (tlsRecord + tlsHead)
			}
			client := f.ClientHTTP1()
			first, err := open(ctx, s, f, client)
			if err != nil {
				l.Abandon()
				return nil, Unreachable("open an ndt7 test", err)
			}
			current := make(chan *websocket.Conn, 1) // the one with the probes
			f.Ping = func(ctx context.Context) (time.Duration, error) {
				select {
				case c := <-current:
					current <- c
					began := s.Session.Clock.Now()
					ctx, cancel := context.WithTimeout(ctx, phases.Grace)
					defer cancel()
					err := c.Ping(ctx)
					return s.Session.Clock.Now().Sub(began), err
				default:
					return 0, context.Canceled
				}
			}
			f.Run = func(ctx context.Context) error {
				for c := first; ; {
					current <- c
					ended, err := test(ctx, s, f, c)
					<-current
					c.CloseNow()
					if !ended || ctx.Err() != nil {
						return err
					}
					if c, err = open(ctx, s, f, client); err != nil {
						return err
					}
				}
			}
		}
	}
	return l, nil
}

func open(ctx context.Context, s *Source, f *Flow, client *http.Client) (*websocket.Conn, error) {
	to := s.At.Down
	if f.Spec.Dir == phases.Up {
		to = s.At.Up
	}
	u, err := url.Parse(to)
	if err != nil {
		return nil, err
	}
	query := u.Query() // which may carry an access token
	query.Set("client_name", "unbloat")
	u.RawQuery = query.Encode()
	ctx, cancel := context.WithTimeout(ctx, s.Session.Options.Patience)
	defer cancel()
	c, resp, err := websocket.Dial(ctx, u.String(), &websocket.DialOptions{
		HTTPClient: client, Subprotocols: []string{Subprotocol}, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		if resp != nil && resp.StatusCode >= 400 {
			return nil, fmt.Errorf("%w: %s", phases.ErrRefused, resp.Status)
		}
		return nil, err
	}
	c.SetReadLimit(int64(MaxAccept))
	return c, nil
}

// test runs one test. ended reports whether it ended in order because its time
// was over.
func test(ctx context.Context, s *Source, f *Flow, c *websocket.Conn) (ended bool, err error) {
	began := s.Session.Clock.Now()
	read := func() error {
		buf := make([]byte, 64<<10)
		for {
			kind, r, err := c.Reader(ctx)
			for err == nil {
				var n int
				n, err = r.Read(buf)
				if kind == websocket.MessageBinary && f.Spec.Dir == phases.Down {
					f.Count(n)
				}
			}
			if r == nil { // the connection has ended, not only the message
				return err
			}
		}
	}
	if f.Spec.Dir == phases.Up {
		done := make(chan error, 1)
		go func() { done <- read() }()
		size, sent := MinMessage, unit.Size(0)
		for err == nil && s.Session.Clock.Now().Sub(began) < Duration {
			if err = c.Write(ctx, websocket.MessageBinary, s.Payload[:size]); err == nil {
				f.Count(int(size))
				sent += size
				size = NextMessage(size, sent)
			}
		}
		c.CloseNow()
		if rerr := <-done; websocket.CloseStatus(rerr) == websocket.StatusNormalClosure {
			err = nil
		}
	} else {
		err = read()
	}
	// Any end after about ten seconds is an orderly one.
	ended = err == nil || websocket.CloseStatus(err) == websocket.StatusNormalClosure || s.Session.Clock.Now().Sub(began) >= Duration-time.Second
	if ended {
		err = nil
	}
	return ended, err
}
