package linux_test

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux"
	"unbloat/lab"
	"unbloat/testkit/labtest"
	"unbloat/unit"
)

// TestMarksOfOthersInLab, on a real kernel, beside rules of others that copy a connection's
// mark to its packets and route by it: a full tunnel as wg-quick makes it, and a second line
// whose policy routing has no mask. The BPF program writes no mark: the tunnel's packets and
// the second line's come back beside it. On a router that can't have it, the plan leaves the
// classes out, says beside which rule, and one with classes from elsewhere is refused.
func TestMarksOfOthersInLab(t *testing.T) {
	if !routerInLab(t) {
		return
	}
	const requests, each = 20, 10
	within(t, lab.NodeServer, func() { // a download: one packet up brings several
		c, err := net.ListenPacket("udp4", lab.ServerAddr+":5004")
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { c.Close() })
		go func() {
			for b := make([]byte, 1000); ; {
				n, from, err := c.ReadFrom(b)
				if err != nil {
					return
				}
				for range each {
					_, _ = c.WriteTo(b[:n], from)
				}
			}
		}()
	})
	// loads asks on one connection, of the router's own socket with a mark, or of the home's
	// machine, and returns what part of the packets came.
	loads := func(mark int) float64 {
		node, came := lab.NodeRouter, 0
		if mark == 0 {
			node = lab.Host(1)
		}
		within(t, node, func() {
			l := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
				return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, mark) })
			}}
			c, err := l.ListenPacket(t.Context(), "udp4", ":0") // as WireGuard's: one that is connected passes by source validation
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			b := make([]byte, 1000)
			for range requests {
				_, _ = c.WriteTo(b, &net.UDPAddr{IP: net.ParseIP(lab.ServerAddr), Port: 5004})
				_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
				for range each {
					if _, _, err := c.ReadFrom(b); err != nil {
						break
					}
					came++
				}
			}
		})
		return float64(came) / requests / each
	}
	e := &apply.Engine{Backend: &linux.Backend{Runner: here(), Exe: labtest.Unbloat()}, Runner: here(), Dir: t.TempDir(), Watchdog: quiet{}}
	planned := func(noBPF string, rules ...plan.Rule) plan.Plan {
		t.Helper()
		f, err := linux.Detect(t.Context(), here(), "wan", "lan")
		if err != nil {
			t.Fatal(err)
		}
		f.NoBPF = noBPF
		p, err := plan.Make(plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond}, f, plan.Preferences{Classes: plan.ClassPreferences{Rules: rules}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	without := func() plan.Plan {
		return planned("of a test", plan.Rule{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 5004, To: 5004}}})
	}
	elsewhere := without() // nobody sets marks yet
	if elsewhere.Classes == nil || elsewhere.Classes.ByBPF() {
		t.Fatalf("without BPF a plan with a rule has the classes %+v", elsewhere.Classes)
	}
	sh(t, "sysctl -qw net.ipv4.conf.all.rp_filter=1 net.ipv4.conf.all.src_valid_mark=1 && ip link add vpn0 type dummy && ip addr add 10.99.0.2/24 dev vpn0 && ip link set vpn0 up")
	defer sh(t, "ip link del vpn0 && sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.all.src_valid_mark=0")
	for _, x := range []struct {
		name, come, go_ string
		mark            int
		says            string
	}{
		{"a full tunnel", `ip route add default dev vpn0 table 51820 && ip rule add not fwmark 51820 table 51820 && ip rule add table main suppress_prefixlength 0 &&
nft 'table ip v { chain a { type filter hook prerouting priority -150; meta l4proto udp meta mark set ct mark; }; chain b { type filter hook postrouting priority -150; meta l4proto udp meta mark 51820 ct mark set mark; }; }'`,
			`nft delete table ip v && ip rule del not fwmark 51820 table 51820 && ip rule del table main suppress_prefixlength 0`, 51820, "table ip v: meta l4proto udp meta mark set ct mark"},
		{"two lines", `ip route add $(ip route show default) table 1 && ip route save default > /tmp/default && ip route replace default dev vpn0 && ip rule add fwmark 1 table 1 && ip rule add table main suppress_prefixlength 0 &&
nft 'table ip v { chain a { type filter hook prerouting priority -150; iifname "lan" ct state new ct mark set 1; meta mark set ct mark; }; }'`,
			`ip route del default && ip route restore < /tmp/default && nft delete table ip v && ip rule del fwmark 1 table 1 && ip rule del table main suppress_prefixlength 0`, 0, "ip rule: from all fwmark 0x1 lookup 1"},
		{"a mark with a mask", `ip rule add fwmark 1/0xff table main && nft 'table ip v { chain a { type filter hook prerouting priority -150; ct mark set ct mark and 0xffffff00 or 1; meta mark set ct mark and 0xff; }; }'`,
			`nft delete table ip v && ip rule del fwmark 1/0xff table main`, 0, ""},
	} {
		sh(t, x.come)
		if part := loads(x.mark); part < 1 {
			t.Fatalf("%s: before, %.2f of the packets came", x.name, part)
		}
		for _, p := range []plan.Plan{planned(""), without()} {
			tr, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute, Hold: true})
			if err != nil {
				t.Fatalf("%s: %v", x.name, err)
			}
			if part := loads(x.mark); part < 1 {
				t.Errorf("%s: with shaping, by BPF %v, %.2f of the packets came", x.name, p.Classes.ByBPF(), part)
			}
			if err := tr.Revert(t.Context()); err != nil {
				t.Fatal(err)
			}
			tr.Close()
		}
		if p := planned(""); !p.Classes.ByBPF() {
			t.Errorf("%s: the program writes no mark, and the plan has no classes: %+v", x.name, p.Classes)
		}
		p := without()
		why, _ := p.Why("classes")
		if has := p.Classes != nil; has != (x.says == "") || !has && !strings.Contains(why.Why.String(), x.says) {
			t.Errorf("%s: classes %v: %s", x.name, has, why.Why)
		}
		if x.says != "" {
			var refused *platform.PreconditionError
			if _, err := e.Begin(t.Context(), elsewhere, apply.Options{Confirm: time.Minute, Hold: true}); !errors.As(err, &refused) || !strings.Contains(refused.What, x.says) {
				t.Errorf("%s: a plan with classes: %v", x.name, err)
			}
		}
		sh(t, x.go_)
	}
}
