package netio

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// A packetSocket is the socket of a PacketServer. The runtime's poller does not
// know it: there every datagram, in or out, would wake a thread, at 100 000 a
// second for nothing, because they are collected. What the poller knows is gate,
// an epoll of our own that is armed, for one wake-up, when there is nothing to
// read and nothing to collect.
type packetSocket struct {
	file *os.File // the socket
	raw  syscall.RawConn
	six  bool
	gate *os.File
}

// openPacketSocket takes the socket over from c, which is closed.
func openPacketSocket(c *net.UDPConn) (*packetSocket, error) {
	s := &packetSocket{}
	a, ok := c.LocalAddr().(*net.UDPAddr)
	fd, err := s.takeOver(c, ok && !a.IP.IsUnspecified())
	if err != nil {
		return nil, err
	}
	s.file = os.NewFile(uintptr(fd), "datagrams")
	gate, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		if err = unix.EpollCtl(gate, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLONESHOT}); err == nil {
			err = unix.SetNonblock(gate, true) // which is what makes os.NewFile ask the poller
		}
		s.gate = os.NewFile(uintptr(gate), "epoll")
	}
	if err == nil {
		s.raw, err = s.file.SyscallConn()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("wait for datagrams: %w", err), s.close())
	}
	return s, nil
}

// takeOver sets c's options, closes it, and returns its socket. Which address a
// datagram came to is not asked if it can only be one.
func (s *packetSocket) takeOver(c *net.UDPConn, one bool) (fd int, err error) {
	defer c.Close()
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	failed := raw.Control(func(old uintptr) {
		_ = unix.SetsockoptInt(int(old), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) // else: the time of reading
		domain, _ := unix.GetsockoptInt(int(old), unix.SOL_SOCKET, unix.SO_DOMAIN)
		if s.six = domain == unix.AF_INET6; s.six && !one {
			_ = unix.SetsockoptInt(int(old), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
		} else if !one {
			_ = unix.SetsockoptInt(int(old), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		}
		if fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0); err == nil {
			err = unix.SetNonblock(fd, false) // every call says that it does not wait
		}
	})
	return fd, errors.Join(failed, err)
}

// send sends a datagram to a peer.
func (s *packetSocket) send(to *Peer, b []byte) {
	var sa unix.Sockaddr
	if s.six {
		sa = &unix.SockaddrInet6{Port: int(to.Addr.Port()), Addr: to.Addr.Addr().As16(), ZoneId: zoneIndex(to.Addr.Addr().Zone())}
	} else {
		sa = &unix.SockaddrInet4{Port: int(to.Addr.Port()), Addr: to.Addr.Addr().Unmap().As4()}
	}
	_ = s.raw.Control(func(fd uintptr) {
		_, _ = unix.SendmsgN(int(fd), b, to.local[:to.n], sa, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	})
}

// close ends serve.
func (s *packetSocket) close() error {
	err := s.file.Close()
	if s.gate != nil {
		err = errors.Join(err, s.gate.Close())
	}
	return err
}

// putLocal writes into b the control message that makes an answer leave from
// the address its question came to (RFC 3542 section 6), and returns its length.
func putLocal(b, oob []byte) int {
	for len(oob) >= unix.SizeofCmsghdr {
		h, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			return 0
		}
		switch {
		case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			n := copy(b, oob[:min(unix.CmsgSpace(unix.SizeofInet6Pktinfo), len(oob))])
			if ip := data[:16]; ip[0] != 0xfe || ip[1]&0xc0 != 0x80 { // link-local needs its interface
				clear(b[unix.CmsgLen(16):unix.CmsgLen(20)])
			}
			return n
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			// struct in_pktinfo: interface, address to send from, address it came to
			n := copy(b, oob[:min(unix.CmsgSpace(unix.SizeofInet4Pktinfo), len(oob))])
			clear(b[unix.CmsgLen(0):unix.CmsgLen(4)])
			return n
		}
		oob = rest
	}
	return 0
}
