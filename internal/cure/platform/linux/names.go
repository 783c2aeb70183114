package linux

import (
	"context"
	"strings"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
)

// Hosts returns the addresses of home machines by lower-case name, from
// /etc/hosts and dnsmasq's leases. For a machine with a lease it is the MAC
// address, which stays when the IP address changes.
func Hosts(ctx context.Context, r platform.Runner) map[string][]string {
	out := map[string][]string{}
	add := func(name, what string) {
		name = strings.ToLower(name)
		short, _, _ := strings.Cut(name, ".")
		for _, n := range []string{name, short} {
			if kind, _ := plan.KindOfHost(n); n != "" && n != "*" && kind == plan.HostName {
				out[n] = []string{what}
			}
		}
	}
	if text, err := platform.Output(ctx, r, "cat", "/etc/hosts"); err == nil {
		for line := range strings.Lines(string(text)) {
			line, _, _ = strings.Cut(line, "#")
			w := strings.Fields(line)
			for _, name := range w[min(1, len(w)):] {
				if kind, a := plan.KindOfHost(w[0]); kind == plan.HostAddr {
					add(name, a)
				}
			}
		}
	}
	for _, file := range []string{"/var/lib/misc/dnsmasq.leases", "/tmp/dhcp.leases"} {
		text, err := platform.ReadTrusted(ctx, r, file)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			// expiry, MAC address, address, name, client id: dnsmasq(8)
			if w := strings.Fields(line); len(w) >= 4 {
				if kind, mac := plan.KindOfHost(w[1]); kind == plan.HostMAC {
					add(w[3], mac)
				}
			}
		}
	}
	return out
}
