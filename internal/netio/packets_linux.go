package netio

import (
	"net"

	"golang.org/x/sys/unix"
)

// askStamps asks for kernel timestamps and for the address datagrams came to.
func askStamps(c *net.UDPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) // else: the time of reading
		if domain, _ := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DOMAIN); domain == unix.AF_INET6 {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
		} else {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		}
	})
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
