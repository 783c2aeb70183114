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

// SetTCP sets the options of an existing connection.
func SetTCP(c *net.TCPConn, o TCPOptions) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return tcpOptions(raw, o.CC, o.DSCP)
}
