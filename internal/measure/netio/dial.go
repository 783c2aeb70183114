package netio

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"time"
)

// TCPOptions are what can be chosen for a TCP connection. Zero values leave
// the system's defaults; what a system cannot set is an error.
type TCPOptions struct {
	CC   string // congestion control, such as "cubic" or "bbr"
	DSCP int    // 0–63
}

// DialTCP connects to address (host:port) within timeout.
func DialTCP(ctx context.Context, address string, timeout time.Duration, o TCPOptions) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: timeout}
	var refused error
	d.Control = func(_, _ string, raw syscall.RawConn) error {
		refused = tcpOptions(raw, o.CC, o.DSCP)
		return refused
	}
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		if refused != nil {
			return nil, refused
		}
		return nil, err // names the address already
	}
	t, ok := c.(*net.TCPConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("connect to %s: not TCP", address)
	}
	return t, nil
}

// CheckCC returns an error if this system can't send with a congestion control;
// "" is its own.
func CheckCC(cc string) error {
	if cc == "" {
		return nil
	}
	var refused error
	l := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		refused = tcpOptions(raw, cc, 0)
		return refused
	}}
	s, err := l.Listen(context.Background(), "tcp", "localhost:0") // a socket to try it on; nobody connects to it
	if err == nil {
		err = s.Close()
	}
	if refused != nil {
		return refused
	}
	return err
}

// SetTCP sets the options of an existing connection.
func SetTCP(c *net.TCPConn, o TCPOptions) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return tcpOptions(raw, o.CC, o.DSCP)
}
