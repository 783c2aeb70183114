package linux_test

import (
	"net"
	"strings"
	"testing"

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
	echo(t, lab.ServerAddr)
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
