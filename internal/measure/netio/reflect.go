package netio

import (
	"net/netip"

	"unbloat/unit"
)

// A ReflectorSocket sends ICMP messages to any address and hears what comes back
// to this machine: answers to echo and timestamp requests, and reports that a
// hop limit has ended. It is read in passing, like a Datagram. Its methods are
// for one goroutine.
type ReflectorSocket interface {
	// Send sends a whole ICMP message, whose checksum over IPv6 is filled in, so
	// that it passes at most hops hops; 0: as many as usual. What the system does
	// not take now is lost, which is no error. Errors wrap ErrNoRoute where no way
	// leads there, ErrNotSupported where the address's family is missing.
	Send(to netip.Addr, hops int, b []byte) error
	// Drain hands over every ICMP message that has come, without its IP header, and
	// who sent it. The bytes are valid during the call only.
	Drain(receive func(at unit.Instant, from netip.Addr, b []byte)) error
	// Steps returns how often the machine's clock was set meanwhile.
	Steps() int
	// Close closes it.
	Close() error
}

// OpenReflectors opens a ReflectorSocket. Where device is not empty, what is sent
// leaves through that interface; only Linux does so. It needs root or CAP_NET_RAW:
// without, the error wraps ErrNotAllowed.
func OpenReflectors(clock *Clock, device string) (ReflectorSocket, error) {
	return openReflectors(clock, device)
}
