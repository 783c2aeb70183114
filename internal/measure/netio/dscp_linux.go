package netio

import (
	"encoding/binary"
	"fmt"
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

// AskClasses has Peer.Class know the traffic class of what comes from now on.
func (s *PacketServer) AskClasses() {
	_ = s.socket.raw.Control(func(fd uintptr) { askClasses(int(fd), s.socket.six) })
}

// askClasses asks for the traffic class of what arrives.
func askClasses(fd int, six bool) {
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVTOS, 1) // of mapped addresses too
	if six {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, 1)
	}
}

// classOf returns the traffic class among control messages.
func classOf(oob []byte) (class uint8, known bool) {
	for len(oob) >= unix.SizeofCmsghdr {
		h, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			return 0, false
		}
		switch {
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_TOS && len(data) >= 1:
			return data[0], true
		case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_TCLASS && len(data) >= 4:
			return uint8(binary.NativeEndian.Uint32(data)), true
		}
		oob = rest
	}
	return 0, false
}

// Mark has what is sent from now on carry a traffic class (DSCP and ECN), and asks for
// that of what arrives.
func (d *Datagram) Mark(class uint8) error {
	d.classes = true
	askClasses(d.fd, d.six)
	if err := setClass(d.fd, d.six, class); err != nil {
		return fmt.Errorf("mark datagrams with the traffic class %#02x: %w", class, err)
	}
	return nil
}

// Mark has the answer to the datagram at hand sent with a traffic class (DSCP and ECN).
func (p *Peer) Mark(class uint8) {
	if class == 0 {
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
	binary.NativeEndian.PutUint32(b[unix.CmsgLen(0):], uint32(class))
	p.n += unix.CmsgSpace(4)
}
