package netio

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// resolveTimeout bounds the question for a host's addresses.
const resolveTimeout = 2 * time.Second

// InterfaceTo returns the name of the interface through which this machine
// reaches a host, a name or an address. Nothing is sent but a question for the
// name. Errors wrap ErrNoRoute where the host is known and no way leads to it.
func InterfaceTo(ctx context.Context, host string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return "", fmt.Errorf("find the interface towards %s: %w", host, err)
	}
	var source netip.Addr
	for _, a := range addrs {
		if source, err = SourceFor(a.Unmap()); err == nil {
			break
		}
	}
	if err != nil {
		return "", fmt.Errorf("find the interface towards %s: %w", host, err)
	}
	name, _, err := interfaceOf(source)
	if err != nil {
		return "", fmt.Errorf("find the interface towards %s: %w", host, err)
	}
	return name, nil
}

// interfaceOf returns the interface of this machine that has an address.
func interfaceOf(own netip.Addr) (name string, loopback bool, err error) {
	links, err := net.Interfaces()
	if err != nil {
		return "", false, fmt.Errorf("list interfaces: %w", err)
	}
	for _, l := range links {
		addrs, err := l.Addrs()
		if err != nil {
			continue // it has gone meanwhile
		}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.Equal(own.AsSlice()) {
				return l.Name, l.Flags&net.FlagLoopback != 0, nil
			}
		}
	}
	return "", false, fmt.Errorf("%w: no interface has the address %s", ErrNoRoute, own)
}
