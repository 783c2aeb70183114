package linux_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unbloat/internal/cure/classify"
	"unbloat/internal/cure/lang/nft"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux"
	"unbloat/lab"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// within runs f in another node's network namespace; sockets made there stay there.
func within(t *testing.T, node string, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its namespace
		ns, err := os.Open("/run/netns/" + node)
		if err == nil {
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
			ns.Close()
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("enter %s: %v", node, err)
	}
}

// echo answers datagrams on a node.
func echo(t *testing.T, node, address string) {
	within(t, node, func() {
		c, err := net.ListenPacket("udp", net.JoinHostPort(address, "5004"))
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { c.Close() })
		go func() {
			b := make([]byte, 2000)
			for {
				n, from, err := c.ReadFrom(b)
				if err != nil {
					return
				}
				_, _ = c.WriteTo(b[:n], from)
			}
		}()
	})
}

// talk sends n packets of a call, 20 ms apart, and returns the longest response
// time and the number of answers.
func talk(t *testing.T, c net.Conn, n int) (longest time.Duration, answered int) {
	t.Helper()
	b := make([]byte, 172)
	for range n {
		start := time.Now()
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(start.Add(500 * time.Millisecond))
		if _, err := c.Read(b); err == nil {
			answered++
			longest = max(longest, time.Since(start))
		}
		time.Sleep(time.Until(start.Add(20 * time.Millisecond)))
	}
	return longest, answered
}

// film sends what a video call does, 1.4 Mbit/s with sound, for ten seconds; the other end
// sends it back.
func film(t *testing.T, c net.Conn) {
	t.Helper()
	go func() {
		for b := make([]byte, 2000); ; {
			if _, err := c.Read(b); err != nil {
				return // closed
			}
		}
	}()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 500 {
		<-tick.C
		for _, n := range []int{172, 1100, 1100, 1100} {
			if _, err := c.Write(make([]byte, n)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// here is the guest, the router, with the program beside the tests.
func here() platform.Local { return platform.Local{Self: labtest.Unbloat()} }

// routerInLab says that a test runs in the guest, on the router, beside others: what it
// leaves is taken away.
func routerInLab(t *testing.T) bool {
	t.Helper()
	if !labtest.Inside(t, labtest.Options{With: "TestClassesInLab|TestDomainsInLab|TestLongConnectionsInLab|TestClassesLostInLab|TestTrustedAndWashedInLab|TestClassifierByBPFInLab|TestReplacedRuleInLab|" +
		"TestMarksOfOthersInLab|TestConnectionsGoOnInLab|TestRulesOfTwoWANsInLab|TestTwoWANsOfOneLANInLab"}) {
		return false
	}
	t.Cleanup(func() {
		_ = exec.Command(labtest.Unbloat(), "revert").Run()
		_ = exec.Command("sh", "-c", "tc qdisc del dev wan root; tc qdisc del dev wan clsact; tc qdisc del dev wan ingress; ip link del ifb4wan; nft flush ruleset; ip netns exec "+lab.Host(1)+" nft flush ruleset; conntrack -F").Run() // each if it is there
	})
	return true
}

// flood sends n datagrams, each from a different spoofed address and port.
func flood(t *testing.T, n int, rng *rand.Rand) {
	within(t, lab.Host(1), func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
		if err != nil {
			t.Error(err)
			return
		}
		defer unix.Close(fd)
		to := &unix.SockaddrInet4{Addr: [4]byte{10, 3, 0, 2}}
		for i := range n {
			p := make([]byte, 20+8+100)
			p[0], p[8], p[9] = 0x45, 64, unix.IPPROTO_UDP
			binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
			binary.BigEndian.PutUint32(p[12:], 10<<24|1<<16|uint32(rng.IntN(200)+20))
			copy(p[16:], to.Addr[:])
			binary.BigEndian.PutUint16(p[20:], uint16(rng.IntN(60000)+1024))
			binary.BigEndian.PutUint16(p[22:], uint16(rng.IntN(60000)+1024))
			binary.BigEndian.PutUint16(p[24:], uint16(len(p)-20))
			_ = unix.Sendto(fd, p, 0, to)
			if i%100 == 99 {
				time.Sleep(2 * time.Millisecond) // 50,000 a second
			}
		}
	})
}

// TestClassesInLab, on a real kernel: classes are applied in one change, a call
// becomes voice, a rule overrides behaviour, `why` names the deciding row. A
// flood of 100,000 new flows does not hurt the call: the program's arrays have a place for
// those that go on. Revert removes the table.
func TestClassesInLab(t *testing.T) {
	if !routerInLab(t) {
		return
	}
	ctx := context.Background()
	classes, err := plan.ParseClasses("classes", []byte("[[rule]]\nclass = \"bulk\"\nprotocol = \"udp\"\nfar_port = [\"5005\"]\n"))
	if err != nil {
		t.Fatal(err)
	}
	facts, err := linux.Detect(ctx, here(), "wan", "lan")
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Make(plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond}, facts, plan.Preferences{Classes: classes})
	if err != nil {
		t.Fatal(err)
	}
	if p.Classes.Of(true) == nil || p.Classes.Of(false) == nil {
		t.Fatalf("a direction has no classes: %s", p.Explain())
	}
	b := &linux.Backend{Runner: here(), Exe: labtest.Unbloat()}
	before, err := b.Observe(ctx, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	want, err := b.Desire(ctx, p, before, before)
	if err != nil {
		t.Fatal(err)
	}
	change := func(from, to platform.State) {
		t.Helper()
		steps, _, err := b.Compare(from, to)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range steps {
			if _, said, err := here().Run(ctx, s.Argv, []byte(s.Stdin)); err != nil {
				t.Fatalf("%s: %s", s, said)
			}
		}
		now, err := b.Observe(ctx, p, nil)
		if err != nil {
			t.Fatal(err)
		}
		if steps, d, _ := b.Compare(now, to); len(d) > 0 || len(steps) > 0 {
			t.Fatalf("read back: %q", d)
		}
	}
	change(before, want)
	echo(t, lab.NodeServer, lab.ServerAddr)
	var call net.Conn
	within(t, lab.Host(1), func() {
		call, err = net.Dial("udp4", lab.ServerAddr+":5004")
	})
	if err != nil {
		t.Fatal(err)
	}
	defer call.Close()
	talk(t, call, 150) // long enough that connection tracking keeps it under a flood
	why := func(f string) []platform.Verdict {
		flow, err := classify.ParseFlow(f)
		if err != nil {
			t.Fatal(err)
		}
		return linux.Why(ctx, here(), p, flow).Verdicts
	}
	flow := fmt.Sprintf("udp %s > %s:5004", call.LocalAddr(), lab.ServerAddr)
	protected := func(when string) {
		t.Helper()
		for _, v := range why(flow) {
			if v.Class != plan.Voice || !strings.Contains(v.Rule, "light: ") || strings.Contains(v.Rule, "not there") {
				t.Errorf("%s: %s: %s, %s", when, v.Direction, v.Class, v.Rule)
			}
		}
	}
	protected("before the flood")
	if v := why(strings.Replace(flow, ":5004", ":5005", 1))[0]; v.Class != plan.Bulk || !strings.Contains(v.Rule, "rule 1") {
		t.Errorf("the rule: %+v", v)
	}
	const seed = 1
	t.Logf("flood with seed %d", seed)
	flooded := make(chan struct{})
	go func() {
		flood(t, 100_000, rand.New(rand.NewPCG(seed, seed)))
		close(flooded)
	}()
	longest, answered := talk(t, call, 150)
	<-flooded
	t.Logf("in the flood: %d of 150 answered, the longest wait %v", answered, longest)
	if answered != 150 {
		t.Errorf("in the flood %d of 150 packets were answered", answered)
	}
	protected("after the flood")
	change(want, before)
	if exec.Command("nft", "list", "table", nft.Family, plan.OwnName("wan")).Run() == nil {
		t.Error("the table is still there")
	}
}
