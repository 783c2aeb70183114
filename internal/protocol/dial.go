// Package protocol is the client of every test server that is not unbloat's own:
// irtt, iperf3, ndt7, LibreSpeed, Cloudflare's and networkQuality's. Each is a
// measure.Source, so that one and the same measure.PhaseRunner runs the phases.
package protocol

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"unbloat/internal/measure"
	"unbloat/internal/netio"
	"unbloat/internal/protocol/iperf3"
	"unbloat/internal/protocol/irtt"
)

// Options of a session. Zero values take the defaults.
type Options struct {
	Timeout  time.Duration     // for connecting; 10 s
	Probe    measure.ProbeSpec // an Interval of 0 takes the protocol's own
	Agent    string            // what servers log
	Ping     string            // further probes, or the only ones of a server that has none: see pingTo
	Key      string            // shared with the server
	Insecure bool              // any TLS certificate will do
	Pin      string            // SHA-256 of the server's certificate, hexadecimal; it then needs no authority
}

// The schemes of --server.
const (
	schemeNative     = "unbloat"
	schemeIrtt       = "irtt"
	schemeIperf3     = "iperf3"
	schemeNDT7       = "ndt7+wss"
	schemeNDT7Plain  = "ndt7+ws"
	schemeLibreSpeed = "librespeed+https"
	schemeCloudflare = "cloudflare+https"
	schemeRPM        = "rpm+https"
)

// Schemes lists what Dial understands, for help texts.
func Schemes() []string {
	return []string{schemeNative, schemeIrtt, schemeIperf3, schemeNDT7, schemeLibreSpeed, schemeCloudflare, schemeRPM}
}

// An address is a --server value that was understood.
type address struct {
	scheme string
	host   string // host:port
	url    url.URL
}

// parse reads a --server value. Its errors are *measure.AddressError.
func parse(server string) (address, error) {
	scheme, rest, ok := strings.Cut(server, "://")
	if !ok || scheme == schemeNative {
		host, err := measure.ParseServer(server)
		return address{scheme: schemeNative, host: host}, err
	}
	bad := func(format string, args ...any) (address, error) {
		return address{}, &measure.AddressError{Server: server, Why: fmt.Sprintf(format, args...)}
	}
	plain := strings.HasSuffix(scheme, "+http") || scheme == schemeNDT7Plain
	base := strings.TrimSuffix(strings.TrimSuffix(scheme, "+http"), "+ws")
	port := 0
	switch {
	case scheme == schemeIrtt:
		port = irtt.Port
	case scheme == schemeIperf3:
		port = iperf3.Port
	case scheme == schemeNDT7, scheme == schemeLibreSpeed, scheme == schemeCloudflare, scheme == schemeRPM:
		port = 443
	case plain && (base == "ndt7" || base == "librespeed" || base == "cloudflare" || base == "rpm"):
		port = 80
	default:
		return bad("no test protocol %q is known, only %s", scheme, strings.Join(Schemes(), ", "))
	}
	u, err := url.Parse("x://" + rest)
	if err != nil || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return bad("not scheme://host[:port][/path]")
	}
	if port == irtt.Port || port == iperf3.Port {
		if strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
			return bad("has more than a host and a port")
		}
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return bad("port %q is not a number from 1 to 65535", p)
		}
	} else {
		u.Host = net.JoinHostPort(u.Hostname(), strconv.Itoa(port))
	}
	if host, _, err := net.SplitHostPort(u.Host); err != nil || host == "" {
		return bad("not scheme://host[:port][/path]")
	}
	u.Scheme = "https"
	if plain {
		u.Scheme = "http"
	}
	return address{scheme: scheme, host: u.Host, url: *u}, nil
}

// Check reports whether server and ping are well formed, without asking
// anybody. Its errors are *measure.AddressError.
func Check(server, ping string) error {
	if _, err := parse(server); err != nil {
		return err
	}
	if ping == "" {
		return nil
	}
	_, err := parsePing(ping)
	return err
}

// ParsePin reads the SHA-256 of a certificate as tools print it: 64 hexadecimal
// digits, in groups divided by colons or not. It returns small digits alone.
func ParsePin(s string) (string, error) {
	pin := strings.ToLower(strings.ReplaceAll(s, ":", ""))
	if b, err := hex.DecodeString(pin); err != nil || len(b) != sha256.Size {
		return "", fmt.Errorf("%q is not the SHA-256 of a certificate: 64 hexadecimal digits", s)
	}
	return pin, nil
}

// Dial opens a session with a server. Errors: *measure.AddressError, or
// wrapping measure.ErrUnreachable or measure.ErrRefused.
func Dial(ctx context.Context, server string, o Options) (measure.Tester, error) {
	a, err := parse(server)
	if err != nil {
		return nil, err
	}
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if a.scheme == schemeNative {
		return dialNative(ctx, a, o)
	}
	if o.Pin != "" {
		if o.Pin, err = ParsePin(o.Pin); err != nil {
			return nil, err
		}
	}
	d := &dialer{clock: netio.NewClock(), o: o, a: a, server: server}
	switch {
	case a.scheme == schemeIrtt:
		return d.irtt(ctx)
	case a.scheme == schemeIperf3:
		return d.iperf3(ctx)
	}
	return d.web(ctx)
}

// dialNative opens a session with unbloat's own server; --ping probes beside it.
func dialNative(ctx context.Context, a address, o Options) (measure.Tester, error) {
	c, err := measure.Dial(ctx, a.host, measure.Options{Timeout: o.Timeout, Probe: o.Probe, Agent: o.Agent, Key: o.Key})
	if err != nil || o.Ping == "" {
		return c, err
	}
	b, err := pingTo(ctx, netio.NewClock(), o.Ping, o)
	if err != nil {
		c.Close()
		return nil, err
	}
	c.AddSecondary(b)
	return c, nil
}

// A dialer opens one session.
type dialer struct {
	clock  *netio.Clock
	o      Options
	a      address
	server string
}

// runner returns the PhaseRunner of a source. beside is probed besides, if asked for.
func (d *dialer) runner(ctx context.Context, s measure.Source, interval time.Duration) (measure.Tester, error) {
	o := measure.RunnerOptions{Server: d.server, Interval: interval, Peer: d.peer(ctx)}
	if d.o.Ping != "" {
		b, err := pingTo(ctx, d.clock, d.o.Ping, d.o)
		if err != nil {
			s.Close()
			return nil, err
		}
		o.Secondary = append(o.Secondary, b)
	}
	return measure.NewPhaseRunner(d.clock, s, o), nil
}

// peer returns the server's address, where it can be told.
func (d *dialer) peer(ctx context.Context) netip.Addr {
	a, err := resolve(ctx, d.a.host)
	if err != nil {
		return netip.Addr{} // connecting will say it
	}
	return a.Addr()
}

// resolve looks up the address of host:port.
func resolve(ctx context.Context, hostport string) (netip.AddrPort, error) {
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
		return netip.AddrPort{}, fmt.Errorf("%w: %w", measure.ErrUnreachable, err)
	}
	if len(addrs) == 0 {
		return netip.AddrPort{}, fmt.Errorf("%w: %s has no address", measure.ErrUnreachable, host)
	}
	return netip.AddrPortFrom(addrs[0].Unmap(), uint16(n)), nil
}

// ErrCertificate is wrapped by errors of a server that is there, but whose
// certificate no authority vouches for, or is not the one that was named.
var ErrCertificate = errors.New("the server's certificate is not trusted")

// ErrNoHTTP is wrapped by errors of a build that leaves out the protocols over HTTP.
var ErrNoHTTP = errors.New("this build has no HTTP (build tag omit_http), which that protocol needs; measure against unbloat, irtt or iperf3, or use the whole program")

// unreachable marks an error of connecting, unless it is marked already.
func unreachable(what string, err error) error {
	if untrusted(err) {
		return fmt.Errorf("%w: %s: %w", ErrCertificate, what, err)
	}
	if errors.Is(err, ErrCertificate) {
		return fmt.Errorf("%s: %w", what, err)
	}
	if errors.Is(err, measure.ErrUnreachable) || errors.Is(err, measure.ErrRefused) {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%w: %s: %w", measure.ErrUnreachable, what, err)
}

// HostOf returns the host of a --server value, "" of one that is malformed.
func HostOf(server string) string {
	a, err := parse(server)
	if err != nil {
		return ""
	}
	host, _, err := net.SplitHostPort(a.host)
	if err != nil {
		return ""
	}
	return host
}
