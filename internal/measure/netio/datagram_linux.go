package netio

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"unbloat/unit"
)

// A Datagram is a connected UDP socket that is read in passing: nothing wakes
// when a datagram arrives; Drain takes what has come, each with the instant at
// which the kernel received it. At a probe every 10 ms this costs one wake-up
// a probe instead of two, and a late reader falsifies nothing.
type Datagram struct {
	fd    int
	clock *Clock
	stamp stamper
	hops  hopWatch
	inbox *inbox

	six, classes bool // classes: that of the datagram at hand is asked for
	class        uint8
	classed      bool
}

// Class returns the traffic class (DSCP and ECN) of the datagram at hand, after Mark.
func (d *Datagram) Class() (class uint8, known bool) { return d.class, d.classed }

const (
	batch    = 16
	slotSize = 2048
)

// DialDatagram opens a socket to the address, with the given DSCP (0–63).
func DialDatagram(clock *Clock, to netip.AddrPort, dscp int) (*Datagram, error) {
	return dialDatagram(clock, to, unix.SOCK_DGRAM, 0, dscp)
}

// DialPing opens a ping socket to the address: what is sent and received are
// ICMP messages. raw says that the system allowed only a raw socket, which
// hears everybody's messages and, over IPv4, hands over the IP header too.
// Without the right to either the error wraps ErrNotAllowed.
func DialPing(clock *Clock, to netip.Addr, dscp int) (d *Datagram, raw bool, err error) {
	proto := unix.IPPROTO_ICMP
	if to.Unmap().Is6() {
		proto = unix.IPPROTO_ICMPV6
	}
	d, err = dialDatagram(clock, netip.AddrPortFrom(to, 0), unix.SOCK_DGRAM, proto, dscp)
	if err == nil {
		return d, false, nil
	}
	if d, rawErr := dialDatagram(clock, netip.AddrPortFrom(to, 0), unix.SOCK_RAW, proto, dscp); rawErr == nil {
		return d, true, nil
	}
	return nil, false, fmt.Errorf("open a ping socket to %s: %w", to, allowed(HopICMP, err))
}

func dialDatagram(clock *Clock, to netip.AddrPort, kind, proto, dscp int) (*Datagram, error) {
	family, sa := unix.AF_INET, unix.Sockaddr(nil)
	if to.Addr().Unmap().Is4() {
		sa = &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().Unmap().As4()}
	} else {
		family = unix.AF_INET6
		sa = &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16(), ZoneId: zoneIndex(to.Addr().Zone())}
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return nil, fmt.Errorf("open a datagram socket to %s: %w", to, err)
	}
	d := &Datagram{fd: fd, clock: clock, stamp: stamper{clock: clock}, six: family == unix.AF_INET6}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) // else: the time of reading
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1<<20)
	askHops(fd, family == unix.AF_INET6)
	if err := setDSCP(fd, family == unix.AF_INET6, dscp); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("mark datagrams to %s with DSCP %d: %w", to, dscp, err)
	}
	if err := unix.Connect(fd, sa); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("connect a datagram socket to %s: %w", to, err)
	}
	d.inbox = newInbox(batch, slotSize)
	return d, nil
}

// Send sends b. A datagram that the system would not take now is lost, which
// is no error; neither is a refusal that ICMP reports of an earlier one.
func (d *Datagram) Send(b []byte) error {
	err := unix.Send(d.fd, b, unix.MSG_NOSIGNAL)
	if errors.Is(err, unix.EBADF) {
		return fmt.Errorf("send a datagram: %w", err)
	}
	return nil
}

// Drain hands over every datagram that has arrived, with the instant of its
// arrival. The bytes are valid during the call only.
func (d *Datagram) Drain(receive func(at unit.Instant, b []byte)) error {
	d.stamp.look()
	for {
		n, errno := d.inbox.take(d.fd)
		switch errno {
		case 0:
		case unix.EAGAIN, unix.EINTR:
			return nil
		case unix.EBADF, unix.ENOTSOCK, unix.ENOSYS:
			return fmt.Errorf("receive datagrams: %w", errno)
		default: // what ICMP reports of earlier datagrams (refused, unreachable) is read once, then gone
			return nil
		}
		now := d.clock.Now()
		for i := range n {
			b, oob := d.inbox.at(i)
			d.hops.see(hopLimit(oob))
			if d.classes {
				d.class, d.classed = classOf(oob)
			}
			receive(d.stamp.instant(kernelStamp(oob), now), b)
		}
		if n < batch {
			return nil
		}
	}
}

// Steps returns how often the machine's clock was set meanwhile.
func (d *Datagram) Steps() int { return d.stamp.steps }

// PathChanges returns how often the hop count of what arrives changed, and
// stayed changed.
func (d *Datagram) PathChanges() int { return d.hops.changes }

// Close closes the socket. No other call may be under way.
func (d *Datagram) Close() error { return unix.Close(d.fd) }
