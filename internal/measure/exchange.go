package measure

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"unbloat/internal/netio"
	"unbloat/internal/probe"
	"unbloat/unit"
)

// An Exchange is a connection on which questions are answered one after the
// other, as browsers, mail programs and film players do.
type Exchange struct {
	client *Client
	conn   *net.TCPConn
	buf    []byte
}

// OpenExchange opens a connection for questions and answers.
func (c *Client) OpenExchange(ctx context.Context, o netio.TCPOptions) (*Exchange, error) {
	conn, err := c.openData(ctx, o, probe.Request{Op: probe.OpData, Token: c.token, Dir: probe.DirExchange})
	if err != nil {
		return nil, fmt.Errorf("open an exchange: %w", err)
	}
	return &Exchange{client: c, conn: conn, buf: make([]byte, 64<<10)}, nil
}

// Do sends up bytes, receives down bytes, and returns how long both took.
func (x *Exchange) Do(ctx context.Context, up, down unit.Size) (time.Duration, error) {
	start := x.client.clock.Now()
	_ = x.conn.SetDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { _ = x.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	head := make([]byte, probe.ExchangeSize)
	probe.PutExchange(head, probe.Exchange{Up: up, Down: down})
	payload := x.client.payload()
	body := net.Buffers{head}
	for left := up; left > 0; left -= unit.Size(len(payload)) {
		body = append(body, payload[:min(left, unit.Size(len(payload)))])
	}
	if _, err := body.WriteTo(x.conn); err != nil {
		return 0, fmt.Errorf("exchange %v up, %v down: %w", up, down, cause(ctx, err))
	}
	for left := int64(down); left > 0; {
		n, err := x.conn.Read(x.buf[:min(left, int64(len(x.buf)))])
		if err != nil && (err != io.EOF || int64(n) < left) {
			return 0, fmt.Errorf("exchange %v up, %v down: %w", up, down, cause(ctx, err))
		}
		left -= int64(n)
	}
	return x.client.clock.Now().Sub(start), nil
}

// Close ends the connection.
func (x *Exchange) Close() error { return x.conn.Close() }
