package protocol_test

import (
	"errors"
	"net"
	"strconv"
	"testing"

	"unbloat/internal/measure/phases"
	"unbloat/internal/measure/protocol/all"
)

// FuzzServer: any value of --server or --ping is refused as wrong usage, or has
// a host and a port to dial.
func FuzzServer(f *testing.F) {
	for _, s := range []string{"h", "192.0.2.1:7676", "irtt://[::1]:2112", "iperf3://h", "ndt7+wss://h/x?access_token=y", "cloudflare+https://h", "rpm+http://h:80", "icmp://h", "udp://h:53", "tcp://[fe80::1%eth0]:443"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var usage *phases.AddressError
		if a, err := all.Protocols().Find(s); err != nil {
			if !errors.As(err, &usage) {
				t.Fatalf("%q: %v", s, err)
			}
		} else if host, port, err := net.SplitHostPort(a.Host); err != nil || host == "" || port == "0" {
			t.Fatalf("%q: %+v: %v", s, a, err)
		} else if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			t.Fatalf("%q: %+v: %v", s, a, err)
		}
		if host, err := all.Protocols().Way(s); err != nil {
			if !errors.As(err, &usage) {
				t.Fatalf("%q: %v", s, err)
			}
		} else if host == "" {
			t.Fatalf("%q has no host", s)
		}
	})
}

// TestZone: an IPv6 address of one interface is written as ssh(1) has it, or as in URLs.
func TestZone(t *testing.T) {
	for _, s := range []string{"irtt://[fe80::1%eth0]", "irtt://[fe80::1%25eth0]:2112", "ndt7+wss://[fe80::1%eth0]:2112/x"} {
		if a, err := all.Protocols().Find(s); err != nil || a.Host != "[fe80::1%eth0]:2112" {
			t.Errorf("%s: %+v, %v", s, a, err)
		}
	}
}
