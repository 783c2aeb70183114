package netio

import (
	"net"

	"golang.org/x/sys/unix"

	"unbloat/unit"
)

// Pace makes the system send no faster than rate on a connection, where it
// can; it is best effort.
func Pace(c *net.TCPConn, rate unit.Rate) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, uint64(rate)/8)
	})
}
