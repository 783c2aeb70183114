package linux_test

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"unbloat/internal/host"
	"unbloat/internal/host/linux"
	"unbloat/internal/plan"
	"unbloat/unit"
)

// A lookedAt router answers what `status` asks for.
type lookedAt map[string]string

func (l lookedAt) Run(_ context.Context, argv []string, _ []byte) (stdout, stderr []byte, err error) {
	if text, ok := l[strings.Join(argv, " ")]; ok {
		return []byte(text), nil, nil
	}
	return nil, nil, &host.MissingToolError{Tool: argv[0]}
}

// What flows by machine and class: behind NAT, by a port that is forwarded, by
// IPv6; the router's own traffic towards the home and others' is not in it.
func TestMachines(t *testing.T) {
	r := lookedAt{
		"ip -j addr show": `[{"ifname":"lo","addr_info":[{"local":"127.0.0.1","prefixlen":8}]},{"ifname":"wan","addr_info":[{"local":"203.0.113.5","prefixlen":24}]},
{"ifname":"lan","addr_info":[{"local":"192.168.1.1","prefixlen":24},{"local":"2001:db8:1::1","prefixlen":64},{"local":"fe80::1","prefixlen":64}]}]`,
		"cat /proc/net/nf_conntrack": `ipv4     2 udp      17 119 src=192.168.1.2 dst=198.51.100.9 sport=5004 dport=5004 packets=500 bytes=100000 src=198.51.100.9 dst=203.0.113.5 sport=5004 dport=5004 packets=500 bytes=110000 [ASSURED] mark=134217728 zone=0 use=2
ipv4     2 tcp      6 431999 ESTABLISHED src=192.168.1.2 dst=198.51.100.9 sport=40000 dport=443 packets=2000 bytes=3000000 src=198.51.100.9 dst=203.0.113.5 sport=443 dport=40000 packets=1000 bytes=52000 [ASSURED] mark=0 zone=0 use=2
ipv4     2 tcp      6 431999 ESTABLISHED src=192.168.1.2 dst=198.51.100.9 sport=40001 dport=443 packets=2000 bytes=3000000 src=198.51.100.9 dst=203.0.113.5 sport=443 dport=40001 packets=1000 bytes=52000 [ASSURED] mark=536870912 zone=0 use=2
ipv4     2 tcp      6 431999 ESTABLISHED src=198.51.100.7 dst=203.0.113.5 sport=7777 dport=443 packets=100 bytes=6000 src=192.168.1.3 dst=198.51.100.7 sport=443 dport=7777 packets=100 bytes=150000 [ASSURED] mark=0 zone=0 use=2
ipv6     10 udp      17 119 src=2001:0db8:0001:0000:0000:0000:0000:0002 dst=2001:0db8:0002:0000:0000:0000:0000:0001 sport=6881 dport=6881 packets=500 bytes=500000 src=2001:0db8:0002:0000:0000:0000:0000:0001 dst=2001:0db8:0001:0000:0000:0000:0000:0002 sport=6881 dport=6881 packets=500 bytes=110000 [ASSURED] mark=0 zone=0 use=2
ipv4     2 tcp      6 431999 ESTABLISHED src=192.168.1.2 dst=192.168.1.1 sport=40002 dport=80 packets=10 bytes=1000 src=192.168.1.1 dst=192.168.1.2 sport=80 dport=40002 packets=10 bytes=1000 [ASSURED] mark=0 zone=0 use=2
ipv4     2 icmp     1 29 src=192.168.1.2 dst=9.9.9.9 type=8 code=0 id=7 packets=1 bytes=84 src=9.9.9.9 dst=203.0.113.5 type=0 code=0 id=7 packets=1 bytes=84 mark=0 zone=0 use=2
`,
		"nft -n list set inet unbloat swarm6": "table inet unbloat {\n\tset swarm6 {\n\t\telements = { 2001:db8:1::2 . 6881 expires 9m50s, 2001:db8:1::7 . 6881 expires 1s }\n\t}\n}\n",
	}
	p, err := plan.Make(plan.Line{Down: 30 * unit.MbitPerSecond, Up: 5 * unit.MbitPerSecond}, plan.Facts{Platform: plan.Linux, WAN: "wan", LAN: "lan", IFB: true}, plan.Wishes{})
	if err != nil {
		t.Fatal(err)
	}
	want := []linux.Traffic{
		{Home: "192.168.1.2", Class: plan.Voice, Flows: 1, Up: 100 * unit.KB, Down: 110 * unit.KB},
		{Home: "192.168.1.2", Class: plan.Normal, Flows: 1, Up: 3 * unit.MB, Down: 52 * unit.KB},
		{Home: "192.168.1.2", Class: plan.Bulk, Flows: 1, Up: 3 * unit.MB, Down: 52 * unit.KB},
		{Home: "192.168.1.3", Class: plan.Normal, Flows: 1, Up: 150 * unit.KB, Down: 6 * unit.KB},
		{Home: "2001:db8:1::2", Class: plan.Bulk, Flows: 1, Up: 500 * unit.KB, Down: 110 * unit.KB},
	}
	if got := linux.Machines(t.Context(), r, p); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant\n%+v", got, want)
	}
	if got := linux.Machines(t.Context(), lookedAt{}, p); got != nil {
		t.Errorf("nothing can be read, and %+v is said", got)
	}
}
