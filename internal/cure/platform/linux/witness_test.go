package linux_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"unbloat/internal/cure/platform/linux"
)

// TestCarried: connections are told by the interface through which their other end is reached,
// out of the home and into it, with what they carried each way; those that do not
// show it are left out. Where packets are not counted, an interface counts as a whole.
func TestCarried(t *testing.T) {
	const counts, none = " packets=%d bytes=9", ""
	addresses := `[{"ifname":"lo","addr_info":[{"local":"127.0.0.1","prefixlen":8}]},{"ifname":"wan","addr_info":[{"local":"203.0.113.5","prefixlen":24}]},
{"ifname":"wg0","addr_info":[{"local":"10.8.0.2","prefixlen":32}]},{"ifname":"lan","addr_info":[{"local":"192.168.1.1","prefixlen":24}]}]`
	tracked := func(count string) string {
		var b strings.Builder
		for _, l := range []string{
			"ipv4 2 tcp 6 9 ESTABLISHED src=192.168.1.2 dst=198.51.100.9 sport=4 dport=443% src=198.51.100.9 dst=203.0.113.5 sport=443 dport=4% [ASSURED]",
			"ipv4 2 udp 17 9 src=203.0.113.5 dst=198.51.100.7 sport=51820 dport=51820% src=198.51.100.7 dst=203.0.113.5 sport=51820 dport=51820%",
			"ipv4 2 tcp 6 9 ESTABLISHED src=192.168.1.2 dst=192.0.2.1 sport=5 dport=443% src=192.0.2.1 dst=10.8.0.2 sport=443 dport=5%",
			"ipv4 2 tcp 6 9 ESTABLISHED src=198.51.100.8 dst=203.0.113.5 sport=6 dport=22% src=192.168.1.3 dst=198.51.100.8 sport=22 dport=6%",
			"ipv4 2 tcp 6 9 ESTABLISHED src=192.168.1.2 dst=192.168.1.1 sport=7 dport=22% src=192.168.1.1 dst=192.168.1.2 sport=22 dport=7%",
			"ipv4 2 udp 17 9 src=192.168.1.1 dst=203.0.113.5 sport=8 dport=8% src=203.0.113.5 dst=192.168.1.1 sport=8 dport=8%",
			"ipv4 2 icmp 1 29 src=192.168.1.2 dst=9.9.9.9 type=8 code=0 id=7% src=9.9.9.9 dst=203.0.113.5 type=0 code=0 id=7%",
			"ipv6 10 tcp 6 9 ESTABLISHED src=2001:db8:1::2 dst=2001:db8:2::1 sport=4 dport=443% src=2001:db8:2::1 dst=2001:db8:1::2 sport=443 dport=4%",
		} {
			for i, part := range strings.Split(l, "%") {
				b.WriteString(part)
				if i < 2 && count != none {
					fmt.Fprintf(&b, count, i+1)
				}
			}
			b.WriteString("\n")
		}
		return b.String()
	}
	for _, x := range []struct{ name, text, dev, want string }{
		{"counted", tracked(counts), "", "wan 198.51.100.9 1/2, wan 198.51.100.7 1/2, wg0 192.0.2.1 1/2, wan 198.51.100.8 2/1, lan 192.168.1.2 2/1"},
		{"not counted", tracked(none), "Inter-| Receive\n face |bytes\n  wan: 9 71 0 0 0 0 0 0 9 72 0\n  wg0: 9 81 0 0 0 0 0 0 9 82 0\n  lan: 9 91 0 0 0 0 0 0 9 92 0\n other: 9 1 0 0 0 0 0 0 9 2 0\n wan:5: 9 3 0 0 0 0 0 0 9 4 0\n",
			"wan 198.51.100.9 0/0, wan 198.51.100.7 0/0, wg0 192.0.2.1 0/0, wan 198.51.100.8 0/0, lan 192.168.1.2 0/0, wan invalid IP 72/71, wg0 invalid IP 82/81, lan invalid IP 92/91"},
		{"none", "", "", ""},
	} {
		flows, err := linux.Carried(t.Context(), lookedAt{"ip -j addr show": addresses, "cat /proc/net/nf_conntrack": x.text, "cat /proc/net/dev": x.dev})
		var got []string
		keys := map[string]bool{}
		for _, f := range flows {
			got = append(got, fmt.Sprintf("%s %s %d/%d", f.Interface, f.Far, f.Out, f.In))
			keys[f.Interface+f.Key] = true
		}
		if s := strings.Join(got, ", "); s != x.want || err != nil || len(keys) != len(flows) {
			t.Errorf("%s: %v\n%s, want\n%s", x.name, err, s, x.want)
		}
	}
	if flows, err := linux.Carried(t.Context(), lookedAt{"ip -j addr show": addresses}); err == nil {
		t.Errorf("nothing tracks connections: %v", flows)
	}
}

// TestAnswers: whoever answers is told, in the order in which they were named.
func TestAnswers(t *testing.T) {
	all := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("192.0.2.3")}
	r := lookedAt{"ping -c 1 -W 1 -I wg0 192.0.2.3": "", "ping -c 1 -W 1 -I wg0 192.0.2.1": ""}
	if got := linux.Answers(context.Background(), r, "wg0", all); !slices.Equal(got, []netip.Addr{all[0], all[2]}) {
		t.Errorf("%v", got)
	}
}
