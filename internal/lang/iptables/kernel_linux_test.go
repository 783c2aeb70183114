package iptables_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"unbloat/internal/await"
	"unbloat/internal/lang/iptables"
)

// wiring makes a router between a home and the far end, in a network namespace each,
// and loads the rules from standard input. Then it runs its arguments in the router's.
const wiring = `set -e
mount -t tmpfs none /run
ip netns add home
ip netns add far
ip link add lan type veth peer name eth0 netns home
ip link add wan type veth peer name eth0 netns far
ip addr add 192.168.0.1/24 dev lan
ip addr add 203.0.113.1/24 dev wan
ip link set lo up
ip link set lan up
ip link set wan up
ip -n home addr add 192.168.0.2/24 dev eth0
ip -n far addr add 203.0.113.2/24 dev eth0
ip -n home link set eth0 up
ip -n far link set eth0 up
ip -n home route add default via 192.168.0.1
ip -n far route add default via 203.0.113.1
echo 1 > /proc/sys/net/ipv4/ip_forward
iptables-legacy-restore
exec "$@"`

// TestRulesOnKernelAlone: on this machine's kernel packets that a router forwards get the
// classes that the table of rules says: a call is voice, what nobody answers is
// normal, a flood loses its class, and a video call keeps one.
func TestRulesOnKernelAlone(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it takes some seconds; run it without -short")
	}
	await.Quiet(t)
	rules := iptables.Render(aPlan(1), "b10a:").Restored()
	if out, err := realIptables(t, rules, "iptables-legacy-restore"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command("unshare", "-n", "ip", "link", "add", "x", "type", "veth").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: no veth here: %v: %s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", "-n", "-m", "sh", "-c", wiring, "sh", os.Args[0], "-test.run=^TestTraffic$", "-test.v")
	cmd.Env = append(os.Environ(), "UNBLOAT_TRAFFIC=router")
	cmd.Stdin = strings.NewReader(rules)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

// TestTraffic is what TestRulesOnKernelAlone runs in its namespaces.
func TestTraffic(t *testing.T) {
	switch os.Getenv("UNBLOAT_TRAFFIC") {
	case "router":
		router(t)
	case "home":
		traffic(t)
	case "far":
		answer(t)
	default:
		t.Skip("SKIPPED: TestRulesOnKernelAlone runs this in namespaces of its own")
	}
}

// in returns a command that runs TestTraffic as one of the ends.
func in(t *testing.T, end string, kind string) *exec.Cmd {
	c := exec.CommandContext(t.Context(), "ip", "netns", "exec", end, os.Args[0], "-test.run=^TestTraffic$")
	c.Env = append(os.Environ(), "UNBLOAT_TRAFFIC="+end, "UNBLOAT_KIND="+kind)
	return c
}

var counted = regexp.MustCompile(`(?m)^\[(\d+):\d+\] -A (ub_\w+) -j CLASSIFY`)

// classCounts returns how many packets got their class in each chain.
func classCounts(t *testing.T) map[string]int {
	t.Helper()
	out, err := exec.Command("iptables-legacy-save", "-c", "-t", "mangle").Output()
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for _, m := range counted.FindAllStringSubmatch(string(out), -1) {
		n[strings.TrimPrefix(m[2], "ub_")], _ = strconv.Atoi(m[1])
	}
	return n
}

func router(t *testing.T) {
	far := in(t, "far", "")
	says, err := far.StdoutPipe()
	if err == nil {
		far.Stderr = os.Stderr
		err = far.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(says).ReadString('\n'); err != nil { // until it listens
		t.Fatal(err)
	}
	defer func() { _ = far.Process.Kill(); _ = far.Wait() }()
	for _, c := range []struct {
		kind string
		// at least so many of 100 packets in these chains, at most so many in those
		least, most map[string]int
	}{
		{"call", map[string]int{"up_voice": 95, "down_voice": 95}, map[string]int{"up_normal": 5}},
		{"silent", map[string]int{"up_normal": 95}, map[string]int{"up_voice": 0, "up_interactive": 0}},
		{"flood", map[string]int{"up_normal": 75, "down_normal": 75}, map[string]int{"up_voice": 0, "up_interactive": 25}},
		{"video", map[string]int{"up_interactive": 60}, map[string]int{"up_normal": 25}},
		{"names", map[string]int{"up_voice": 50}, map[string]int{"up_interactive": 0}},
	} {
		before := classCounts(t)
		out, err := in(t, "home", c.kind).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", c.kind, err, out)
		}
		got, all := classCounts(t), map[string]int{}
		for chain := range got {
			got[chain] -= before[chain]
			way, _, _ := strings.Cut(chain, "_")
			all[way] += got[chain]
		}
		t.Logf("%s: %v", c.kind, got)
		share := func(chain string) int {
			way, _, _ := strings.Cut(chain, "_")
			return got[chain] * 100 / max(all[way], 1)
		}
		for chain, n := range c.least {
			if share(chain) < n {
				t.Errorf("%s: %d %% of the packets in %s, not %d", c.kind, share(chain), chain, n)
			}
		}
		for chain, n := range c.most {
			if share(chain) > n {
				t.Errorf("%s: %d %% of the packets in %s, more than %d", c.kind, share(chain), chain, n)
			}
		}
	}
}

// answer sends back what comes, but to the port of silent.
func answer(t *testing.T) {
	for port := range ports() {
		c, err := net.ListenPacket("udp4", fmt.Sprintf("203.0.113.2:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			b := make([]byte, 2000)
			for {
				n, from, err := c.ReadFrom(b)
				if err != nil {
					return
				}
				if ports()[port] != "silent" {
					_, _ = c.WriteTo(b[:n], from)
				}
			}
		}()
	}
	fmt.Println("it listens")
	<-t.Context().Done() // it is ended from outside
}

func ports() map[int]string {
	return map[int]string{5001: "call", 5002: "silent", 5003: "flood", 5004: "video", 53: "names"}
}

// traffic sends what one kind of flow sends.
func traffic(t *testing.T) {
	kind := os.Getenv("UNBLOAT_KIND")
	port := 0
	for p, k := range ports() {
		if k == kind {
			port = p
		}
	}
	c, err := net.Dial("udp4", fmt.Sprintf("203.0.113.2:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	send := func(n, size int, every time.Duration) {
		for range n {
			if _, err := c.Write(make([]byte, size)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(every)
		}
	}
	b := make([]byte, 2000)
	if kind != "silent" {
		send(1, 172, 0)
		if _, err := c.Read(b); err != nil { // the first answer
			t.Fatal(err)
		}
	}
	switch kind {
	case "call":
		send(100, 172, 10*time.Millisecond)
	case "silent":
		send(60, 172, 5*time.Millisecond)
	case "flood":
		send(700, 1200, time.Millisecond)
	case "video":
		for range 120 { // 1.3 Mbit/s, and sound
			send(2, 1200, 7*time.Millisecond)
			send(1, 172, 0)
		}
	case "names":
		send(30, 60, 5*time.Millisecond)
	}
	for err == nil { // until no more answers come
		if err = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err == nil {
			_, err = c.Read(b)
		}
	}
}
