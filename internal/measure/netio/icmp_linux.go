package netio

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// hopSocket is a HopSocket of Linux. ICMP errors about datagrams of ping and
// UDP sockets come through the socket's error queue (IP_RECVERR of ip(7)),
// which needs no privilege.
type hopSocket struct {
	fd     int
	way    HopWay
	six    bool
	to     netip.Addr
	zone   uint32
	clock  *Clock
	stamp  stamper
	buf    [2048]byte
	oob    [512]byte
	lastTT int
	marked uint8 // traffic class of what is sent
}

// dialHops opens the socket of one way.
func dialHops(clock *Clock, to netip.Addr, way HopWay) (HopSocket, error) {
	to = to.Unmap()
	s := &hopSocket{way: way, six: to.Is6(), to: to.WithZone(""), zone: zoneIndex(to.Zone()), clock: clock, stamp: stamper{clock: clock}}
	family, proto := unix.AF_INET, unix.IPPROTO_ICMP
	if s.six {
		family, proto = unix.AF_INET6, unix.IPPROTO_ICMPV6
	}
	kind := unix.SOCK_DGRAM
	switch way {
	case HopRaw:
		kind = unix.SOCK_RAW
	case HopUDP:
		proto = unix.IPPROTO_UDP
	case HopICMP:
	default:
		return nil, fmt.Errorf("open a socket for probes to %s: way %q is unknown", to, way)
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return nil, fmt.Errorf("open a socket for %s probes to %s: %w", way, to, allowed(way, err))
	}
	s.fd = fd
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) // else: the time of reading
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1<<20)
	if way != HopRaw {
		level, option := unix.IPPROTO_IP, unix.IP_RECVERR
		if s.six {
			level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVERR
		}
		if err := unix.SetsockoptInt(fd, level, option, 1); err != nil {
			unix.Close(fd)
			return nil, fmt.Errorf("ask for the errors of probes to %s: %w", to, err)
		}
	}
	return s, nil
}

func (s *hopSocket) Way() HopWay { return s.way }

func (s *hopSocket) Close() error { return unix.Close(s.fd) }

func (s *hopSocket) Send(ttl int, port uint16, b []byte) error {
	if err := s.setTTL(ttl); err != nil {
		return fmt.Errorf("limit a probe to %d hops: %w", ttl, err)
	}
	if s.way != HopUDP {
		port = 0
	}
	var sa unix.Sockaddr = &unix.SockaddrInet4{Port: int(port), Addr: s.v4()}
	if s.six {
		sa = &unix.SockaddrInet6{Port: int(port), Addr: s.to.As16(), ZoneId: s.zone}
	}
	// An error that waits in the socket is returned instead of sending, once
	// (RFC 1122 section 4.1.3.3); asking for it clears it.
	const tries = 4
	var err error
	for range tries {
		if err = unix.Sendto(s.fd, b, unix.MSG_NOSIGNAL, sa); err == nil {
			return nil
		}
		_, _ = unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	}
	return fmt.Errorf("send a probe to %s: %w", s.to, noRoute(err))
}

func (s *hopSocket) v4() [4]byte {
	if s.six {
		return [4]byte{}
	}
	return s.to.As4()
}

func (s *hopSocket) setTTL(ttl int) error {
	if ttl == s.lastTT {
		return nil
	}
	level, option := unix.IPPROTO_IP, unix.IP_TTL
	if s.six {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS
	}
	err := unix.SetsockoptInt(s.fd, level, option, ttl)
	if err == nil {
		s.lastTT = ttl
	}
	return err
}

func (s *hopSocket) Mark(class uint8) error {
	if class == s.marked {
		return nil
	}
	if err := setClass(s.fd, s.six, class); err != nil {
		return fmt.Errorf("mark probes with the traffic class %#02x: %w", class, err)
	}
	s.marked = class
	return nil
}

func (s *hopSocket) Drain(receive func(HopEvent)) error {
	s.stamp.look()
	for _, flags := range []int{unix.MSG_ERRQUEUE, 0} {
		if err := s.drain(flags|unix.MSG_DONTWAIT, receive); err != nil {
			return err
		}
	}
	return nil
}

// mostEvents bounds one reading, so that a flood of foreign ICMP does not hold up probes.
const mostEvents = 1024

func (s *hopSocket) drain(flags int, receive func(HopEvent)) error {
	for range mostEvents {
		n, oobn, _, from, err := unix.Recvmsg(s.fd, s.buf[:], s.oob[:], flags)
		switch {
		case err == nil:
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EBADF), errors.Is(err, unix.ENOTSOCK):
			return fmt.Errorf("receive answers to probes: %w", err)
		default:
			continue // the error queue reports this error too; once is enough
		}
		now := s.clock.Now()
		e := HopEvent{At: s.stamp.instant(kernelStamp(s.oob[:oobn]), now), Data: s.buf[:n]}
		if s.event(&e, from, s.oob[:oobn], flags&unix.MSG_ERRQUEUE != 0) {
			receive(e)
		}
	}
	return nil
}

// event completes e; false if it says nothing about a probe.
func (s *hopSocket) event(e *HopEvent, from unix.Sockaddr, oob []byte, queue bool) bool {
	switch sa := from.(type) {
	case *unix.SockaddrInet4:
		e.From, e.Port = netip.AddrFrom4(sa.Addr), uint16(sa.Port)
	case *unix.SockaddrInet6:
		e.From, e.Port = netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port)
	}
	if queue { // from is where the probe went
		x, ok := findExtendedError(oob)
		e.Form, e.Type, e.Code, e.From = HopError, x.kind, x.code, x.offender
		return ok && (x.origin == originICMP || x.origin == originICMP6) && x.offender.IsValid()
	}
	switch {
	case s.way == HopUDP:
		e.Form = HopDatagram
	case s.way == HopRaw && !s.six:
		e.Form, e.Data = HopMessage, stripIPv4(e.Data)
	default:
		e.Form = HopMessage
	}
	return e.From.IsValid() && e.Data != nil
}
