package linux_test

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"unbloat/internal/lab"
	"unbloat/internal/lang/nft"
	"unbloat/internal/plan"
	"unbloat/internal/platform"
	"unbloat/internal/platform/linux"
	"unbloat/unit"
)

// A sender sends a flow's datagrams at a constant rate.
type sender struct {
	net.Conn
	t    *testing.T
	next time.Time
}

// send sends up to n datagrams of the given IP length in bytes. It checks until
// every 10 ms, stops when that is true, and returns how long it sent.
func (s *sender) send(aSecond, bytes, n int, until func() bool) time.Duration {
	s.t.Helper()
	b := make([]byte, bytes-28)
	started := time.Now()
	for i := range n {
		if s.next = s.next.Add(time.Second / time.Duration(aSecond)); time.Until(s.next) < -time.Second {
			s.next = time.Now()
		}
		time.Sleep(time.Until(s.next))
		if _, err := s.Write(b); err != nil {
			s.t.Fatal(err)
		}
		if i%(aSecond/100+1) == 0 && until() {
			break
		}
	}
	return time.Since(started)
}

// manifold answers each datagram to port 5006 of the server with n small ones,
// as last set by tell.
func manifold(t *testing.T) (tell func(n int32)) {
	var times atomic.Int32
	times.Store(1)
	within(t, lab.NodeServer, func() {
		c, err := net.ListenPacket("udp", net.JoinHostPort(lab.ServerAddr, "5006"))
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { c.Close() })
		go func() {
			b := make([]byte, 2000)
			for {
				_, from, err := c.ReadFrom(b)
				if err != nil {
					return
				}
				for range times.Load() {
					_, _ = c.WriteTo(b[:32], from)
				}
			}
		}()
	})
	return times.Store
}

// TestLooksInLab: calm flows are sampled, one small packet of many. A flow of
// 100 packets/s is never busy; one that was calm and then exceeds the limit is
// busy as soon as one that is metered packet by packet. The two directions are
// independent.
func TestLooksInLab(t *testing.T) {
	if !routerInLab(t) {
		return
	}
	facts, err := linux.Detect(t.Context(), platform.Local{}, "wan", "lan")
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Make(plan.Line{Down: 30 * unit.MbitPerSecond, Up: 30 * unit.MbitPerSecond}, facts, plan.Preferences{})
	if err != nil {
		t.Fatal(err)
	}
	turn(t, &linux.Backend{Runner: platform.Local{}}, p)
	echo(t, lab.ServerAddr)
	answer := manifold(t)
	dial := func(port string) *sender {
		var c net.Conn
		within(t, lab.Host(1), func() { c, err = net.Dial("udp4", lab.ServerAddr+":"+port) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return &sender{c, t, time.Now()}
	}
	holds := func(s *sender, set string) bool {
		_, port, _ := net.SplitHostPort(s.RemoteAddr().String())
		key := strings.ReplaceAll(fmt.Sprintf("udp . %s . %s . %s", s.LocalAddr(), lab.ServerAddr, port), ":", " . ")
		return exec.Command("nft", "get", "element", nft.Family, nft.TableIs, set, "{ "+key+" }").Run() == nil
	}
	never := func() bool { return false }
	for _, x := range []struct {
		aSecond, bytes int
		most           time.Duration
	}{{320, 60, 800 * time.Millisecond}, {1600, 60, 100 * time.Millisecond}, {100, 500, 2500 * time.Millisecond}} {
		s := dial("5004")
		for range 4 { // read more often than busy flows expire
			s.send(100, 200, 500, never)
			if holds(s, "busy4_up") || holds(s, "busy4_down") {
				t.Fatal("a flow of 100 packets and 160 kbit a second was called busy")
			}
		}
		if !holds(s, "looks4_up") || !holds(s, "looks4_down") {
			t.Error("the flow is metered packet by packet")
		}
		after := s.send(x.aSecond, x.bytes, 4*x.aSecond, func() bool { return holds(s, "busy4_up") })
		t.Logf("%d packets of %d bytes a second: busy after %v", x.aSecond, x.bytes, after)
		if !holds(s, "busy4_up") || after > x.most {
			t.Errorf("%d packets of %d bytes a second: busy after %v, want at most %v", x.aSecond, x.bytes, after, x.most)
		}
		flow, err := nft.ParseFlow(fmt.Sprintf("udp %s > %s:5004", s.LocalAddr(), lab.ServerAddr))
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range linux.Why(t.Context(), platform.Local{}, p, flow).Verdicts {
			if v.Direction == plan.DirectionUp && !strings.HasPrefix(v.Rule, "busy") {
				t.Errorf("why: %s, %s", v.Class, v.Rule)
			}
		}
	}
	s := dial("5006")
	s.send(50, 200, 200, never)
	answer(20) // now 1000 packets/s arrive
	s.send(50, 200, 200, never)
	if holds(s, "busy4_up") || !holds(s, "busy4_down") {
		t.Errorf("50 packets a second up and 1000 down: busy up %v, busy down %v", holds(s, "busy4_up"), holds(s, "busy4_down"))
	}
}
