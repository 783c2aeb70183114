package linux_test

import (
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unbloat/internal/cure/lang/tc"
	"unbloat/lab"
	"unbloat/testkit/labtest"
)

// TestTrustedAndWashedInLab, on a real kernel: a trusted DSCP from the internet
// sets the class although the direction is washed, with CAKE on an ifb and with
// HTB; packets reach the home without it. A flood with that mark is metered.
func TestTrustedAndWashedInLab(t *testing.T) {
	if !routerInLab(t) {
		return
	}
	ctx := t.Context()
	run := func(argv ...string) string {
		t.Helper()
		out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v: %s", argv, err, out)
		}
		return string(out)
	}
	home := func(argv ...string) string {
		t.Helper()
		return run(append([]string{"ip", "netns", "exec", lab.Host(1)}, argv...)...)
	}
	// voice counts the packets of that class: of CAKE's last tin, of HTB's first queue.
	voice := func() (n int64) {
		t.Helper()
		counters, err := tc.ParseCounters([]byte(run("tc", "-s", "-d", "-j", "qdisc", "show", "dev", "ifb4wan")), "ifb4wan")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range counters {
			switch {
			case len(c.Tins) > 0:
				n += c.Tins[len(c.Tins)-1].Packets
			case c.Handle == "b10b:":
				n += c.Packets
			}
		}
		return n
	}
	var server net.PacketConn
	within(t, lab.NodeServer, func() {
		c, err := net.ListenPacket("udp4", lab.ServerAddr+":5004")
		if err != nil {
			t.Error(err)
			return
		}
		raw, _ := c.(*net.UDPConn).SyscallConn()
		_ = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, 46<<2) })
		if err != nil {
			t.Error(err)
		}
		server = c
	})
	defer server.Close()
	seen := "add table inet seen; delete table inet seen; add table inet seen; " + // so that it counts from 0
		"add chain inet seen in { type filter hook input priority 0; }; add rule inet seen in udp sport 5004 ip dscp ef counter comment marked; add rule inet seen in udp sport 5004 ip dscp 0 counter comment washed"
	classes := t.TempDir() + "/classes.toml"
	run("sh", "-c", `printf '[dscp]\ntrust_far = true\nwash_down = true\n' > `+classes)
	for _, aqm := range []string{"cake", "fq_codel"} {
		run(labtest.Unbloat(), "apply", "--shape-down", "30mbit", "--shape-up", "5mbit", "--wan", "wan", "--lan", "lan", "--aqm", aqm, "--classes", classes, "--yes")
		home("nft", seen)
		var sender net.Addr
		within(t, lab.Host(1), func() {
			c, err := net.Dial("udp4", lab.ServerAddr+":5004")
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			b := make([]byte, 1000) // calm, and therefore interactive
			for range 5 {
				_, _ = c.Write(b)
				_ = server.SetReadDeadline(time.Now().Add(5 * time.Second))
				n, from, err := server.ReadFrom(b)
				if err != nil {
					t.Error(err)
					return
				}
				sender = from
				_, _ = server.WriteTo(b[:n], from)
				_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
				if _, err := c.Read(b); err != nil {
					t.Error(err)
					return
				}
			}
		})
		if n := voice(); n < 5 {
			t.Errorf("%s: voice has had %d packets of 5", aqm, n)
		}
		rules := home("nft", "list", "table", "inet", "seen")
		t.Logf("%s: %s", aqm, rules)
		if !strings.Contains(rules, "ef counter packets 0 ") || strings.Contains(rules, "cs0 counter packets 0 ") {
			t.Errorf("%s: marks arrived at home: %s", aqm, rules)
		}
		// Three seconds at 24 Mbit/s; a steady flow may have 11.25, for half a second more.
		before := voice()
		for i := range 9000 {
			_, _ = server.WriteTo(make([]byte, 1000), sender)
			if i%24 == 23 {
				time.Sleep(8 * time.Millisecond)
			}
		}
		time.Sleep(100 * time.Millisecond) // what is on its way meets the next queue otherwise
		if n := voice() - before; n == 0 || n > 1500 {
			t.Errorf("%s: of a flood of 9000 packets %d went first", aqm, n)
		} else {
			t.Logf("%s: of a flood of 9000 packets %d went first", aqm, n)
		}
	}
}
