package nft_test

import (
	"slices"
	"strings"
	"testing"

	"unbloat/internal/lang/nft"
	"unbloat/internal/plan"
	"unbloat/internal/platform/linux"
	"unbloat/unit"
)

// TestDecide checks each flow's class and the rule given as the reason.
func TestDecide(t *testing.T) {
	w, err := plan.ParseClasses("rules", []byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	w.DSCP.TrustFar = false
	p, err := plan.Make(plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond},
		plan.Capabilities{Language: linux.Language(), WAN: "wan", LAN: "lan", IFB: true, Hosts: map[string][]string{"nas": {"192.168.1.9"}}}, plan.Preferences{Classes: w})
	if err != nil {
		t.Fatal(err)
	}
	known := nft.Connection{Known: true, Answered: true, Bytes: 5 * unit.MB}
	talks := nft.Connection{Known: true, Answered: true, Bytes: 5 * unit.MB, Up: 1400 * unit.KbitPerSecond}
	for _, x := range []struct {
		flow   string
		packet unit.Size
		c      nft.Connection
		sets   string
		class  plan.Class
		says   string
	}{
		{"udp 10.1.0.2:5004 > 198.51.100.9:5004", 200, known, "", plan.Voice, "calm"},
		{"udp 10.1.0.2:5004 > 198.51.100.9:5004", 1200, known, "", plan.Interactive, "larger than"},
		{"udp 10.1.0.2:5004 > 198.51.100.9:5004", 1200, known, "busy4_up", plan.Interactive, "steady: below 1.88 Mbit/s"},
		{"udp 10.1.0.2:5004 > 198.51.100.9:5004", 100, known, "busy4_up", plan.Interactive, "as acknowledgements are"},
		{"udp 10.1.0.2:5004 > 198.51.100.9:5004", 1200, talks, "busy4_up steady4_up", plan.Interactive, "1.40 Mbit/s, below 1.88 Mbit/s: goes first; would lose it above"},
		{"udp 10.1.0.2:5004 > 198.51.100.9:5004", 1200, talks, "busy4_up steady4_up lost4_up", plan.Normal, "took more than 1.88 Mbit/s"},
		{"udp 10.1.0.2:5004 > 198.51.100.9:5004", 1200, talks, "busy4_up lost4_up", plan.Normal, "took more than 1.88 Mbit/s"},
		{"udp 10.1.0.2:5004 > 198.51.100.9:5004", 1200, talks, "busy4_up greedy4_up", plan.Normal, "took more than 1.88 Mbit/s"},
		{"udp 10.1.0.2:5004 > 198.51.100.9:5004", 200, talks, "busy4_up greedy4_up", plan.Normal, "of a call only what is above waits"},
		{"udp 10.1.0.2:5004 > 198.51.100.9:5004", 1200, talks, "busy4_up full4_up", plan.Normal, "have more than 2.25 Mbit/s"},
		{"udp 10.1.0.2:5004 > 198.51.100.9:5004", 1200, talks, "busy4_up trial4_up", plan.Normal, "another flow is being tried"},
		{"udp 10.1.0.2:5004 > 198.51.100.9:5004", 200, known, "crowd4_up", plan.Normal, "of its machine exceeded 625 kbit/s"},
		{"udp 10.1.0.2:5004 > 198.51.100.9:5004", 200, nft.Connection{Known: true}, "", plan.Normal, "nobody has answered"},
		{"udp 10.1.0.2:6881 > 198.51.100.9:6881", 200, known, "swarm4", plan.Bulk, "swarm"},
		{"udp 10.1.0.2:5004 > 203.0.113.9:19305", 1200, known, "", plan.Voice, "rule 1"},
		{"tcp 192.168.1.9:8085 > 198.51.100.9:5000", 1500, known, "", plan.Bulk, "rule 2"},
		{"tcp 192.168.1.8:5000 > 198.51.100.9:80", 1500, known, "home4_2", plan.Bulk, "rule 2"},
		{"tcp 10.1.0.2:5000 > 198.51.100.9:443", 1500, known, "far4_3", plan.Interactive, "rule 3"},
		{"tcp 10.1.0.2:5000 > 198.51.100.9:443", 52, known, "", plan.Interactive, "beyond 1052 a second"},
		{"tcp 10.1.0.2:5000 > 198.51.100.9:443", 1500, nft.Connection{Known: true, Bytes: 900}, "", plan.Interactive, "first"},
		{"tcp 10.1.0.2:5000 > 198.51.100.9:443", 1500, known, "", plan.Normal, "nothing"},
		{"tcp 10.1.0.2:5000 > 198.51.100.9:443", 1500, nft.Connection{Known: true, Bytes: unit.GB}, "", plan.Bulk, "carried"},
		{"tcp 10.1.0.2:5000 > 198.51.100.9:443", 1500, nft.Connection{Known: true, Bytes: unit.MB, Mark: 0x20000000}, "", plan.Bulk, "heavy connections"},
		{"udp [2001:db9::1]:500 > [2001:db9::2]:53", 100, known, "", plan.Voice, "DNS"},
		{"gre 10.1.0.2 > 198.51.100.9", 1500, known, "", plan.Normal, "gre"},
	} {
		f, err := nft.ParseFlow(x.flow)
		if err != nil {
			t.Fatal(err)
		}
		f.Packet = x.packet
		v := nft.Decide(p, plan.DirectionUp, f, x.c, func(set, _ string) bool { return slices.Contains(strings.Fields(x.sets), set) })
		if v.Class != x.class || !strings.Contains(v.Rule, x.says) {
			t.Errorf("%s of %d B (%+v, in %q): %s, %s; want %s, %s", x.flow, x.packet, x.c, x.sets, v.Class, v.Rule, x.class, x.says)
		}
	}
	varies := p
	classes := *p.Classes
	classes.Varies, varies.Classes = true, &classes
	f, err := nft.ParseFlow("udp 10.1.0.2:5004 > 198.51.100.9:5004")
	if err != nil {
		t.Fatal(err)
	}
	for size, says := range map[unit.Size]string{200: "as sound is", 1200: "it goes first again after 4 s"} {
		f.Packet = size
		v := nft.Decide(varies, plan.DirectionUp, f, talks, func(set, _ string) bool { return set == "busy4_up" || set == "greedy4_up" })
		if !strings.Contains(v.Rule, says) {
			t.Errorf("%d B on a line that varies: %s; want %s", size, v.Rule, says)
		}
	}
	for _, bad := range []string{"", "udp", "udp 1.2.3.4 > 5.6.7.8:1", "xyz 1.2.3.4:1 > 5.6.7.8:1", "udp 1.2.3.4:1 > [::1]:1", "udp 1.2.3.4:1 5.6.7.8:1"} {
		if _, err := nft.ParseFlow(bad); err == nil {
			t.Errorf("%q was taken for a flow", bad)
		}
	}
}
