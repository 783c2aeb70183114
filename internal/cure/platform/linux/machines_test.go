package linux_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"unbloat/internal/cure/classify"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux"
	"unbloat/testkit/linuxfake"
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
	}
	p, err := plan.Make(plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond}, plan.Capabilities{Language: linux.Language(), WAN: "wan", LAN: "lan", IFB: true, NoBPF: "no cls_bpf"},
		plan.Preferences{Classes: plan.ClassPreferences{Rules: []plan.Rule{{Class: plan.Voice, Protocol: "udp", FarPort: []plan.PortRange{{From: 5004, To: 5004}}}, {Class: plan.Bulk, Port: []plan.PortRange{{From: 6881, To: 6881}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	all := linux.Connections(t.Context(), r, p)
	var got []string
	for _, c := range all {
		got = append(got, fmt.Sprintf("%s %s %s | %s %s %d | %s %s %d", c.Protocol, c.Home, c.Far, c.Up.Class, c.Up.Why, c.Up.Bytes, c.Down.Class, c.Down.Why, c.Down.Bytes))
	}
	if want := []string{
		"udp 192.168.1.2:5004 198.51.100.9:5004 | voice by_rule 100000 | voice by_rule 110000",
		"tcp 192.168.1.2:40000 198.51.100.9:443 | normal ordinary 3000000 | normal ordinary 52000",
		"tcp 192.168.1.2:40001 198.51.100.9:443 | normal ordinary 3000000 | normal ordinary 52000",
		"tcp 192.168.1.3:443 198.51.100.7:7777 | normal ordinary 150000 | normal ordinary 6000",
		"udp 192.168.1.4:5004 198.51.100.9:5004 | voice by_rule 600000 | voice by_rule 110000",
		"udp 192.168.1.5:5004 198.51.100.9:5004 | voice by_rule 600000 | voice by_rule 110000",
		"udp [2001:db8:1::2]:6881 [2001:db8:2::1]:6881 | bulk by_rule 500000 | bulk by_rule 110000",
	}; !slices.Equal(got, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	want := []platform.Traffic{
		{Home: "192.168.1.2", Class: plan.Voice, Flows: 1, Up: 100 * unit.KB, Down: 110 * unit.KB},
		{Home: "192.168.1.2", Class: plan.Normal, Flows: 2, Up: 6 * unit.MB, Down: 104 * unit.KB},
		{Home: "192.168.1.3", Class: plan.Normal, Flows: 1, Up: 150 * unit.KB, Down: 6 * unit.KB},
		{Home: "192.168.1.4", Class: plan.Voice, Flows: 1, Up: 600 * unit.KB, Down: 110 * unit.KB},
		{Home: "192.168.1.5", Class: plan.Voice, Flows: 1, Up: 600 * unit.KB, Down: 110 * unit.KB},
		{Home: "2001:db8:1::2", Class: plan.Bulk, Flows: 1, Up: 500 * unit.KB, Down: 110 * unit.KB},
	}
	if got := platform.Machines(all); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant\n%+v", got, want)
	}
	platform.SortConnections(all, "steady")
	if all[0].Up.Bytes != 3*unit.MB || all[len(all)-1].Far.Port() != 7777 {
		t.Errorf("sorted for people: %+v", all)
	}
	if got := linux.Connections(t.Context(), lookedAt{}, p); got != nil {
		t.Errorf("nothing can be read, and %+v is said", got)
	}
}

// TestWhyFindsTheFlow: a flow is found by any of its ends and addresses: as it
// is, with swapped ends, with its address after NAT, with a forwarded port, and
// over IPv6. A port that is only a prefix of another does not match. What decided is told
// with the estimate and the limit.
func TestWhyFindsTheFlow(t *testing.T) {
	k := linuxfake.New()
	addresses := `[{"ifname":"wan","addr_info":[{"local":"203.0.113.5","prefixlen":24}]},{"ifname":"lan","addr_info":[{"local":"192.168.1.1","prefixlen":24},{"local":"2001:db8:1::1","prefixlen":64}]}]`
	p, err := plan.Make(plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond}, plan.Capabilities{Language: linux.Language(), WAN: "wan", LAN: "lan", IFB: true}, plan.Preferences{})
	if err != nil || !p.Classes.ByBPF() {
		t.Fatal(err, p.Explain())
	}
	k.Pins = []string{linux.ProgramKey(p)}
	half := func(lane string, code classify.Code, more string) string {
		return fmt.Sprintf(`{"bytes":200000,"lane":%q,"code":%d%s}`, lane, code, more)
	}
	flow := func(protocol int, home, seen, far, up, down string) string {
		return fmt.Sprintf(`{"protocol":%d,"home":%q,"seen":%q,"far":%q,"up":%s,"down":%s}`, protocol, home, seen, far, up, down)
	}
	light, bulk := half("voice", classify.LightSmall, `,"light":64000`), half("bulk", classify.WasBulk, "")
	k.Remembers = `{"flows":[` + strings.Join([]string{
		flow(17, "192.168.1.2:5004", "203.0.113.5:1024", "198.51.100.9:5300", light, light),
		flow(17, "192.168.1.3:4501", "203.0.113.5:4500", "198.51.100.7:7777", half("interactive", classify.Steady, `,"rate":1400000`), light),
		flow(6, "[2001:db8:1::2]:50000", "[2001:db8:1::2]:50000", "[2001:db8:2::1]:443", bulk, bulk),
		flow(17, "192.168.1.4:4000", "203.0.113.5:4000", "198.51.100.7:443", half("normal", classify.TookMore, `,"elastic":8000000000`), light),
	}, ",") + `],"machines":[{"home":"192.168.1.3","direction":"up","light":0,"steady":1500000}]}`
	router := withAddresses{k, addresses}
	const call = "udp 192.168.1.2:5004 > 198.51.100.9:5300"
	for _, x := range []struct {
		asked, is   string
		class       plan.Class
		note, rules string
	}{
		{call, call, plan.Voice, "", "light: 64.0 kbit/s of 200 kbit/s"},
		{"udp 198.51.100.9:5300 > 192.168.1.2:5004", call, plan.Voice, "home's end", "light"},
		{"udp 203.0.113.5:1024 > 198.51.100.9:5300", call, plan.Voice, "before NAT", "light"},
		{"udp 198.51.100.9:5300 > 203.0.113.5:1024", call, plan.Voice, "before NAT", "light"},
		{"udp 198.51.100.7:7777 > 203.0.113.5:4500", "udp 192.168.1.3:4501 > 198.51.100.7:7777", plan.Interactive, "before NAT", "steady: 1.40 Mbit/s of 1.88 Mbit/s, and of its machine 1.50 Mbit/s of 2.25 Mbit/s; would lose its place above"},
		{"udp 192.168.1.4:4000 > 198.51.100.7:443", "udp 192.168.1.4:4000 > 198.51.100.7:443", plan.Normal, "", "goes first again in 8s"},
		{"udp 192.168.1.2:5004 > 198.51.100.9:530", "udp 192.168.1.2:5004 > 198.51.100.9:530", plan.Normal, "", "not there: nobody has answered"},
		{"udp 198.51.100.9:530 > 192.168.1.2:5004", "udp 192.168.1.2:5004 > 198.51.100.9:530", plan.Normal, "home's end", "not there"},
		{"tcp [2001:db8:2::1]:443 > [2001:db8:1::2]:50000", "tcp [2001:db8:1::2]:50000 > [2001:db8:2::1]:443", plan.Bulk, "home's end", "heavy connections"},
		{"tcp 192.168.1.2:50000 > 198.51.100.9:443", "tcp 192.168.1.2:50000 > 198.51.100.9:443", plan.Interactive, "", "not there: the first"},
	} {
		f, err := classify.ParseFlow(x.asked)
		if err != nil {
			t.Fatal(err)
		}
		f.Packet = 300
		if f.Protocol == "tcp" {
			f.Packet = 1500
		}
		a := linux.Why(t.Context(), router, p, f)
		if a.Flow.String() != x.is || !strings.Contains(a.Note, x.note) || (a.Note == "") != (x.note == "") {
			t.Errorf("%s: taken for %s (%q), not %s (%q)", x.asked, a.Flow, a.Note, x.is, x.note)
		}
		if v := a.Verdicts[0]; v.Class != x.class || !strings.Contains(v.Rule, x.rules) {
			t.Errorf("%s: %s, %s; want %s, %s", x.asked, v.Class, v.Rule, x.class, x.rules)
		}
	}
}

// withAddresses is a router with these addresses.
type withAddresses struct {
	*linuxfake.Kernel
	addresses string
}

func (r withAddresses) Run(ctx context.Context, argv []string, stdin []byte) (stdout, stderr []byte, err error) {
	if strings.Join(argv, " ") == "ip -j addr show" {
		return []byte(r.addresses), nil, nil
	}
	return r.Kernel.Run(ctx, argv, stdin)
}
