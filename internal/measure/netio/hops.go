package netio

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"unbloat/unit"
)

// A HopWay is a way to send probes with a limited number of hops and to hear
// what becomes of them.
type HopWay string

// Ways. HopICMP needs no privilege where the system allows ping sockets
// (Linux: sysctl net.ipv4.ping_group_range; macOS always), HopRaw needs root
// or CAP_NET_RAW, HopUDP needs nothing but Linux.
const (
	HopAuto HopWay = "auto" // the first that is allowed of HopICMP, HopRaw, HopUDP
	HopICMP HopWay = "icmp" // ICMP echo through a ping socket
	HopRaw  HopWay = "raw"  // ICMP echo through a raw socket
	HopUDP  HopWay = "udp"  // UDP to a port where nothing listens; ICMP errors through the socket's error queue
)

// ErrNotAllowed is wrapped by errors of DialHops that a privilege would cure.
var ErrNotAllowed = errors.New("not allowed")

// ErrNoRoute is wrapped by errors that say that this machine cannot send there at all.
var ErrNoRoute = errors.New("no way there")

// A HopEvent is something that came back, not yet interpreted. Data is valid
// during the call only.
type HopEvent struct {
	At   unit.Instant // when the kernel received it, or when it was read where the kernel does not say
	From netip.Addr   // who sent it
	Form HopForm
	Type uint8  // of the ICMP message; only with HopError
	Code uint8  // of the ICMP message; only with HopError
	Port uint16 // of the probe it is about; only with HopUDP
	Data []byte
}

// A HopForm says what the Data of a HopEvent are.
type HopForm uint8

// Forms.
const (
	HopMessage  HopForm = iota + 1 // a whole ICMP message, from its type on
	HopError                       // of an ICMP error, what it quotes: the probe's ICMP message, or its UDP payload
	HopDatagram                    // a UDP payload: somebody listens there
)

// A HopSocket sends probes to one destination. It is read in passing, like a
// Datagram. Its methods are for one goroutine.
type HopSocket interface {
	// Way says how it sends; never HopAuto.
	Way() HopWay
	// Send sends b so that it passes at most ttl hops (1–255). With HopUDP, b is
	// the payload for the port; else it is a whole ICMP message, whose checksum
	// and identifier a ping socket fills in.
	Send(ttl int, port uint16, b []byte) error
	// Mark has what is sent from now on carry a traffic class: DSCP and ECN.
	Mark(class uint8) error
	// Drain hands over everything that has come.
	Drain(receive func(HopEvent)) error
	// Close closes the socket.
	Close() error
}

// DialHops opens a socket for probes to an address. Errors wrap ErrNotAllowed
// where a privilege is missing, ErrNotSupported where the system has no such way.
func DialHops(clock *Clock, to netip.Addr, way HopWay) (HopSocket, error) {
	if way != HopAuto {
		return dialHops(clock, to, way)
	}
	var why []error
	for _, w := range []HopWay{HopICMP, HopRaw, HopUDP} {
		s, err := dialHops(clock, to, w)
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, ErrNotAllowed) && !errors.Is(err, ErrNotSupported) {
			return nil, err
		}
		why = append(why, err)
	}
	return nil, errors.Join(why...)
}

// SourceFor returns the address that this machine sends from to reach to.
// Nothing is sent. Errors wrap ErrNoRoute.
func SourceFor(to netip.Addr) (netip.Addr, error) {
	const anyPort = 33434 // of traceroute; a connected UDP socket sends nothing by itself
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, anyPort)))
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find the way to %s: %w: %w", to, ErrNoRoute, err)
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}
