package protocol

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"unbloat/internal/measure/netio"
	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/probe"
	"unbloat/unit"
)

// Protocol is what probes hosts that run no test server: ICMP; UDP to an echo
// service, or to a name server on port 53; TCP handshakes.
func PingProtocol() Protocol {
	return Protocol{Ways: []Way{
		{Scheme: ICMPScheme, Usage: "icmp://HOST", Host: icmpHost, Start: startICMP},
		{Scheme: "udp", Usage: "udp://HOST:PORT", Host: HostPort(0), Start: startUDP},
		{Scheme: "tcp", Usage: "tcp://HOST:PORT", Host: HostPort(0), Least: CallInterval, Start: StartTCP},
	}}
}

// ICMPScheme begins --ping values for ICMP.
const ICMPScheme = "icmp"

// dnsPort is where udp:// asks questions that name servers answer.
const dnsPort = 53

// icmpHost checks a host that is probed by ICMP.
func icmpHost(host string) (string, error) {
	if host = strings.Trim(host, "[]"); host == "" {
		return "", errors.New("no host")
	}
	if _, err := netip.ParseAddr(host); err != nil && strings.Contains(host, ":") {
		return "", errors.New("ICMP has no ports")
	}
	return host, nil
}

// config returns what a stream of probes needs besides its codec.
func config(p Probing, codec probe.Codec) probe.Config {
	return probe.Config{Interval: p.Interval, Size: max(p.Options.Probe.Size, probe.MinSize), Codec: codec}
}

// nonce returns 32 random bits.
func nonce() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails, it would rather end the program
	return binary.BigEndian.Uint32(b[:])
}

func startICMP(ctx context.Context, p Probing) (phases.Prober, error) {
	to, err := Resolve(ctx, net.JoinHostPort(p.Host, "0"))
	if err != nil {
		return nil, fmt.Errorf("probe %s by ICMP: %w", p.Host, err)
	}
	s, raw, err := netio.DialPing(p.Clock, to.Addr(), p.Options.Probe.DSCP)
	if err != nil {
		return nil, fmt.Errorf("probe %s by ICMP: %w; --ping tcp://HOST:PORT needs no right", p.Host, err)
	}
	return phases.StartProbeLoop(p.Clock, s, config(p, ICMP{Six: to.Addr().Is6(), Raw: raw, Nonce: nonce()}))
}

func startUDP(ctx context.Context, p Probing) (phases.Prober, error) {
	to, err := Resolve(ctx, p.Host)
	if err != nil {
		return nil, fmt.Errorf("probe %s by UDP: %w", p.Host, err)
	}
	s, err := netio.DialDatagram(p.Clock, to, p.Options.Probe.DSCP)
	if err != nil {
		return nil, fmt.Errorf("probe %s by UDP: %w", p.Host, err)
	}
	if to.Port() == dnsPort {
		c := config(p, &DNS{})
		c.Size = DNSSize
		return phases.StartProbeLoop(p.Clock, s, c)
	}
	return phases.StartProbeLoop(p.Clock, s, config(p, Echo{Nonce: nonce()}))
}

// StartTCP probes by opening TCP connections to p.Host, which is host:port: the
// round trip is that of SYN and its answer, even if that is a refusal. The name is
// looked up once, before.
func StartTCP(ctx context.Context, p Probing) (phases.Prober, error) {
	to, err := Resolve(ctx, p.Host)
	if err != nil {
		return nil, fmt.Errorf("probe %s by TCP: %w", p.Host, err)
	}
	return StartCalls(p, func(ctx context.Context, begun unit.Instant) (time.Duration, error) {
		c, err := netio.DialTCP(ctx, to.String(), phases.Grace, netio.TCPOptions{DSCP: p.Options.Probe.DSCP})
		took := p.Clock.Now().Sub(begun)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return took, nil
		}
		if err != nil {
			return 0, err
		}
		_ = c.SetLinger(0) // no TIME-WAIT
		_ = c.Close()
		return took, nil
	})
}
