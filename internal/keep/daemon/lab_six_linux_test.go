package daemon_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"unbloat/internal/keep/delay"
	"unbloat/lab"
	"unbloat/testkit/await"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// A line that has IPv6 alone is followed as any: by the built-in reflectors' IPv6
// addresses. And its shaping is kept.
func TestIPv6AloneInLab(t *testing.T) {
	if !labtest.Inside(t, labtest.Options{Server: true, Scenario: labtest.HomeAt(10*unit.MbitPerSecond, 2*unit.MbitPerSecond)}) {
		return
	}
	const lan, wan, net = "fd00:1::", "fd00:2::", "fd00:3::"
	in := func(node, format string, args ...any) {
		t.Helper()
		if b, err := labtest.In(t.Context(), node, "sh", "-ec", fmt.Sprintf(format, args...)).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", node, err, b)
		}
	}
	const forward = "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding; "
	// A router asks for its neighbours' addresses from a link-local one.
	for node, devices := range map[string][]string{lab.NodeRouter: {"lan", "wan"}, lab.NodeISP: {"home", "net"}} {
		for i, dev := range devices {
			in(node, "ip addr add fe80::%d/64 dev %s nodad", i+1, dev)
		}
	}
	in(lab.NodeRouter, forward+"ip -4 addr flush dev wan; ip -4 addr flush dev lan; ip addr add %s1/64 dev lan nodad; ip addr add %s1/64 dev wan nodad; ip -6 route add default via %s2", lan, wan, wan)
	in(lab.NodeISP, forward+"ip addr add %s2/64 dev home nodad; ip addr add %s1/64 dev net nodad; ip -6 route add %s/64 via %s1; ip -6 route add default via %s2", wan, net, lan, wan, net)
	in(lab.NodeServer, "ip addr add %s2/64 dev eth0 nodad; ip -6 route add default via %s1", net, net)
	in(lab.Host(1), "ip -4 addr flush dev eth0; ip addr add %s2/64 dev eth0 nodad; ip -6 route add default via %s1", lan, lan)
	operators := map[string]bool{}
	for _, r := range delay.Resolvers() {
		if r.Addr.Is6() {
			in(lab.NodeServer, "ip addr add %s/128 dev eth0 nodad", r.Addr)
			operators[r.Operator] = true
		}
	}

	h := newHouse(t, followedWAN)
	defer func() {
		if t.Failed() {
			t.Logf("%+v\n%s", h.status().WANs[0].Line, h.said)
		}
	}()
	await.Until(t, 2*time.Minute, "all reflectors to answer", func() bool {
		l := h.status().WANs[0].Line
		if l == nil || len(l.Reflectors) < len(operators) {
			return false
		}
		for _, r := range l.Reflectors {
			if r.Operator == "" {
				continue // the first hop
			}
			if a, err := netip.ParseAddr(r.Address); err != nil || !a.Is6() {
				t.Fatalf("a reflector is %q", r.Address)
			}
			if r.Answered == 0 {
				return false
			}
		}
		return true
	})
	if !strings.Contains(shaped(ours()...), "cake") {
		t.Fatalf("what is there is\n%s\n%s", shaped(ours()...), h.said)
	}

	load := labtest.In(t.Context(), lab.Host(1), labtest.Unbloat(), "test", "--server", fmt.Sprintf("[%s2]:%d", net, lab.ServerPort), "--json", "--quiet", "--idle", "5", "--seconds", "40")
	if err := load.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = load.Process.Kill(); _ = load.Wait() }()
	await.Until(t, 20*time.Second, "the download", func() bool { return h.status().WANs[0].Line.Down.Carried > 6_700_000 })
	in(lab.NodeModem, "tc qdisc change dev m0 parent 2:1 handle 1: tbf rate 3mbit burst 1600 limit 1000000")
	await.Until(t, 10*time.Second, "the rate to follow the line down to 3 Mbit/s", func() bool {
		d := h.status().WANs[0].Line.Down
		return d.Carried < 3_200_000 && d.Rate > 1_300_000 && d.Rate < 3_200_000 && d.Delay.Ms() < 60
	})
	before := shaped(ours()...)
	sh(t, "tc qdisc del dev wan root")
	await.Until(t, 2*time.Second, "the queue to be there again", func() bool { return strings.Contains(sh(t, "tc qdisc show dev wan"), "cake") })
	if is := shaped(ours()...); strings.Count(is, "cake") != strings.Count(before, "cake") {
		t.Errorf("before\n%s\nafter\n%s", before, is)
	}
}
