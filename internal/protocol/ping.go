package protocol

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"unbloat/internal/measure"
	"unbloat/internal/netio"
	"unbloat/internal/probe"
	"unbloat/internal/protocol/irtt"
	"unbloat/internal/protocol/ping"
	"unbloat/unit"
)

// Ways of --ping.
const (
	pingICMP = "icmp"
	pingUDP  = "udp"
	pingTCP  = "tcp"
	pingIrtt = "irtt"
)

// dnsPort is where udp:// asks questions that name servers answer.
const dnsPort = 53

// A pingAddress is a --ping value that was understood.
type pingAddress struct{ way, host string } // host:port, of ICMP without a port

// parsePing reads a --ping value: HOST or icmp://HOST; udp://HOST:PORT, an echo
// service, or a name server on port 53; tcp://HOST:PORT, handshakes;
// irtt://HOST[:PORT]. Its errors are *measure.AddressError.
func parsePing(s string) (pingAddress, error) {
	way, host, ok := strings.Cut(s, "://")
	if !ok {
		way, host = pingICMP, s
	}
	bad := func(why string) (pingAddress, error) {
		return pingAddress{}, &measure.AddressError{Server: s, Why: "--ping: " + why +
			"; write HOST, icmp://HOST, udp://HOST:PORT, tcp://HOST:PORT or irtt://HOST"}
	}
	host = strings.TrimSuffix(host, "/")
	if host == "" || strings.ContainsAny(host, "/?#@ ") {
		return bad("no host")
	}
	switch way {
	case pingICMP:
		if host = strings.Trim(host, "[]"); host == "" {
			return bad("no host")
		}
		if _, err := netip.ParseAddr(host); err != nil && strings.Contains(host, ":") {
			return bad("ICMP has no ports")
		}
	case pingIrtt:
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), strconv.Itoa(irtt.Port))
		}
	case pingUDP, pingTCP:
		_, port, err := net.SplitHostPort(host)
		if err != nil {
			return bad("no port")
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return bad("the port is not a number from 1 to 65535")
		}
	default:
		return bad(fmt.Sprintf("no way %q of probing is known", way))
	}
	return pingAddress{way, host}, nil
}

// How often the ways probe unless told otherwise. Handshakes and name servers
// cost somebody else work.
const (
	pingInterval = 20 * time.Millisecond
	callInterval = 50 * time.Millisecond
)

// pingTo starts probes to a --ping value.
func pingTo(ctx context.Context, clock *netio.Clock, to string, o Options) (measure.SecondaryProbe, error) {
	a, err := parsePing(to)
	if err != nil {
		return measure.SecondaryProbe{}, err
	}
	b := measure.SecondaryProbe{Name: a.way + " " + a.host, Interval: o.Probe.Interval}
	if b.Interval <= 0 {
		b.Interval = pingInterval
	}
	cfg := probe.Config{Interval: b.Interval, Size: max(o.Probe.Size, probe.MinSize)}
	var socket measure.Socket
	switch a.way {
	case pingICMP:
		cfg.Codec, socket, err = dialICMP(ctx, clock, a.host, o)
	case pingUDP:
		cfg.Codec, socket, err = dialUDP(ctx, clock, a.host, o, &cfg)
	case pingTCP:
		b.Interval = max(b.Interval, callInterval)
		cfg.Interval = b.Interval
		cfg.Codec, socket = ping.Echo{Nonce: nonce()}, handshakes(clock, a.host, o)
	case pingIrtt:
		b.Interval = max(b.Interval, pingInterval)
		b.Prober, err = dialIrtt(ctx, clock, a.host, b.Interval, o)
		return b, err
	}
	if err != nil {
		return b, err
	}
	b.Prober, err = measure.StartProbeLoop(clock, socket, cfg)
	return b, err
}

// nonce returns 32 random bits.
func nonce() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails, it would rather end the program
	return binary.BigEndian.Uint32(b[:])
}

func dialICMP(ctx context.Context, clock *netio.Clock, host string, o Options) (probe.Codec, measure.Socket, error) {
	to, err := resolve(ctx, net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, nil, fmt.Errorf("probe %s by ICMP: %w", host, err)
	}
	s, raw, err := netio.DialPing(clock, to.Addr(), o.Probe.DSCP)
	if err != nil {
		return nil, nil, fmt.Errorf("probe %s by ICMP: %w; --ping tcp://HOST:PORT needs no right", host, err)
	}
	return ping.ICMP{Six: to.Addr().Is6(), Raw: raw, Nonce: nonce()}, s, nil
}

func dialUDP(ctx context.Context, clock *netio.Clock, host string, o Options, cfg *probe.Config) (probe.Codec, measure.Socket, error) {
	to, err := resolve(ctx, host)
	if err != nil {
		return nil, nil, fmt.Errorf("probe %s by UDP: %w", host, err)
	}
	s, err := netio.DialDatagram(clock, to, o.Probe.DSCP)
	if err != nil {
		return nil, nil, fmt.Errorf("probe %s by UDP: %w", host, err)
	}
	if to.Port() == dnsPort {
		cfg.Size = ping.DNSSize
		return &ping.DNS{}, s, nil
	}
	return ping.Echo{Nonce: nonce()}, s, nil
}

// handshakes probes by opening TCP connections: the round trip is that of SYN
// and its answer, be it a refusal.
func handshakes(clock *netio.Clock, host string, o Options) *calls {
	return newCalls(clock, func(ctx context.Context, begun unit.Instant) (time.Duration, error) {
		c, err := netio.DialTCP(ctx, host, measure.Grace, netio.TCPOptions{DSCP: o.Probe.DSCP})
		took := clock.Now().Sub(begun)
		if err != nil {
			if isRefusal(err) {
				return took, nil
			}
			return 0, err
		}
		_ = c.SetLinger(0) // no TIME-WAIT
		_ = c.Close()
		return took, nil
	})
}
