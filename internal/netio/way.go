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
	links, err := net.Interfaces()
	if err != nil {
		return "", fmt.Errorf("find the interface towards %s: list interfaces: %w", host, err)
	}
	for _, l := range links {
		own, err := l.Addrs()
		if err != nil {
			continue // it has gone meanwhile
		}
		for _, a := range own {
			if n, ok := a.(*net.IPNet); ok && n.IP.Equal(source.AsSlice()) {
				return l.Name, nil
			}
		}
	}
	return "", fmt.Errorf("find the interface towards %s: %w: no interface has the address %s", host, ErrNoRoute, source)
}
