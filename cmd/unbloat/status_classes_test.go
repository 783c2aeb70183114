package main

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux"
	"unbloat/unit"
)

// TestStatusFlows: status lists flows with their classes, a video call before a larger
// download, says how many there are besides, and what each carries where it looked before.
func TestStatusFlows(t *testing.T) {
	flow := func(protocol, home, far string, up, down platform.Carried) platform.Connection {
		return platform.Connection{Protocol: protocol, Home: netip.MustParseAddrPort(home), Far: netip.MustParseAddrPort(far), Up: up, Down: down}
	}
	at := func(seconds unit.Size) []platform.Connection {
		return []platform.Connection{
			flow("tcp", "192.168.1.3:40000", "198.51.100.9:443", platform.Carried{Bytes: 2 * unit.MB, Class: plan.Interactive, Why: "acknowledges"},
				platform.Carried{Bytes: 90*unit.MB + seconds*unit.MB, Class: plan.Bulk, Why: "long"}),
			flow("udp", "192.168.1.2:5004", "203.0.113.9:3478", platform.Carried{Bytes: 10*unit.MB + seconds*175*unit.KB, Class: plan.Interactive, Why: "steady"},
				platform.Carried{Bytes: 9 * unit.MB, Class: plan.Interactive, Why: "steady"}),
			flow("udp", "[2001:db8::2]:9999", "[2001:db8:1::1]:53", platform.Carried{Bytes: 80, Class: plan.Voice, Why: "names"}, platform.Carried{}),
		}
	}
	var last, now routerStatus
	last.connections(at(0), 2)
	now.connections(at(2), 2)
	var out strings.Builder
	now.printConnections(&out, nil, 0)
	const want = `Flows and their classes, steady ones first, then those that carried most:
  udp 192.168.1.2:5004 > 203.0.113.9:3478: up interactive (steady), 10.3 MB; down interactive (steady), 9.00 MB
  tcp 192.168.1.3:40000 > 198.51.100.9:443: up interactive, 2.00 MB; down bulk, 92.0 MB
  and 1 more: unbloat status --flows 3
Why one has its class: unbloat why "udp 192.168.1.2:5004 > 203.0.113.9:3478"
`
	if out.String() != want {
		t.Errorf("%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	now.printConnections(&out, &last, 2*time.Second)
	for _, x := range []string{"up interactive (steady), 10.3 MB, now 1.40 Mbit/s;", "up interactive, 2.00 MB; down bulk, 92.0 MB, now 8.00 Mbit/s\n"} {
		if !strings.Contains(out.String(), x) {
			t.Errorf("no %q in\n%s", x, out.String())
		}
	}
	var all, none routerStatus
	all.connections(at(0), 100)
	none.connections(at(0), 0)
	out.Reset()
	all.printConnections(&out, nil, 0)
	if said := out.String(); !strings.Contains(said, "udp [2001:db8::2]:9999 > [2001:db8:1::1]:53: up voice, 80 B; down no class yet, 0 B\n") || strings.Contains(said, " more:") {
		t.Errorf("all of them: %s", said)
	}
	out.Reset()
	none.printConnections(&out, nil, 0)
	if out.Len() > 0 || len(none.Machines) != 3 {
		t.Errorf("none is asked for: %s%s", out.String(), fmt.Sprint(none.Machines))
	}
}

// TestStatusUnjudged: status says that calls are not protected by behaviour where the plan
// could not have it, and why.
func TestStatusUnjudged(t *testing.T) {
	for _, why := range []string{"", "no BPF filters; to have it: opkg install kmod-sched-bpf"} {
		p, err := plan.Make(plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond},
			plan.Capabilities{Language: linux.Language(), WAN: "wan", LAN: "lan", IFB: true, NoBPF: why}, plan.Preferences{})
		if err != nil {
			t.Fatal(err)
		}
		s := routerStatus{Committed: []keptState{{WAN: "wan", Time: "2026-01-01T00:00:00Z", Plan: p}}}
		var out strings.Builder
		s.printState(&out)
		if says := strings.Contains(out.String(), "calls have a fair share of the line, but don't go first"); says != (why != "") || !strings.Contains(out.String(), why) {
			t.Errorf("%q: %s", why, out.String())
		}
	}
}
