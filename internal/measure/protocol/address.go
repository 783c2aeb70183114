package protocol

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/phases"
)

// An Address is a parsed --server value.
type Address struct {
	Host string  // host:port
	URL  url.URL // of a protocol over HTTP
}

// Base returns the URL without a final slash.
func (a Address) Base() string { return strings.TrimSuffix(a.URL.String(), "/") }

// Protocols are all protocols of a program. An address without a scheme is of
// the first one, and a --ping value without a scheme uses the first Way.
type Protocols []Protocol

// Schemes lists the schemes that Dial accepts, for help texts.
func (all Protocols) Schemes() (out []string) {
	for _, p := range all {
		if len(p.Schemes) > 0 {
			out = append(out, p.Schemes[0].Name)
		}
	}
	return out
}

// find returns the protocol of a --server value, and the address in it. Its
// errors are *measure.AddressError.
func (all Protocols) find(server string) (Protocol, Address, error) {
	name, rest, ok := strings.Cut(server, "://")
	if !ok {
		name = all[0].Schemes[0].Name
	}
	for _, p := range all {
		for _, s := range p.Schemes {
			if s.Name != name {
				continue
			}
			if p.Parse != nil {
				host, err := p.Parse(server)
				return p, Address{Host: host}, err
			}
			a, err := s.parse(server, rest)
			return p, a, err
		}
	}
	if name == "http" || name == "https" { // what `unbloat serve` prints for browsers
		if u, err := netio.ParseURL(server); err == nil && u.Hostname() != "" {
			return Protocol{}, Address{}, &phases.AddressError{Server: server, Why: "that is a page for browsers; do you mean the server beside it, " + u.Hostname() + "?"}
		}
	}
	return Protocol{}, Address{}, &phases.AddressError{Server: server,
		Why: fmt.Sprintf("no test protocol %q is known, only %s", name, strings.Join(all.Schemes(), ", "))}
}

// parse reads what follows the scheme of a --server value.
func (s Scheme) parse(server, rest string) (Address, error) {
	bad := func(format string, args ...any) (Address, error) {
		return Address{}, &phases.AddressError{Server: server, Why: fmt.Sprintf(format, args...)}
	}
	u, err := netio.ParseURL("x://" + rest)
	if err != nil || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return bad("not scheme://host[:port][/path]")
	}
	if s.URL == "" && (strings.Trim(u.Path, "/") != "" || u.RawQuery != "") {
		return bad("has more than a host and a port")
	}
	if p := u.Port(); p != "" {
		if !isPort(p) {
			return bad("port %q is not a number from 1 to 65535", p)
		}
	} else {
		u.Host = net.JoinHostPort(u.Hostname(), strconv.Itoa(s.Port))
	}
	if host, _, err := net.SplitHostPort(u.Host); err != nil || host == "" {
		return bad("not scheme://host[:port][/path]")
	}
	u.Scheme = s.URL
	return Address{Host: u.Host, URL: *u}, nil
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n != 0
}

// way returns the Way of a --ping value, and the host in it. Its errors are
// *measure.AddressError.
func (all Protocols) way(ping string) (Way, string, error) {
	var ways []Way
	for _, p := range all {
		ways = append(ways, p.Ways...)
	}
	bad := func(why string) (Way, string, error) {
		usage := "HOST"
		for i, w := range ways {
			if i == len(ways)-1 {
				usage += " or " + w.Usage
			} else {
				usage += ", " + w.Usage
			}
		}
		return Way{}, "", &phases.AddressError{Server: ping, Why: "--ping: " + why + "; write " + usage}
	}
	name, host, ok := strings.Cut(ping, "://")
	if !ok && len(ways) > 0 {
		name, host = ways[0].Scheme, ping
	}
	host = strings.TrimSuffix(host, "/")
	if host == "" || strings.ContainsAny(host, "/?#@ ") {
		return bad("no host")
	}
	for _, w := range ways {
		if w.Scheme == name {
			host, err := w.Host(host)
			if err != nil {
				return bad(err.Error())
			}
			return w, host, nil
		}
	}
	return bad(fmt.Sprintf("no way %q of probing is known", name))
}

// HostPort returns a function for a Way to a TCP or UDP port. If no port is
// given it is standard, unless that is 0: then it is an error.
func HostPort(standard int) func(string) (string, error) {
	return func(host string) (string, error) {
		_, port, err := net.SplitHostPort(host)
		switch {
		case err != nil && standard == 0:
			return "", errors.New("no port")
		case err != nil:
			return net.JoinHostPort(strings.Trim(host, "[]"), strconv.Itoa(standard)), nil
		case !isPort(port):
			return "", errors.New("the port is not a number from 1 to 65535")
		}
		return host, nil
	}
}

// Check reports whether server and ping are well formed, without using the
// network. Its errors are *measure.AddressError.
func (all Protocols) Check(server, ping string) error {
	if _, _, err := all.find(server); err != nil {
		return err
	}
	if ping == "" {
		return nil
	}
	_, _, err := all.way(ping)
	return err
}

// HostOf returns the host of a --server value, or "" if that is malformed.
func (all Protocols) HostOf(server string) string {
	_, a, err := all.find(server)
	if err != nil {
		return ""
	}
	host, _, err := net.SplitHostPort(a.Host)
	if err != nil {
		return ""
	}
	return host
}

// Resolve looks up the address of host:port. Errors of the lookup wrap
// measure.ErrUnreachable.
func Resolve(ctx context.Context, hostport string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		return netip.AddrPort{}, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return netip.AddrPort{}, err
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%w: %w", phases.ErrUnreachable, err)
	}
	if len(addrs) == 0 {
		return netip.AddrPort{}, fmt.Errorf("%w: %s has no address", phases.ErrUnreachable, host)
	}
	return netip.AddrPortFrom(addrs[0].Unmap(), uint16(n)), nil
}
