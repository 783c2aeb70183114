package linux_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"unbloat/internal/cure/lang/tc"
	"unbloat/lab"
	"unbloat/testkit/labtest"
)

// voice and last are the tins of a call, and of what comes last, of so many.
func voice(n int) int { return n - 1 }
func last(int) int    { return 0 }

// inTin is how many packets a tin of a device's CAKE has sent.
func inTin(t *testing.T, device string, tin func(n int) int) int {
	t.Helper()
	var seen []struct {
		Tins []struct {
			Packets int `json:"sent_packets"`
		} `json:"tins"`
	}
	text := sh(t, "tc -s -j qdisc show dev "+device+" root")
	if err := json.Unmarshal([]byte(text), &seen); err != nil || len(seen) != 1 || len(seen[0].Tins) == 0 {
		t.Fatalf("%s: %v: %s", device, err, text)
	}
	return seen[0].Tins[tin(len(seen[0].Tins))].Packets
}

// TestClassifierByBPFInLab, on a real kernel behind NAT: `apply`
// loads the programs and attaches them to both CAKEs, without nftables; a call gets
// class voice in both directions, and `why` and `status` know its machine by its own
// address. 10,000 flows from invented addresses (with UNBLOAT_LONG 100,000) take
// nothing from it. With a rule that names traffic nftables tells the program of it, for
// both ways; and revert leaves nothing.
func TestClassifierByBPFInLab(t *testing.T) {
	flows := 10_000
	if labtest.Long() {
		flows = 100_000
	}
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
	router := func() string {
		return run("sh", "-c", "tc qdisc show; tc filter show dev wan; tc filter show dev wan ingress; tc filter show dev lan ingress; ip -br link; nft list tables; find "+tc.Pins+" -mindepth 1 2>/dev/null; true")
	}
	run("nft", "add table ip home; add chain ip home out { type nat hook postrouting priority 100; }; add rule ip home out oifname wan masquerade")
	untouched := router()
	apply := func(classifier string, more ...string) {
		t.Helper()
		run(append([]string{labtest.Unbloat(), "apply", "--shape-down", "30mbit", "--shape-up", "5mbit", "--wan", "wan", "--lan", "lan", "--aqm", "cake", "--classifier", classifier, "--yes"}, more...)...)
	}
	apply("bpf")
	if now := router(); strings.Contains(now, "unbloat") && strings.Contains(now, "table inet unbloat") {
		t.Errorf("there is a table of nftables' besides the programs: %s", now)
	}
	looksForMachines := func() int { return strings.Count(run("tc", "qdisc", "show"), " nat ") }
	if n := looksForMachines(); n != 0 {
		t.Errorf("%d queues look for machines in conntrack, which the program has numbered", n)
	}
	echo(t, lab.NodeServer, lab.ServerAddr)
	from := func(port int, do func(c net.Conn)) {
		t.Helper()
		within(t, lab.Host(1), func() {
			c, err := net.DialUDP("udp4", &net.UDPAddr{Port: port}, &net.UDPAddr{IP: net.ParseIP(lab.ServerAddr), Port: 5004})
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			do(c)
		})
	}
	call := func(port int) {
		t.Helper()
		from(port, func(c net.Conn) {
			if _, answered := talk(t, c, 100); answered < 98 {
				t.Errorf("%d of 100 packets were answered", answered)
			}
		})
	}
	call(4711)
	for _, device := range []string{"wan", "ifb4wan"} {
		if got := inTin(t, device, voice); got < 98 {
			t.Errorf("%s: the first tin has had %d packets of a call, not 98 or more", device, got)
		}
	}
	host := strings.Fields(strings.Split(run("ip", "netns", "exec", lab.Host(1), "ip", "-4", "-o", "addr", "show", "dev", "eth0"), "inet ")[1])[0]
	host, _, _ = strings.Cut(host, "/")
	flow := fmt.Sprintf("udp %s:4711 > %s:5004", host, lab.ServerAddr)
	why := run(labtest.Unbloat(), "why", "--wan", "wan", flow)
	if strings.Count(why, "voice") < 2 || strings.Contains(why, "not there") {
		t.Errorf("why %s: %s", flow, why)
	}
	status := run(labtest.Unbloat(), "status", "--wan", "wan", "--verbose")
	if !strings.Contains(status, host+", voice: 1 connections") || !strings.Contains(status, host+": 1 calm and 0 busy flows up (0 of these steady), 1 calm and 0 busy down (0 steady)") {
		t.Errorf("status: %s", status)
	}
	steady := func(port int) {
		t.Helper()
		from(port, func(c net.Conn) { film(t, c) })
		want := regexp.MustCompile(fmt.Sprintf(`udp %s:%d > %s:5004: up interactive \(steady\), \d.*MB; down interactive \(steady\), \d.*MB`, host, port, lab.ServerAddr))
		if status := run(labtest.Unbloat(), "status", "--wan", "wan"); !want.MatchString(status) {
			t.Errorf("status does not say that %s:%d is steady: %s", host, port, status)
		}
	}
	steady(4720)
	again := run(labtest.Unbloat(), "apply", "--shape-down", "30mbit", "--shape-up", "5mbit", "--wan", "wan", "--lan", "lan", "--aqm", "cake", "--classifier", "bpf", "--dry-run")
	if strings.Contains(again, "tc ") || strings.Contains(again, "classifier load") {
		t.Errorf("what is applied would be changed: %s", again)
	}
	var spoken net.Conn
	within(t, lab.Host(1), func() {
		var err error
		if spoken, err = net.Dial("udp4", lab.ServerAddr+":5004"); err != nil {
			t.Error(err)
		}
	})
	talk(t, spoken, 100)
	up, down := inTin(t, "wan", voice), inTin(t, "ifb4wan", voice)
	const seed = 1
	t.Logf("flood with seed %d", seed)
	flooded := make(chan struct{})
	go func() {
		flood(t, flows, rand.New(rand.NewPCG(seed, seed)))
		close(flooded)
	}()
	longest, answered := talk(t, spoken, 150)
	<-flooded
	spoken.Close()
	t.Logf("in the flood: %d of 150 answered, the longest wait %v", answered, longest)
	if answered != 150 || inTin(t, "wan", voice)-up < 150 || inTin(t, "ifb4wan", voice)-down < 150 {
		t.Errorf("in the flood %d of 150 packets were answered; %d and %d had class voice", answered, inTin(t, "wan", voice)-up, inTin(t, "ifb4wan", voice)-down)
	}
	run("ip", "addr", "add", "192.168.77.1/24", "dev", "lo") // machines may be behind it, which nobody numbers
	apply("bpf")
	if n := looksForMachines(); n != 2 {
		t.Errorf("with two LANs %d queues look for machines in conntrack, not both", n)
	}
	run("ip", "addr", "del", "192.168.77.1/24", "dev", "lo")
	apply("nft") // which means the same
	if now := router(); !strings.Contains(now, tc.Pins) || strings.Contains(now, "table inet unbloat") {
		t.Errorf("after --classifier nft: %s", now)
	}
	steady(4721)
	apply("bpf", "--rule", "class=bulk,protocol=udp,far_port=5004")
	if now := router(); !strings.Contains(now, tc.Pins) || !strings.Contains(now, "table inet unbloat") {
		t.Errorf("with a rule there are not both: %s", now)
	}
	call(4712)
	for _, device := range []string{"wan", "ifb4wan"} {
		if got := inTin(t, device, last); got < 98 {
			t.Errorf("%s: the last tin has had %d packets of what a rule names, not 98 or more", device, got)
		}
	}
	if why := run(labtest.Unbloat(), "why", "--wan", "wan", strings.Replace(flow, "4711", "4712", 1)); strings.Count(why, "rule 1") != 2 {
		t.Errorf("why of what a rule names: %s", why)
	}
	run(labtest.Unbloat(), "revert", "--wan", "wan")
	if now := router(); now != untouched {
		t.Errorf("revert leaves\n%s\nwhere there was\n%s", now, untouched)
	}
}
