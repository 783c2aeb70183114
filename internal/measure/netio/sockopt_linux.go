package netio

import (
	"encoding/binary"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// setDSCP marks what the socket sends.
func setDSCP(fd int, six bool, dscp int) error {
	if dscp == 0 {
		return nil
	}
	return setClass(fd, six, uint8(dscp)<<2)
}

// setClass gives what the socket sends a traffic class: DSCP and ECN.
func setClass(fd int, six bool, class uint8) error {
	if six {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_TCLASS, int(class)); err != nil {
			return err
		}
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TOS, int(class)) // for mapped addresses
		return nil
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TOS, int(class))
}

// tcpOptions sets congestion control and DSCP on a socket. An empty cc and a
// zero dscp leave the system's defaults.
func tcpOptions(raw syscall.RawConn, cc string, dscp int) error {
	var set error
	err := raw.Control(func(fd uintptr) {
		if cc != "" {
			if set = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, cc); set != nil {
				set = fmt.Errorf("use congestion control %q (sysctl net.ipv4.tcp_available_congestion_control lists what there is): %w", cc, set)
				return
			}
		}
		domain, _ := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DOMAIN)
		if set = setDSCP(int(fd), domain == unix.AF_INET6, dscp); set != nil {
			set = fmt.Errorf("mark with DSCP %d: %w", dscp, set)
		}
	})
	if err != nil {
		return err
	}
	return set
}

// setLowWater makes the kernel wake readers of the socket only when n bytes
// wait. It also makes it acknowledge at once whatever the reader's pace.
func setLowWater(c *net.TCPConn, n int) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, n) })
	}
}

// canDiscard says that discard works here.
const canDiscard = true

// discard takes everything that waits in the socket without copying it
// (MSG_TRUNC of tcp(7)), and returns how much it was and whether the stream
// has ended.
func discard(raw syscall.RawConn) (n int, ended bool, err error) {
	return discardOr(raw, true)
}

// awaitDiscard is discard that waits until there is something.
func awaitDiscard(raw syscall.RawConn) (n int, ended bool, err error) { return discardOr(raw, false) }

// discardOr discards; with nothing there it returns or waits.
func discardOr(raw syscall.RawConn, giveUp bool) (n int, ended bool, err error) {
	const most = 1 << 30
	rerr := raw.Read(func(fd uintptr) bool {
		for {
			r, _, errno := unix.Syscall6(unix.SYS_RECVFROM, fd, 0, most, unix.MSG_TRUNC|unix.MSG_DONTWAIT, 0, 0)
			switch errno {
			case 0:
				n, ended = int(r), r == 0
			case unix.EINTR:
				continue
			case unix.EAGAIN:
				return giveUp
			default:
				err = errno
			}
			return true
		}
	})
	if rerr != nil {
		return 0, false, rerr
	}
	return n, ended, err
}

// kernelStamp returns the timestamp among control messages, in ns since 1970,
// or 0 if there is none.
func kernelStamp(oob []byte) int64 {
	for len(oob) >= unix.SizeofCmsghdr {
		h, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			return 0
		}
		if h.Level == unix.SOL_SOCKET && h.Type == unix.SCM_TIMESTAMPNS {
			switch len(data) {
			case 16:
				return int64(binary.NativeEndian.Uint64(data))*1e9 + int64(binary.NativeEndian.Uint64(data[8:]))
			case 8: // 32-bit systems
				return int64(binary.NativeEndian.Uint32(data))*1e9 + int64(binary.NativeEndian.Uint32(data[4:]))
			}
		}
		oob = rest
	}
	return 0
}

// zoneIndex returns the number of an IPv6 zone, or 0.
func zoneIndex(zone string) uint32 {
	if zone == "" {
		return 0
	}
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n)
	}
	if i, err := net.InterfaceByName(zone); err == nil {
		return uint32(i.Index)
	}
	return 0
}
