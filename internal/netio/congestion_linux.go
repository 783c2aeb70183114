package netio

import (
	"net"

	"golang.org/x/sys/unix"
)

// Congestion returns which congestion control a connection sends with; "" where
// the system does not tell.
func Congestion(c *net.TCPConn) string {
	raw, err := c.SyscallConn()
	if err != nil {
		return ""
	}
	var name string
	_ = raw.Control(func(fd uintptr) { name, _ = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION) })
	return name
}

// SetDSCP marks what the server sends from here on with a DSCP (0–63).
func (s *PacketServer) SetDSCP(dscp int) error {
	var set error
	err := s.socket.raw.Control(func(fd uintptr) { set = setDSCP(int(fd), s.socket.six, dscp) })
	if err != nil {
		return err
	}
	return set
}
