package netio

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// allowed marks the errors that a privilege would cure, with the cure.
func allowed(way HopWay, err error) error {
	if !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) {
		return err
	}
	cure := "run as root, or with CAP_NET_RAW"
	if way == HopICMP {
		cure = `sysctl -w net.ipv4.ping_group_range="0 2147483647" allows it to everyone`
	}
	return fmt.Errorf("%w: %w; %s", ErrNotAllowed, err, cure)
}

// noRoute marks the errors that say that nothing can be sent there.
func noRoute(err error) error {
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("%w: %w", ErrNoRoute, err)
	}
	return err
}

// findExtendedError finds the extended error among control messages.
func findExtendedError(oob []byte) (extendedError, bool) {
	for len(oob) >= unix.SizeofCmsghdr {
		h, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			return extendedError{}, false
		}
		if h.Level == unix.IPPROTO_IP && h.Type == unix.IP_RECVERR || h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_RECVERR {
			return parseExtendedError(data)
		}
		oob = rest
	}
	return extendedError{}, false
}
