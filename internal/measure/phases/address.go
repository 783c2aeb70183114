package phases

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"unbloat/internal/measure/probe"
)

// An AddressError says what is wrong with a --server value.
type AddressError struct{ Server, Why string }

func (e *AddressError) Error() string {
	return fmt.Sprintf("server %q: %s; write it like host, host:%d, [2001:db8::1]:%d or unbloat://host:%d",
		e.Server, e.Why, probe.DefaultPort, probe.DefaultPort, probe.DefaultPort)
}

// ParseServer turns what people write for a server (host, host:port,
// [v6]:port, a bare IPv6 address, or any of these after unbloat://) into
// host:port. Its errors are *AddressError.
func ParseServer(server string) (string, error) {
	bad := func(format string, args ...any) (string, error) {
		return "", &AddressError{server, fmt.Sprintf(format, args...)}
	}
	s := server
	if scheme, rest, ok := strings.Cut(s, "://"); ok {
		if scheme != "unbloat" {
			return bad("no test protocol %q is supported, only unbloat:// (run `unbloat serve` at the other end)", scheme)
		}
		s = strings.TrimSuffix(rest, "/")
	}
	if s == "" {
		return bad("empty")
	}
	if strings.ContainsAny(s, "/?#@ \t\r\n") {
		return bad("has more than a host and a port")
	}
	bare := s
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		bare = s[1 : len(s)-1]
	}
	if a, err := netip.ParseAddr(bare); err == nil && !strings.ContainsAny(a.Zone(), "[]:%") {
		return net.JoinHostPort(a.String(), strconv.Itoa(probe.DefaultPort)), nil
	}
	if !strings.ContainsAny(s, ":[]") {
		return net.JoinHostPort(s, strconv.Itoa(probe.DefaultPort)), nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return bad("not host:port")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return bad("port %q is not a number from 1 to 65535", port)
	}
	if host == "" || strings.ContainsAny(host, "[]") {
		return bad("no host")
	}
	return net.JoinHostPort(host, port), nil
}
