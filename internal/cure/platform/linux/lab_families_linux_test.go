package linux_test

import (
	"io"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"unbloat/internal/cure/classify"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux"
	"unbloat/lab"
	"unbloat/lab/scenario"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// sixAndNAT gives the lab's home IPv6 and the router NAT for IPv4, as in most
// homes. Neighbour entries across the line are permanent, as for IPv4.
const sixAndNAT = `set -e
for n in router isp; do ip netns exec $n sh -c 'echo 1 > /proc/sys/net/ipv6/conf/all/forwarding'; done
ip addr add fe80::1/64 dev lan nodad; ip addr add fe80::1/64 dev wan nodad
ip -n isp addr add fe80::2/64 dev home nodad; ip -n isp addr add fe80::2/64 dev net nodad; ip -n server addr add fe80::3/64 dev eth0 nodad
ip -n home1 addr add fe80::4/64 dev eth0 nodad; ip -n home2 addr add fe80::5/64 dev eth0 nodad
ip -n home1 addr add fd01::2/64 dev eth0 nodad; ip -n home1 route add default via fd01::1
ip -n home2 addr add fd01::3/64 dev eth0 nodad; ip -n home2 route add default via fd01::1
ip addr add fd01::1/64 dev lan nodad; ip addr add fd02::1/64 dev wan nodad; ip -6 route add default via fd02::2
ip -6 neigh add fd02::2 lladdr 02:00:00:00:01:02 dev wan nud permanent
ip -n isp addr add fd02::2/64 dev home nodad; ip -n isp addr add fd03::1/64 dev net nodad; ip -n isp route add fd01::/64 via fd02::1
ip -n isp -6 neigh add fd02::1 lladdr 02:00:00:00:00:01 dev home nud permanent
ip -n server addr add fd03::2/64 dev eth0 nodad; ip -n server route add default via fd03::1
nft add table ip nat
nft 'add chain ip nat post { type nat hook postrouting priority 100; }'
nft add rule ip nat post oifname wan masquerade
`

// serveAll answers datagrams on the server, and sends or receives TCP without
// end.
func serveAll(t *testing.T, address string) {
	echo(t, lab.NodeServer, address)
	within(t, lab.NodeServer, func() {
		for port, serve := range map[string]func(net.Conn){
			"6001": func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
			"6002": func(c net.Conn) { pour(c) },
		} {
			l, err := net.Listen("tcp", net.JoinHostPort(address, port))
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { l.Close() })
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					go serve(c)
				}
			}()
		}
	})
}

// pour writes until it can't.
func pour(c net.Conn) {
	b := make([]byte, 1<<14)
	for {
		if _, err := c.Write(b); err != nil {
			return
		}
	}
}

// greedy opens connections from a machine that send or receive until closed.
func greedy(t *testing.T, node, address string, up, down int) {
	within(t, node, func() {
		for i := range up + down {
			port, run := "6001", pour
			if i >= up {
				port, run = "6002", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
			}
			c, err := net.DialTimeout("tcp", net.JoinHostPort(address, port), 20*time.Second)
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { c.Close() })
			go run(c)
		}
	})
}

// TestClassesByFamilyInLab: a call over IPv6 and one over IPv4 behind NAT are
// voice in both directions. They lose nothing and wait for one or two packets
// at most, while their own machine sends on 40 connections and another sends
// and receives on 20 more, half of them over IPv6.
func TestClassesByFamilyInLab(t *testing.T) {
	s := labtest.Home()
	s.Loads = []scenario.Load{{Kind: scenario.VoIP, Host: 2, Flows: 1}} // two machines
	if !labtest.Inside(t, labtest.Options{Scenario: s}) {
		return
	}
	ctx := t.Context()
	if out, err := exec.Command("sh", "-c", sixAndNAT).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	facts, err := linux.Detect(ctx, here(), "wan", "lan")
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Make(plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond, RTT: 20 * time.Millisecond}, facts, plan.Preferences{})
	if err != nil {
		t.Fatal(err)
	}
	turn(t, &linux.Backend{Runner: here(), Exe: labtest.Unbloat()}, p)
	servers := map[string]string{"ipv4": lab.ServerAddr, "ipv6": "fd03::2"}
	calls := map[string]net.Conn{}
	for family, address := range servers {
		serveAll(t, address)
		within(t, lab.Host(1), func() {
			if calls[family], err = net.Dial("udp", net.JoinHostPort(address, "5004")); err != nil {
				t.Error(err)
			}
		})
		if t.Failed() {
			return
		}
		if _, lost := waits(t, calls[family], 50); lost > 5 {
			t.Fatalf("%s: %d of 50 packets are lost on the idle line", family, lost)
		}
	}
	for _, address := range servers {
		greedy(t, lab.Host(1), address, 20, 0)
		greedy(t, lab.Host(2), address, 5, 5)
	}
	time.Sleep(5 * time.Second) // until slow start is over
	for family, call := range calls {
		w, lost := waits(t, call, 100)
		if len(w) == 0 {
			t.Fatalf("%s: nothing was answered", family)
		}
		p95 := w[len(w)*95/100]
		t.Logf("%s: p95 %v, the longest %v, %d of 100 lost", family, p95, w[len(w)-1], lost)
		if lost > 0 || p95 > 20*time.Millisecond+12*time.Millisecond {
			t.Errorf("%s: p95 %v, %d lost", family, p95, lost)
		}
		flow, err := classify.ParseFlow("udp " + call.LocalAddr().String() + " > " + call.RemoteAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range linux.Why(ctx, here(), p, flow).Verdicts {
			if v.Class != plan.Voice || !strings.Contains(v.Rule, "light") {
				t.Errorf("%s: %s: %s, %s", family, v.Direction, v.Class, v.Rule)
			}
		}
		local, _, _ := net.SplitHostPort(call.LocalAddr().String())
		all := platform.Machines(linux.Connections(ctx, here(), p))
		if !slices.ContainsFunc(all, func(x platform.Traffic) bool {
			return x.Home == local && x.Class == plan.Voice && x.Flows == 1 && x.Up > 20*unit.KB && x.Down > 20*unit.KB
		}) || !slices.ContainsFunc(all, func(x platform.Traffic) bool {
			return x.Home == local && x.Class != plan.Voice && x.Up > 100*unit.KB
		}) {
			t.Errorf("%s: the machine's call and uploads are not among %+v", family, all)
		}
	}
}

// turn applies a plan and verifies the result.
func turn(t *testing.T, b *linux.Backend, p plan.Plan) {
	t.Helper()
	before, err := b.Observe(t.Context(), p, nil)
	if err != nil {
		t.Fatal(err)
	}
	want, err := b.Desire(t.Context(), p, before, before)
	if err != nil {
		t.Fatal(err)
	}
	steps, _, err := b.Compare(before, want)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		if _, said, err := b.Runner.Run(t.Context(), s.Argv, []byte(s.Stdin)); err != nil {
			t.Fatalf("%s: %s", s, said)
		}
	}
	now, err := b.Observe(t.Context(), p, before)
	if err != nil {
		t.Fatal(err)
	}
	if _, d, _ := b.Compare(now, want); len(d) > 0 {
		t.Fatalf("read back: %q", d)
	}
}

// waits sends n packets of a call, 20 ms apart, and returns the response times,
// sorted, and the number of lost answers.
func waits(t *testing.T, c net.Conn, n int) (w []time.Duration, lost int) {
	t.Helper()
	b := make([]byte, 172)
	for range n {
		start := time.Now()
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(start.Add(time.Second))
		if _, err := c.Read(b); err != nil {
			lost++
			continue
		}
		w = append(w, time.Since(start))
		time.Sleep(time.Until(start.Add(20 * time.Millisecond)))
	}
	slices.Sort(w)
	return w, lost
}
