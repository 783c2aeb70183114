package netio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"unbloat/unit"
)

// A RateSetter changes the rate of CAKE in place, several times a second: two
// system calls and no process each time, and no packet that waits is lost. Its
// methods are for one goroutine.
type RateSetter struct {
	c    *LinkCounter
	port uint32
}

// OpenRateSetter opens one. Setting needs CAP_NET_ADMIN.
func OpenRateSetter() (*RateSetter, error) {
	c, err := OpenLinkCounter()
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(c.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, errors.Join(fmt.Errorf("open a netlink socket for the rates of shapers: %w", err), c.Close())
	}
	own, err := unix.Getsockname(c.fd)
	s, ok := own.(*unix.SockaddrNetlink)
	if err != nil || !ok {
		return nil, errors.Join(fmt.Errorf("open a netlink socket for the rates of shapers: %w", err), c.Close())
	}
	return &RateSetter{c: c, port: s.Pid}, nil
}

// Port is the netlink port of who asks: the kernel tells of a change with it.
func (r *RateSetter) Port() uint32 { return r.port }

// Set gives the CAKE that is the root of an interface another rate. Nothing else of
// it changes. An error says why it has the old one; it wraps ErrNotAllowed where a
// privilege is missing.
func (r *RateSetter) Set(device string, rate unit.Rate) error {
	failed := func(err error) error { return fmt.Errorf("set the rate of CAKE on %s to %s: %w", device, rate, err) }
	link, err := net.InterfaceByName(device)
	if err != nil {
		return failed(err)
	}
	const bits = 8
	option := appendAttribute(nil, cakeRate, binary.NativeEndian.AppendUint64(nil, uint64(rate/bits)))
	body := make([]byte, qdiscHeader, 64)
	binary.NativeEndian.PutUint32(body[4:], uint32(link.Index))
	binary.NativeEndian.PutUint32(body[12:], tcRoot)
	body = appendAttribute(body, tcaKind, []byte("cake\x00"))
	body = appendAttribute(body, tcaOptions|unix.NLA_F_NESTED, option)
	// Without NLM_F_CREATE a queue that is not there, or is of another kind, is not made.
	switch err := r.c.ask(unix.RTM_NEWQDISC, unix.NLM_F_ACK, body, func(uint16, []byte) {}); {
	case errors.Is(err, unix.EPERM):
		return failed(fmt.Errorf("%w: %w; run as root, or with CAP_NET_ADMIN", ErrNotAllowed, err))
	case err != nil:
		return failed(err)
	}
	return nil
}

// Close closes it.
func (r *RateSetter) Close() error { return r.c.Close() }
