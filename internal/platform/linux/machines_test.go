package linux_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"unbloat/internal/lang/nft"
	"unbloat/internal/plan"
	"unbloat/internal/platform"
	"unbloat/internal/platform/linux"
	"unbloat/unit"
)

// A lookedAt router has canned answers to the commands of `status`.
type lookedAt map[string]string

func (l lookedAt) Run(_ context.Context, argv []string, _ []byte) (stdout, stderr []byte, err error) {
	if text, ok := l[strings.Join(argv, " ")]; ok {
		return []byte(text), nil, nil
	}
	return nil, nil, &platform.MissingToolError{Tool: argv[0]}
}

// TestMachines: connections with the class of either direction, and traffic by machine and class: behind NAT, with a forwarded
// port, over IPv6. The router's own traffic to the home and transit traffic are
// not counted.
func TestMachines(t *testing.T) {
	r := lookedAt{
		"ip -j addr show": `[{"ifname":"lo","addr_info":[{"local":"127.0.0.1","prefixlen":8}]},{"ifname":"wan","addr_info":[{"local":"203.0.113.5","prefixlen":24}]},
{"ifname":"lan","addr_info":[{"local":"192.168.1.1","prefixlen":24},{"local":"2001:db8:1::1","prefixlen":64},{"local":"fe80::1","prefixlen":64}]}]`,
		"cat /proc/net/nf_conntrack": `ipv4     2 udp      17 119 src=192.168.1.2 dst=198.51.100.9 sport=5004 dport=5004 packets=500 bytes=100000 src=198.51.100.9 dst=203.0.113.5 sport=5004 dport=5004 packets=500 bytes=110000 [ASSURED] mark=134217728 zone=0 use=2
ipv4     2 tcp      6 431999 ESTABLISHED src=192.168.1.2 dst=198.51.100.9 sport=40000 dport=443 packets=2000 bytes=3000000 src=198.51.100.9 dst=203.0.113.5 sport=443 dport=40000 packets=1000 bytes=52000 [ASSURED] mark=0 zone=0 use=2
ipv4     2 tcp      6 431999 ESTABLISHED src=192.168.1.2 dst=198.51.100.9 sport=40001 dport=443 packets=2000 bytes=3000000 src=198.51.100.9 dst=203.0.113.5 sport=443 dport=40001 packets=1000 bytes=52000 [ASSURED] mark=536870912 zone=0 use=2
ipv4     2 tcp      6 431999 ESTABLISHED src=198.51.100.7 dst=203.0.113.5 sport=7777 dport=443 packets=100 bytes=6000 src=192.168.1.3 dst=198.51.100.7 sport=443 dport=7777 packets=100 bytes=150000 [ASSURED] mark=0 zone=0 use=2
ipv4     2 udp      17 119 src=192.168.1.4 dst=198.51.100.9 sport=5004 dport=5004 packets=500 bytes=600000 src=198.51.100.9 dst=203.0.113.5 sport=5004 dport=1024 packets=500 bytes=110000 [ASSURED] mark=0 zone=0 use=2
ipv4     2 udp      17 119 src=192.168.1.5 dst=198.51.100.9 sport=5004 dport=5004 packets=500 bytes=600000 src=198.51.100.9 dst=203.0.113.5 sport=5004 dport=1025 packets=500 bytes=110000 [ASSURED] mark=0 zone=0 use=2
ipv6     10 udp      17 119 src=2001:0db8:0001:0000:0000:0000:0000:0002 dst=2001:0db8:0002:0000:0000:0000:0000:0001 sport=6881 dport=6881 packets=500 bytes=500000 src=2001:0db8:0002:0000:0000:0000:0000:0001 dst=2001:0db8:0001:0000:0000:0000:0000:0002 sport=6881 dport=6881 packets=500 bytes=110000 [ASSURED] mark=0 zone=0 use=2
ipv4     2 tcp      6 431999 ESTABLISHED src=192.168.1.2 dst=192.168.1.1 sport=40002 dport=80 packets=10 bytes=1000 src=192.168.1.1 dst=192.168.1.2 sport=80 dport=40002 packets=10 bytes=1000 [ASSURED] mark=0 zone=0 use=2
ipv4     2 icmp     1 29 src=192.168.1.2 dst=9.9.9.9 type=8 code=0 id=7 packets=1 bytes=84 src=9.9.9.9 dst=203.0.113.5 type=0 code=0 id=7 packets=1 bytes=84 mark=0 zone=0 use=2
`,
		"nft -n list set inet unbloat busy4_up": "table inet unbloat {\n\tset busy4_up {\n\t\telements = { 17 . 192.168.1.4 . 5004 . 198.51.100.9 . 5004 expires 9s, 17 . 192.168.1.5 . 5004 . 198.51.100.9 . 5004 expires 9s }\n\t}\n}\n",
		"nft -n list set inet unbloat lost4_up": "table inet unbloat {\n\tset lost4_up {\n\t\telements = { 17 . 192.168.1.4 . 5004 . 198.51.100.9 . 5004 expires 29s }\n\t}\n}\n",
		"nft -n list set inet unbloat swarm6":   "table inet unbloat {\n\tset swarm6 {\n\t\telements = { 2001:db8:1::2 . 6881 expires 9m50s, 2001:db8:1::7 . 6881 expires 1s }\n\t}\n}\n",
	}
	p, err := plan.Make(plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond}, plan.Capabilities{Language: linux.Language(), WAN: "wan", LAN: "lan", IFB: true}, plan.Preferences{})
	if err != nil {
		t.Fatal(err)
	}
	all := linux.Connections(t.Context(), r, p)
	var got []string
	for _, c := range all {
		got = append(got, fmt.Sprintf("%s %s %s | %s %s %d | %s %s %d", c.Protocol, c.Home, c.Far, c.Up.Class, c.Up.Why, c.Up.Bytes, c.Down.Class, c.Down.Why, c.Down.Bytes))
	}
	if want := []string{
		"udp 192.168.1.2:5004 198.51.100.9:5004 | voice calm_small 100000 | voice calm_small 110000",
		"tcp 192.168.1.2:40000 198.51.100.9:443 | normal ordinary 3000000 | interactive acknowledges 52000",
		"tcp 192.168.1.2:40001 198.51.100.9:443 | bulk was_bulk 3000000 | interactive acknowledges 52000",
		"tcp 192.168.1.3:443 198.51.100.7:7777 | normal ordinary 150000 | interactive acknowledges 6000",
		"udp 192.168.1.4:5004 198.51.100.9:5004 | normal took_more 600000 | voice calm_small 110000",
		"udp 192.168.1.5:5004 198.51.100.9:5004 | interactive steady 600000 | voice calm_small 110000",
		"udp [2001:db8:1::2]:6881 [2001:db8:2::1]:6881 | bulk swarm 500000 | bulk swarm 110000",
	}; !slices.Equal(got, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	want := []platform.Traffic{
		{Home: "192.168.1.2", Class: plan.Voice, Flows: 1, Up: 100 * unit.KB, Down: 110 * unit.KB},
		{Home: "192.168.1.2", Class: plan.Normal, Flows: 1, Up: 3 * unit.MB, Down: 52 * unit.KB},
		{Home: "192.168.1.2", Class: plan.Bulk, Flows: 1, Up: 3 * unit.MB, Down: 52 * unit.KB},
		{Home: "192.168.1.3", Class: plan.Normal, Flows: 1, Up: 150 * unit.KB, Down: 6 * unit.KB},
		{Home: "192.168.1.4", Class: plan.Normal, Flows: 1, Up: 600 * unit.KB, Down: 110 * unit.KB},      // busy, and took too much
		{Home: "192.168.1.5", Class: plan.Interactive, Flows: 1, Up: 600 * unit.KB, Down: 110 * unit.KB}, // busy, and steady
		{Home: "2001:db8:1::2", Class: plan.Bulk, Flows: 1, Up: 500 * unit.KB, Down: 110 * unit.KB},
	}
	if got := platform.Machines(all); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant\n%+v", got, want)
	}
	platform.SortConnections(all, "steady")
	if first, second := all[0].Home.Addr().String(), all[1].Up.Bytes; first != "192.168.1.5" || second != 3*unit.MB || all[len(all)-1].Far.Port() != 7777 {
		t.Errorf("sorted for people: %+v", all)
	}
	if got := linux.Connections(t.Context(), lookedAt{}, p); got != nil {
		t.Errorf("nothing can be read, and %+v is said", got)
	}
}

// TestWhyFindsTheFlow: a flow is found by any of its ends and addresses: as it
// is, with swapped ends, with its address after NAT, with a forwarded port, and
// over IPv6. A port that is only a prefix of another does not match.
func TestWhyFindsTheFlow(t *testing.T) {
	const v4 = `ipv4     2 udp      17 119 src=192.168.1.2 dst=198.51.100.9 sport=5004 dport=5300 packets=500 bytes=100000 src=198.51.100.9 dst=203.0.113.5 sport=5300 dport=1024 packets=500 bytes=110000 [ASSURED] mark=0 zone=0 use=2
ipv4     2 udp      17 119 src=198.51.100.7 dst=203.0.113.5 sport=7777 dport=4500 packets=100 bytes=6000 src=192.168.1.3 dst=198.51.100.7 sport=4501 dport=7777 packets=100 bytes=150000 [ASSURED] mark=0 zone=0 use=2
`
	const v6 = `ipv6     10 tcp      6 119 ESTABLISHED src=2001:0db8:0001:0000:0000:0000:0000:0002 dst=2001:0db8:0002:0000:0000:0000:0000:0001 sport=50000 dport=443 packets=500 bytes=500000 src=2001:0db8:0002:0000:0000:0000:0000:0001 dst=2001:0db8:0001:0000:0000:0000:0000:0002 sport=443 dport=50000 packets=500 bytes=110000 [ASSURED] mark=536870912 zone=0 use=2
`
	addresses := `[{"ifname":"wan","addr_info":[{"local":"203.0.113.5","prefixlen":24}]},{"ifname":"lan","addr_info":[{"local":"192.168.1.1","prefixlen":24},{"local":"2001:db8:1::1","prefixlen":64}]}]`
	router := lookedAt{"ip -j addr show": addresses, "conntrack -L -f ipv4 -p udp -o extended": v4, "conntrack -L -f ipv6 -p tcp -o extended": v6,
		"conntrack -L -f ipv4 -p tcp -o extended": ""}
	blind := lookedAt{"ip -j addr show": addresses}
	p, err := plan.Make(plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond}, plan.Capabilities{Language: linux.Language(), WAN: "wan", LAN: "lan", IFB: true}, plan.Preferences{})
	if err != nil {
		t.Fatal(err)
	}
	const call = "udp 192.168.1.2:5004 > 198.51.100.9:5300"
	for _, x := range []struct {
		r           lookedAt
		asked, is   string
		class       plan.Class
		note, rules string
	}{
		{router, call, call, plan.Voice, "", "calm"},
		{router, "udp 198.51.100.9:5300 > 192.168.1.2:5004", call, plan.Voice, "home's end", "calm"},
		{router, "udp 203.0.113.5:1024 > 198.51.100.9:5300", call, plan.Voice, "before NAT", "calm"},
		{router, "udp 198.51.100.9:5300 > 203.0.113.5:1024", call, plan.Voice, "before NAT", "calm"},
		{router, "udp 198.51.100.7:7777 > 203.0.113.5:4500", "udp 192.168.1.3:4501 > 198.51.100.7:7777", plan.Voice, "before NAT", "calm"},
		{router, "udp 192.168.1.2:5004 > 198.51.100.9:530", "udp 192.168.1.2:5004 > 198.51.100.9:530", plan.Normal, "", "not there"},
		{router, "udp 198.51.100.9:530 > 192.168.1.2:5004", "udp 192.168.1.2:5004 > 198.51.100.9:530", plan.Normal, "home's end", "not there"},
		{router, "tcp [2001:db8:2::1]:443 > [2001:db8:1::2]:50000", "tcp [2001:db8:1::2]:50000 > [2001:db8:2::1]:443", plan.Bulk, "home's end", "heavy connections"},
		{router, "tcp 192.168.1.2:50000 > 198.51.100.9:443", "tcp 192.168.1.2:50000 > 198.51.100.9:443", plan.Interactive, "", "not there"},
		{blind, "tcp 192.168.1.2:50000 > 198.51.100.9:443", "tcp 192.168.1.2:50000 > 198.51.100.9:443", plan.Normal, "", "install conntrack"},
		{blind, call, call, plan.Voice, "", "calm"},
	} {
		f, err := nft.ParseFlow(x.asked)
		if err != nil {
			t.Fatal(err)
		}
		f.Packet = 300
		if f.Protocol == "tcp" {
			f.Packet = 1500
		}
		a := linux.Why(t.Context(), x.r, p, f)
		if a.Flow.String() != x.is || !strings.Contains(a.Note, x.note) || (a.Note == "") != (x.note == "") {
			t.Errorf("%s: taken for %s (%q), not %s (%q)", x.asked, a.Flow, a.Note, x.is, x.note)
		}
		if v := a.Verdicts[0]; v.Class != x.class || !strings.Contains(v.Rule, x.rules) {
			t.Errorf("%s: %s, %s; want %s, %s", x.asked, v.Class, v.Rule, x.class, x.rules)
		}
	}
}

// A talking router has one busy flow, which carries 175 kB a second up and 25 down.
type talking struct{ since time.Time }

func (r talking) Run(_ context.Context, argv []string, _ []byte) (stdout, stderr []byte, err error) {
	n := int(time.Since(r.since) / time.Millisecond)
	switch line := strings.Join(argv, " "); {
	case line == "ip -j addr show":
		return []byte(`[{"ifname":"wan","addr_info":[{"local":"203.0.113.5","prefixlen":24}]},{"ifname":"lan","addr_info":[{"local":"192.168.1.1","prefixlen":24}]}]`), nil, nil
	case line == "cat /proc/net/nf_conntrack":
		return fmt.Appendf(nil, "ipv4     2 udp      17 119 src=192.168.1.2 dst=198.51.100.9 sport=5004 dport=5300 packets=500 bytes=%d src=198.51.100.9 dst=203.0.113.5 sport=5300 dport=1024 packets=500 bytes=%d [ASSURED] mark=0 zone=0 use=2\n",
			100_000+175*n, 110_000+25*n), nil, nil
	case strings.HasPrefix(line, "nft get element") && (strings.Contains(line, " busy4_up ") || strings.Contains(line, " steady4_up ")):
		return nil, nil, nil
	}
	return nil, nil, &platform.MissingToolError{Tool: argv[0]}
}

// TestWhySteady: a steady flow is told with its rate and what it may have.
func TestWhySteady(t *testing.T) {
	p, err := plan.Make(plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond}, plan.Capabilities{Language: linux.Language(), WAN: "wan", LAN: "lan", IFB: true}, plan.Preferences{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := nft.ParseFlow("udp 192.168.1.2:5004 > 198.51.100.9:5300")
	if err != nil {
		t.Fatal(err)
	}
	f.Packet = 1200
	synctest.Test(t, func(t *testing.T) {
		a := linux.Why(t.Context(), talking{time.Now()}, p, f)
		const want = "steady: 1.40 Mbit/s, below 1.88 Mbit/s: goes first; would lose it above"
		if v := a.Verdicts[0]; v.Class != plan.Interactive || !strings.Contains(v.Rule, want) {
			t.Errorf("up: %s, %s; want %s, %s", v.Class, v.Rule, plan.Interactive, want)
		}
	})
}
