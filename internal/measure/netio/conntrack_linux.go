package netio

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Connections reads the kernel's connection tracking. Its methods are for one
// goroutine.
type Connections struct{ c *LinkCounter }

// OpenConnections opens one.
func OpenConnections() (*Connections, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket for connections: %w", err)
	}
	patience := unix.Timeval{Sec: 5} // of one part of the answer
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience)
	return &Connections{newLinkCounter(fd)}, nil
}

const ctGet = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1 // IPCTNL_MSG_CT_GET

// Each calls f for every connection, as the kernel hands them over: however many
// there are, no more than 128 KiB of them are in memory. The error wraps ErrNotAllowed
// where a privilege is missing, and ErrNotSupported where the kernel tracks none.
func (c *Connections) Each(f func(Connection)) error {
	body := make([]byte, nfGenHeader) // of all families
	err := c.c.ask(ctGet, unix.NLM_F_DUMP, body, func(_ uint16, b []byte) {
		if x, ok := parseConnection(b); ok {
			f(x)
		}
	})
	switch {
	case errors.Is(err, unix.EPERM):
		err = fmt.Errorf("%w: %w; run as root, or with CAP_NET_ADMIN", ErrNotAllowed, err)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOENT):
		err = fmt.Errorf("%w: %w; the kernel lacks nf_conntrack_netlink", ErrNotSupported, err)
	}
	if err != nil {
		return fmt.Errorf("read the kernel's connections: %w", err)
	}
	return nil
}

// Close closes it.
func (c *Connections) Close() error { return c.c.Close() }
