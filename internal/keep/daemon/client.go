package daemon

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"unbloat/guard"
)

// ErrNoDaemon says that no daemon runs behind a socket.
var ErrNoDaemon = errors.New("no daemon runs here")

// A Client talks to a running daemon. It is not safe for concurrent use.
type Client struct {
	conn net.Conn
	in   *bufio.Reader
}

// Dial reaches the daemon behind a socket. The error is ErrNoDaemon if none runs, or
// if this user may not reach it.
func Dial(ctx context.Context, socket string) (*Client, error) {
	dir, err := guard.TrustedDir(filepath.Dir(socket))
	var strange *guard.UntrustedError
	if errors.As(err, &strange) && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reach the daemon: %w", err) // what answers there would not be it
	}
	if err != nil {
		return nil, ErrNoDaemon
	}
	socket = filepath.Join(dir, filepath.Base(socket))
	if _, err := os.Lstat(socket); err != nil { // who may not look may not change anything here either
		return nil, ErrNoDaemon
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, ErrNoDaemon
	}
	if err != nil {
		return nil, fmt.Errorf("reach the daemon: %w", err)
	}
	return &Client{conn: conn, in: bufio.NewReader(conn)}, nil
}

// Close ends the connection, and with it a turn.
func (c *Client) Close() error { return c.conn.Close() }

// Call sends a request and reads its result. The daemon's own errors are *Error.
func (c *Client) Call(ctx context.Context, method, router, wan string, params, result any) error {
	stop := context.AfterFunc(ctx, func() { c.conn.Close() })
	defer stop()
	r := Request{ID: json.RawMessage("1"), Method: method, Name: Name{wan, router}}
	if params != nil {
		b, err := json.Marshal(params)
		if err != nil {
			return err
		}
		r.Params = b
	}
	b, err := json.Marshal(r)
	if err == nil {
		_, err = c.conn.Write(append(b, '\n'))
	}
	var line []byte
	if err == nil {
		line, err = c.in.ReadBytes('\n')
	}
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return fmt.Errorf("ask the daemon to %s: %w; does it still run?", method, err)
	}
	var a Response
	if err := json.Unmarshal(line, &a); err != nil {
		return fmt.Errorf("ask the daemon to %s: its answer is not one: %w", method, err)
	}
	if a.Error != nil {
		return a.Error
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(a.Result, result)
}
