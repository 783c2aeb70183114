package linux_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"

	"unbloat/internal/cure/lang/tc"
	"unbloat/lab"
	"unbloat/testkit/labtest"
)

// TestRulesOfTwoWANsInLab, on a real kernel: two WANs have a rule each for the same port, and
// give its packets different classes. A change of one leaves the other's table as it is, and
// its rule goes on.
func TestRulesOfTwoWANsInLab(t *testing.T) {
	if !routerInLab(t) {
		return
	}
	const beyond = "198.51.100.9" // past the second WAN, where nobody answers
	t.Cleanup(func() {
		sh(t, labtest.Unbloat()+" revert --wan wan2 --quiet || true; ip link del wan2; ip link del lan2")
	})
	sh(t, "for d in wan lan; do ip link add ${d}2 type veth peer name far$d; ip link set ${d}2 up; ip link set far$d up; done\n"+
		"ip addr add 192.0.2.1/24 dev wan2; ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev wan2; ip route add "+beyond+" via 192.0.2.2")
	untouched := sh(t, "tc qdisc show; nft list tables")
	change := func(wan, class string) {
		t.Helper()
		sh(t, labtest.Unbloat()+" apply --yes --quiet --aqm cake --shape-down 30mbit --shape-up 5mbit --wan "+wan+" --lan "+strings.Replace(wan, "wan", "lan", 1)+" --rule class="+class+",protocol=udp,far_port=5004")
	}
	revert := func(wan string) { t.Helper(); sh(t, labtest.Unbloat()+" revert --quiet --wan "+wan) }
	table := func(wan string) string { t.Helper(); return sh(t, "nft list table inet unbloat_"+wan) }
	// gives sends packets past a WAN, whose rule has them in this tin.
	gives := func(when, wan, address string, tin func(int) int) {
		t.Helper()
		const packets = 50
		before := inTin(t, wan, tin)
		within(t, lab.Host(1), func() {
			c, err := net.Dial("udp4", net.JoinHostPort(address, "5004"))
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			talk(t, c, packets)
		})
		if n := inTin(t, wan, tin) - before; n < packets {
			t.Errorf("%s: on %s %d of %d packets are in the rule's class", when, wan, n, packets)
		}
	}
	echo(t, lab.NodeServer, lab.ServerAddr)
	change("wan", "bulk")
	first := table("wan")
	change("wan2", "voice")
	second := table("wan2")
	gives("both", "wan", lab.ServerAddr, last)
	gives("both", "wan2", beyond, voice)
	if said := sh(t, labtest.Unbloat()+" why --wan wan2 'udp 10.1.0.2:4711 > "+beyond+":5004'"); strings.Count(said, "rule 1") != 2 || strings.Count(said, "voice") < 2 {
		t.Errorf("why: %s", said)
	}
	sh(t, labtest.Unbloat()+" status --quiet") // nothing differs
	if table("wan") != first {
		t.Errorf("with the second the first has\n%s\nwhere there was\n%s", table("wan"), first)
	}
	revert("wan2")
	if table("wan") != first || strings.Contains(sh(t, "nft list tables"), "unbloat_wan2") {
		t.Errorf("the second is reverted: %s", sh(t, "nft list ruleset"))
	}
	gives("the second is reverted", "wan", lab.ServerAddr, last)
	change("wan2", "voice")
	revert("wan")
	if table("wan2") != second {
		t.Errorf("without the first the second has\n%s\nwhere there was\n%s", table("wan2"), second)
	}
	gives("the first is reverted", "wan2", beyond, voice)
	revert("wan2")
	if now := sh(t, "tc qdisc show; nft list tables"); now != untouched {
		t.Errorf("both are reverted, and there is\n%s\nwhere there was\n%s", now, untouched)
	}
}

// TestTwoWANsOfOneLANInLab, on a real kernel behind NAT: two WANs share a LAN, and each has a
// filter of its own there. Calls past both are voice in both directions, and each WAN knows
// their machine by its own address. What changes one leaves the other's filter, and nothing
// differs; so does what loads one anew, and what the second's takes away itself.
func TestTwoWANsOfOneLANInLab(t *testing.T) {
	if !routerInLab(t) {
		return
	}
	const beyond = "198.51.100.9" // past the second WAN
	t.Cleanup(func() {
		_ = exec.Command("sh", "-c", labtest.Unbloat()+" revert --wan wan2 --quiet; ip link del wan2; ip netns del beyond; tc qdisc del dev lan ingress").Run() // each if it is there
	})
	sh(t, "ip netns add beyond; ip link add wan2 type veth peer name far netns beyond; ip link set wan2 up; ip addr add 192.0.2.1/24 dev wan2; ip route add "+beyond+" via 192.0.2.2\n"+
		"ip -n beyond link set lo up; ip -n beyond link set far up; ip -n beyond addr add 192.0.2.2/24 dev far; ip -n beyond addr add "+beyond+" dev lo\n"+
		"nft 'add table ip home; add chain ip home out { type nat hook postrouting priority 100; }; add rule ip home out oifname { wan, wan2 } masquerade'")
	untouched := sh(t, "tc qdisc show; tc filter show dev lan ingress; ls "+tc.Pins+" 2>/dev/null || true")
	change := func(wan, down string) {
		t.Helper()
		sh(t, labtest.Unbloat()+" apply --yes --quiet --aqm cake --classifier bpf --down "+down+" --up 10mbit --wan "+wan+" --lan lan")
	}
	revert := func(wan string) { t.Helper(); sh(t, labtest.Unbloat()+" revert --quiet --wan "+wan) }
	// numbering are the programs of the filters on the LAN, the last one first.
	numbering := func() (names []string) {
		t.Helper()
		var list []tc.Attached
		if err := json.Unmarshal([]byte(sh(t, labtest.Unbloat()+" classifier attached lan")), &list); err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			names = append(names, f.Name)
		}
		return names
	}
	echo(t, lab.NodeServer, lab.ServerAddr)
	echo(t, "beyond", beyond)
	host := strings.Fields(sh(t, "ip -n "+lab.Host(1)+" -4 -o addr show dev eth0"))[3]
	host, _, _ = strings.Cut(host, "/")
	port := 4710
	// calls speaks past a WAN, whose programs have the call in front both ways, and know who speaks.
	calls := func(when, wan, address string) {
		t.Helper()
		const packets = 50
		devices := []string{wan, "ifb4" + wan}
		var before []int
		for _, device := range devices {
			before = append(before, inTin(t, device, voice))
		}
		port++
		within(t, lab.Host(1), func() {
			c, err := net.DialUDP("udp4", &net.UDPAddr{Port: port}, &net.UDPAddr{IP: net.ParseIP(address), Port: 5004})
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			talk(t, c, packets)
		})
		for i, device := range devices {
			if n := inTin(t, device, voice) - before[i]; n < packets-2 {
				t.Errorf("%s: on %s %d of %d packets are voice", when, device, n, packets)
			}
		}
		flow := fmt.Sprintf("udp %s:%d > %s:5004", host, port, address)
		if said := sh(t, labtest.Unbloat()+" why --wan "+wan+" '"+flow+"'"); strings.Count(said, "voice") < 2 || strings.Contains(said, "not there") {
			t.Errorf("%s: why %s: %s", when, flow, said)
		}
		if said := sh(t, labtest.Unbloat()+" status --verbose --wan "+wan); !strings.Contains(said, fmt.Sprintf("udp %s:%d > %s:5004: up voice", host, port, address)) {
			t.Errorf("%s: status does not know who speaks: %s", when, said)
		}
	}
	both := func(when string) {
		t.Helper()
		if list := numbering(); len(list) != 2 {
			t.Errorf("%s: on the LAN are %q, not one of each WAN", when, list)
		}
		sh(t, labtest.Unbloat()+" status --quiet") // nothing differs
	}
	change("wan", "30mbit")
	first := numbering()
	change("wan2", "30mbit")
	both("both")
	calls("both", "wan", lab.ServerAddr)
	calls("both", "wan2", beyond)
	change("wan2", "40mbit") // which loads it anew
	both("the second has another rate")
	calls("the second has another rate", "wan", lab.ServerAddr)
	sh(t, "tc qdisc del dev lan ingress")
	change("wan2", "40mbit")
	change("wan", "30mbit")
	both("the filters were taken away")
	revert("wan2")
	if list := numbering(); len(list) != 1 || list[0] != first[0] {
		t.Errorf("without the second there are %q, and were %q", list, first)
	}
	sh(t, labtest.Unbloat()+" status --quiet")
	calls("without the second", "wan", lab.ServerAddr)
	change("wan2", "30mbit")
	revert("wan")
	if list := numbering(); len(list) != 1 || list[0] == first[0] {
		t.Errorf("without the first there are %q", list)
	}
	sh(t, labtest.Unbloat()+" status --quiet")
	calls("without the first", "wan2", beyond)
	revert("wan2")
	if now := sh(t, "tc qdisc show; tc filter show dev lan ingress; ls "+tc.Pins+" 2>/dev/null || true"); now != untouched {
		t.Errorf("both are reverted, and there is\n%s\nwhere there was\n%s", now, untouched)
	}
}
