package netio

import (
	"encoding/binary"
	"net/netip"
)

// An extendedError is Linux's struct sock_extended_err (ip(7), IP_RECVERR) with
// the address of the machine that reported it.
type extendedError struct {
	origin, kind, code uint8
	offender           netip.Addr // zero: the kernel does not say
}

// Origins of an extended error (linux/errqueue.h).
const (
	originICMP  = 2
	originICMP6 = 3
)

const (
	extendedErrorSize = 16
	// Linux's numbers, which this parser needs on every system: it is tested everywhere.
	linuxAFInet  = 2
	linuxAFInet6 = 10
)

// parseExtendedError reads a control message of the error queue: the error,
// then the offender's socket address (SO_EE_OFFENDER).
func parseExtendedError(b []byte) (extendedError, bool) {
	if len(b) < extendedErrorSize {
		return extendedError{}, false
	}
	e := extendedError{origin: b[4], kind: b[5], code: b[6]}
	e.offender = parseSockaddr(b[extendedErrorSize:])
	return e, true
}

// parseSockaddr reads Linux's struct sockaddr_in or sockaddr_in6; the zero Addr
// stands for anything else.
func parseSockaddr(b []byte) netip.Addr {
	if len(b) < 2 {
		return netip.Addr{}
	}
	switch family := binary.NativeEndian.Uint16(b); {
	case family == linuxAFInet && len(b) >= 8:
		return netip.AddrFrom4([4]byte(b[4:8]))
	case family == linuxAFInet6 && len(b) >= 24:
		return netip.AddrFrom16([16]byte(b[8:24])).Unmap()
	}
	return netip.Addr{}
}

// stripIPv4 takes the header from what a raw IPv4 socket hands over; nil if it
// is no whole header.
func stripIPv4(b []byte) []byte {
	const least = 20
	if len(b) < least || b[0]>>4 != 4 {
		return nil
	}
	n := int(b[0]&0x0f) * 4
	if n < least || n > len(b) {
		return nil
	}
	return b[n:]
}
