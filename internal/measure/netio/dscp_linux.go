package netio

import (
	"encoding/binary"
	"net"
	"unsafe"

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

// CanMark says that Peer.Mark works here.
const CanMark = true

// Mark has the answer to the datagram at hand sent with a DSCP (0–63).
func (p *Peer) Mark(dscp int) {
	if dscp <= 0 {
		return
	}
	level, kind := int32(unix.IPPROTO_IPV6), int32(unix.IPV6_TCLASS)
	if p.Addr.Addr().Unmap().Is4() {
		level, kind = unix.IPPROTO_IP, unix.IP_TOS
	}
	if p.n+unix.CmsgSpace(4) > oobLocal {
		return
	}
	b := p.local[p.n:]
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = level, kind
	h.SetLen(unix.CmsgLen(4))
	binary.NativeEndian.PutUint32(b[unix.CmsgLen(0):], uint32(dscp)<<2)
	p.n += unix.CmsgSpace(4)
}
