package netio

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// askHops asks for the hop limit of what arrives; without it nothing is known.
func askHops(fd int, six bool) {
	if six {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, 1)
		return
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVTTL, 1)
}

// hopLimit returns the hop limit among control messages, or 0.
func hopLimit(oob []byte) int {
	for len(oob) >= unix.SizeofCmsghdr {
		h, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			return 0
		}
		ttl := h.Level == unix.IPPROTO_IP && h.Type == unix.IP_TTL || h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_HOPLIMIT
		if ttl && len(data) >= 4 {
			return int(binary.NativeEndian.Uint32(data))
		}
		oob = rest
	}
	return 0
}
