package remote

import (
	"context"
	"net"
)

// dial connects to a router so that what was not sent when the connection is closed is
// thrown away, also if the system closes it because this process has died. By itself
// the kernel would go on trying for minutes: a command would reach the router after
// the watchdog there has undone the change that it belongs to, and nobody would undo
// it any more.
func dial(ctx context.Context, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	linger(conn, 0)
	return conn, nil
}

// linger tells what becomes of data that was not sent when a connection is closed:
// with 0 it is thrown away, with -1 the kernel goes on sending it.
func linger(conn net.Conn, seconds int) {
	if c, ok := conn.(*net.TCPConn); ok {
		_ = c.SetLinger(seconds) // fails only if the connection is closed already
	}
}
