package netio

import (
	"errors"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

	"unbloat/unit"
)

// A rawReflectors is a ReflectorSocket of raw sockets, one a family.
type rawReflectors struct {
	stamp stamper
	ends  [2]rawEnd // IPv4, IPv6
	inbox *inbox
}

// A rawEnd is one raw socket.
type rawEnd struct {
	fd   int // -1: this system has no such family
	hops int // that are set now; 0: the system's own
}

// ICMP messages that come back.
const (
	icmpEchoReplyType = 0
	icmpExceededType  = 11
	icmpStampReply    = 14
	icmp6ExceededType = 3
	icmp6EchoReply    = 129
)

func openReflectors(clock *Clock, device string) (ReflectorSocket, error) {
	r := &rawReflectors{inbox: newInbox(reflectBatch, 512), stamp: stamper{clock: clock}, ends: [2]rawEnd{{fd: -1}, {fd: -1}}}
	var why []error
	for i := range r.ends {
		fd, err := openRaw(i == 1, device)
		if err != nil {
			why = append(why, err)
			continue
		}
		r.ends[i].fd = fd
	}
	if len(why) == len(r.ends) {
		return nil, fmt.Errorf("open raw sockets for probes: %w", errors.Join(why...))
	}
	return r, nil
}

func openRaw(six bool, device string) (int, error) {
	family, proto := unix.AF_INET, unix.IPPROTO_ICMP
	if six {
		family, proto = unix.AF_INET6, unix.IPPROTO_ICMPV6
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return -1, allowed(HopRaw, err)
	}
	if six {
		var f unix.ICMPv6Filter // set bits are blocked
		for i := range f.Data {
			f.Data[i] = ^uint32(0)
		}
		for _, t := range []uint{icmp6ExceededType, icmp6EchoReply} {
			f.Data[t/32] &^= 1 << (t % 32)
		}
		err = unix.SetsockoptICMPv6Filter(fd, unix.IPPROTO_ICMPV6, unix.ICMPV6_FILTER, &f)
	} else {
		const solRaw = 255
		wanted := uint32(1<<icmpEchoReplyType | 1<<icmpExceededType | 1<<icmpStampReply)
		err = unix.SetsockoptInt(fd, solRaw, unix.ICMP_FILTER, int(int32(^wanted)))
	}
	if err == nil && device != "" {
		err = unix.BindToDevice(fd, device)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) // else: the time of reading
	return fd, nil
}

func (r *rawReflectors) Send(to netip.Addr, hops int, b []byte) error {
	to = to.Unmap()
	e := &r.ends[0]
	level, option := unix.IPPROTO_IP, unix.IP_TTL
	if to.Is6() {
		e = &r.ends[1]
		level, option = unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS
	}
	if e.fd < 0 {
		return fmt.Errorf("send a probe to %s: %w by this system", to, ErrNotSupported)
	}
	if hops != e.hops {
		value := hops
		if value == 0 {
			value = -1 // the system's own
		}
		if err := unix.SetsockoptInt(e.fd, level, option, value); err != nil {
			return fmt.Errorf("limit a probe to %s to %d hops: %w", to, hops, err)
		}
		e.hops = hops
	}
	err := sendNow(e.fd, b, to)
	switch {
	case err == nil, errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOBUFS):
		return nil
	}
	return fmt.Errorf("send a probe to %s: %w", to, noRoute(err))
}

// sendNow sends a message of a socket without ports to an address. It never waits, so
// that the scheduler need not know of it.
func sendNow(fd int, b []byte, to netip.Addr) error {
	var four unix.RawSockaddrInet4
	var six unix.RawSockaddrInet6
	name, size := unsafe.Pointer(&four), uintptr(unix.SizeofSockaddrInet4)
	if to.Is6() {
		six = unix.RawSockaddrInet6{Family: unix.AF_INET6, Addr: to.As16(), Scope_id: zoneIndex(to.Zone())}
		name, size = unsafe.Pointer(&six), unix.SizeofSockaddrInet6
	} else {
		four = unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: to.As4()}
	}
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, uintptr(name), size)
	if errno != 0 {
		return errno
	}
	return nil
}

func (r *rawReflectors) Drain(receive func(at unit.Instant, from netip.Addr, b []byte)) error {
	for i := range r.ends {
		if err := r.drain(&r.ends[i], i == 1, receive); err != nil {
			return err
		}
	}
	return nil
}

func (r *rawReflectors) drain(e *rawEnd, six bool, receive func(at unit.Instant, from netip.Addr, b []byte)) error {
	if e.fd < 0 {
		return nil
	}
	for range mostEvents / reflectBatch {
		n, errno := r.inbox.take(e.fd)
		switch errno {
		case 0:
		case unix.EAGAIN:
			return nil
		case unix.EBADF, unix.ENOTSOCK:
			return fmt.Errorf("receive answers to probes: %w", errno)
		default:
			continue // what is reported of an earlier probe, once
		}
		now := r.stamp.look()
		for i := range n {
			b, oob := r.inbox.at(i)
			if !six {
				b = stripIPv4(b)
			}
			if b != nil {
				receive(r.stamp.instant(kernelStamp(oob), now), r.inbox.from(i).Addr().WithZone(""), b)
			}
		}
		if n < reflectBatch {
			return nil
		}
	}
	return nil
}

// reflectBatch is how many answers are read at once.
const reflectBatch = 8

func (r *rawReflectors) Steps() int { return r.stamp.steps }

func (r *rawReflectors) Close() error {
	var why error
	for i := range r.ends {
		if r.ends[i].fd >= 0 {
			why = errors.Join(why, unix.Close(r.ends[i].fd))
			r.ends[i].fd = -1
		}
	}
	return why
}
