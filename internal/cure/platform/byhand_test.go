package platform_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	mech "unbloat/internal/cure/lang/clearos"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/clearos"
	"unbloat/internal/cure/platform/freebsd"
	"unbloat/internal/cure/platform/linux"
	"unbloat/internal/cure/platform/openbsd"
	"unbloat/internal/cure/platform/openwrt"
	"unbloat/internal/cure/platform/opnsense"
	"unbloat/testkit/fake"
	"unbloat/testkit/opnsensefake"
	"unbloat/testkit/pfctl"
)

// run runs one command per line; all must succeed.
func run(t *testing.T, r platform.Runner, lines string) {
	t.Helper()
	for line := range strings.Lines(lines) {
		argv := strings.Fields(line)
		if len(argv) == 0 {
			continue
		}
		if _, errOut, err := r.Run(t.Context(), argv, nil); err != nil {
			t.Fatalf("%s: %s", line, errOut)
		}
	}
}

// rest is an OPNsense behind its API.
type rest struct{ opnsensefake.API }

// post sends one item and returns its uuid.
func (r rest) post(t *testing.T, path, body string) string {
	t.Helper()
	out, _, _ := r.Run(t.Context(), []string{http.MethodPost, path}, []byte(body))
	var answer struct{ Result, UUID, Status string }
	if json.Unmarshal(out, &answer) != nil || answer.Result != "saved" && answer.Status != "ok" {
		t.Fatalf("%s: %s", path, out)
	}
	return answer.UUID
}

// TestStatusByHand: on each system status explains configurations made by hand,
// the articles' and others, as not unbloat's.
func TestStatusByHand(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(t *testing.T) platform.Backend
		says []string
	}{
		{"openbsd, article", func(t *testing.T) platform.Backend {
			o := fake.NewOpenBSD(pfctl.Today)
			o.Files["/etc/pf.conf"] = "queue outq on em0 flows 1024 bandwidth 11M max 11M qlimit 1024 default\nqueue inq on em1 flows 1024 bandwidth 110M max 110M qlimit 1024 default\npass\n"
			run(t, o, "pfctl -n -f /etc/pf.conf\npfctl -f /etc/pf.conf\n")
			return &openbsd.Backend{Runner: o}
		}, []string{
			"what leaves em0 is held to 11.0 Mbit/s by queue outq, FQ-CoDel with 1024 flows (5 ms, 100 ms, no ECN) (not unbloat's); it takes what no rule assigns",
			"what leaves em1 is held to 110 Mbit/s by queue inq",
		}},
		{"openbsd, a hierarchy", func(t *testing.T) platform.Backend {
			o := fake.NewOpenBSD(pfctl.Today)
			o.Files["/etc/pf.conf"] = "queue up on em0 bandwidth 9M max 9M\nqueue std parent up bandwidth 8M max 9M flows 1024 qlimit 1024 default\nqueue pri parent up bandwidth 1M max 9M flows 1024\nmatch out on em0 proto tcp set queue (std, pri)\n"
			run(t, o, "pfctl -f /etc/pf.conf\n")
			return &openbsd.Backend{Runner: o}
		}, []string{
			"what leaves em0 is held to 9.00 Mbit/s by queue up and shared among std, pri",
			"queue pri on em0 is guaranteed 1.00 Mbit/s and held to 9.00 Mbit/s, by FQ-CoDel",
			"it takes `match out on em0 proto tcp all set (queue(std, pri))`; beware: without qlimit it holds 50 packets",
		}},
		{"openbsd-altq, article", func(t *testing.T) platform.Backend {
			o := fake.NewOpenBSD(pfctl.ALTQWithMatch)
			o.Files["/etc/pf.conf"] = "ext_if=\"em0\"\naltq on $ext_if bandwidth 1Mb hfsc queue { bb }\nqueue bb bandwidth 100% qlimit 9 hfsc ( default )\npass out on $ext_if keep state queue( bb )\n"
			run(t, o, "pfctl -f /etc/pf.conf\n")
			return &openbsd.Backend{Runner: o, Altq: true}
		}, []string{"what leaves em0 is held to 1.00 Mbit/s by queue bb, HFSC with a FIFO of 9 packets (not unbloat's), which is up to 109 ms; it takes what no rule assigns; it takes `pass out on em0 all flags S/SA keep state queue bb`"}},
		{"linux, article", func(t *testing.T) platform.Backend {
			l := fake.NewLinux()
			run(t, l, "tc qdisc add dev wan root handle 1: htb default 1\ntc class add dev wan parent 1: classid 1:1 htb rate 950kbit quantum 1514\ntc qdisc add dev wan parent 1:1 fq_codel target 15ms noecn\n"+
				"tc qdisc add dev lan root handle 1: htb default 1\ntc class add dev lan parent 1: classid 1:1 htb rate 13mbit quantum 1514\ntc qdisc add dev lan parent 1:1 fq_codel\n")
			return &linux.Backend{Runner: l}
		}, []string{"what leaves wan is held to 950 kbit/s by htb + fq_codel (not unbloat's)", "what leaves lan is held to 13.0 Mbit/s by htb + fq_codel (not unbloat's)"}},
		{"openwrt, a section of LuCI's", func(t *testing.T) platform.Backend {
			o := fake.NewOpenWrt()
			o.Files[openwrt.Config] = "config queue 'eth1'\n\toption enabled '1'\n\toption interface 'wan'\n\toption download '85000'\n\toption upload '9000'\n\toption qdisc 'cake'\n\toption script 'piece_of_cake.qos'\n" +
				"config queue 'other'\n\toption enabled '1'\n\toption interface 'eth7'\n\toption upload '500'\n"
			run(t, o, openwrt.Service+" restart\n")
			return &openwrt.Backend{Runner: o}
		}, []string{
			"what leaves wan is held to 9.00 Mbit/s by cake (sqm-scripts, section eth1, by hand or by LuCI)",
			"what leaves ifb4wan is held to 85.0 Mbit/s by cake (sqm-scripts, section eth1, by hand or by LuCI)",
			"section other of /etc/config/sqm should hold what leaves eth7 to 500 kbit/s, but the kernel does not",
		}},
		{"clearos, article", func(t *testing.T) platform.Backend {
			o := fake.NewClearOS()
			o.Files[mech.QoSConf] = "QOS_ENABLE=\"on\"\nQOS_UPSTREAM=\"wan:auto\"\nQOS_DOWNSTREAM=\"wan:auto\"\n"
			o.Files[mech.NetworkConf] = "WAN_MAX_UPSTREAM=1000\nWAN_MAX_DOWNSTREAM=25000\n"
			run(t, o, "service firewall restart\n")
			return &clearos.Backend{Runner: o}
		}, []string{"QoS is on, with ClearOS's own engine: seven classes of sfq, which has no AQM; wan: up 1.00 Mbit/s, down 25.0 Mbit/s"}},
		{"freebsd, by hand, with its trap", func(t *testing.T) platform.Backend {
			f := fake.NewFreeBSD()
			run(t, f, "dnctl pipe 1 config bw 9500Kbit/s\ndnctl sched 1 config pipe 1 type fq_codel target 15ms\ndnctl queue 1 config sched 1 weight 10\nipfw add 60001 queue 1 ip from any to any out xmit igb0\ndnctl pipe 2 config bw 9.5Mbit/s\n")
			return &freebsd.Backend{Runner: f}
		}, []string{
			"it holds to 9.50 Mbit/s, by fq_codel target 15ms interval 100ms quantum 1514 limit 10240 flows 1024 ecn (not unbloat's): ip from any to any out xmit igb0 (rule 60001)",
			"it holds to 9.00 bit/s, by a FIFO of 50 packets (not unbloat's): nothing, since no rule sends packets there; beware: dnctl(8) reads a fraction such as 9.5Mbit/s as 9 bit/s",
		}},
		{"opnsense, article", func(t *testing.T) platform.Backend {
			r := rest{opnsensefake.API{Router: opnsensefake.NewWithGuests()}}
			const at = "/api/trafficshaper/settings/"
			pipe := r.post(t, at+"addPipe", `{"pipe":{"enabled":"1","bandwidth":"4850","bandwidthMetric":"Kbit","scheduler":"fq_codel","codel_ecn_enable":"1","description":"upstream"}}`)
			queue := r.post(t, at+"addQueue", `{"queue":{"enabled":"1","pipe":"`+pipe+`","weight":"10","description":"high priority upstream"}}`)
			r.post(t, at+"addRule", `{"rule":{"enabled":"1","sequence":"2","interface":"wan","proto":"tcp_ack","source":"any","destination":"any","src_port":"any","dst_port":"any","direction":"out","target":"`+queue+`","description":"ACKs"}}`)
			r.post(t, "/api/trafficshaper/service/reconfigure", "{}")
			return &opnsense.Backend{Runner: r}
		}, []string{
			`"upstream" holds to 4.85 Mbit/s, by FQ-CoDel ECN (not unbloat's): "ACKs" (tcp_ack out of wan) by the queue "high priority upstream" of weight 10; it runs`,
			`"guests" holds to 3.00 Mbit/s, by weighted queues (WF2Q+), each a FIFO (not unbloat's): nothing, since no rule sends packets there; it runs`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			shapers, err := c.make(t).Shapers(t.Context(), "wan")
			if err != nil {
				t.Fatal(err)
			}
			var all strings.Builder
			for _, x := range shapers {
				all.WriteString(x.Device + ": " + x.Says + "\n")
				if x.Ours {
					t.Errorf("%s is not ours", x.Device)
				}
			}
			for _, want := range c.says {
				if !strings.Contains(all.String(), want) {
					t.Errorf("%q is not in:\n%s", want, all.String())
				}
			}
		})
	}
}
