package platform_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"unbloat/internal/cure/apply"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/freebsd"
	"unbloat/internal/cure/platform/linux"
	"unbloat/internal/cure/platform/openbsd"
	"unbloat/internal/cure/platform/opnsense"
	"unbloat/testkit/fake"
	"unbloat/testkit/pfctl"
	"unbloat/unit"
)

// router returns a Linux router in memory with no problems.
func router() *fake.OpenWrt {
	o := fake.NewOpenWrt()
	o.Install("unshare")
	o.Files["/etc/os-release"] = "ID=debian\n"
	o.Files["/proc/self/status"] = "CapEff:\t000001ffffffffff\n"
	o.Files["/proc/cpuinfo"] = "processor\t: 0\ncpu MHz\t\t: 2400.000\n"
	say := func(text string) fake.Tool {
		return fake.Tool{Run: func([]string, []byte) (string, error) { return text, nil }}
	}
	o.Tools["date"], o.Tools["uname"] = say("1795000000\n"), say("x86_64\n")
	o.Tools["nft"] = say("")
	return o
}

func examine(t *testing.T, o *fake.OpenWrt, change func(c *platform.DoctorConfig)) *platform.DoctorReport {
	t.Helper()
	c := platform.DoctorConfig{Runner: o, Driver: linux.Driver(), WAN: "wan", LAN: "lan", Down: 100 * unit.MbitPerSecond, Up: 10 * unit.MbitPerSecond, Now: time.Unix(1795000010, 0)}
	if change != nil {
		change(&c)
	}
	r, err := platform.Examine(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestFindings: each problem is found by itself, with its remedy.
func TestFindings(t *testing.T) {
	if r := examine(t, router(), nil); !r.OK || len(r.Findings) > 0 {
		t.Errorf("in order: %+v", r.Findings)
	}
	for _, c := range []struct {
		id     string
		inWay  bool
		remedy string
		spoil  func(o *fake.OpenWrt, c *platform.DoctorConfig)
	}{
		{"no-aqm", true, "linux-image", func(o *fake.OpenWrt, _ *platform.DoctorConfig) { o.Kernel.Missing = []string{"cake", "fq_codel"} }},
		{"no-cake", false, "modprobe", func(o *fake.OpenWrt, _ *platform.DoctorConfig) { o.Kernel.Missing = []string{"cake"} }},
		{"no-cake", false, "linux-modules-extra", func(o *fake.OpenWrt, _ *platform.DoctorConfig) {
			o.Kernel.Missing = []string{"cake"}
			o.Files["/etc/os-release"] = "ID=ubuntu\nID_LIKE=debian\n"
		}},
		{"no-ifb", false, "ifb", func(o *fake.OpenWrt, _ *platform.DoctorConfig) { o.Kernel.Missing = []string{"ifb"} }},
		{"no-bpf", false, "modprobe -a cls_bpf", func(o *fake.OpenWrt, _ *platform.DoctorConfig) { o.Kernel.Missing = []string{"bpf"} }},
		{"no-bpf", false, "kmod-sched-bpf", func(o *fake.OpenWrt, _ *platform.DoctorConfig) {
			o.Kernel.Missing = []string{"bpf"}
			o.Files["/etc/os-release"] = "ID=\"openwrt\"\n"
		}},
		{"no-bpf", false, "Linux 5.10", func(o *fake.OpenWrt, _ *platform.DoctorConfig) {
			o.Kernel.Missing = []string{"bpf"}
			o.Tools["uname"] = fake.Tool{Run: func([]string, []byte) (string, error) { return "4.14.221 mips\n", nil }}
		}},
		{"no-bpf", false, "install unbloat", func(o *fake.OpenWrt, _ *platform.DoctorConfig) { delete(o.Tools, "unbloat") }},
		{"slow-bpf", false, "bpf_jit_enable=1", func(o *fake.OpenWrt, _ *platform.DoctorConfig) { o.Files["/proc/sys/net/core/bpf_jit_enable"] = "0\n" }},
		{"slow-bpf", false, "Linux 5.16", func(o *fake.OpenWrt, _ *platform.DoctorConfig) {
			o.Tools["uname"] = fake.Tool{Run: func([]string, []byte) (string, error) { return "5.15.167 mips\n", nil }}
		}},
		{"tool-ethtool", false, "apt-get install ethtool", func(o *fake.OpenWrt, _ *platform.DoctorConfig) { delete(o.Tools, "ethtool") }},
		{"privilege", true, "sudo", func(o *fake.OpenWrt, _ *platform.DoctorConfig) {
			o.Files["/proc/self/status"] = "CapEff:\t0000000000000000\n"
		}},
		{"flow-offload", true, "handles", func(o *fake.OpenWrt, _ *platform.DoctorConfig) {
			o.Tools["nft"] = fake.Tool{Run: func([]string, []byte) (string, error) {
				return "table inet fw {\n\tflowtable ft {\n\t\thook ingress priority filter\n\t\tdevices = { lan, wan }\n\t\tflags offload\n\t}\n\tchain forward {\n\t\tflow add @ft\n\t}\n}\n", nil
			}}
		}},
		{"clearos-bandwidth", true, "BANDWIDTH_QOS", func(o *fake.OpenWrt, _ *platform.DoctorConfig) {
			o.Files["/etc/clearos/bandwidth.conf"] = "BANDWIDTH_QOS=\"on\"\n"
		}},
		{"sqm", true, "enabled=0", func(o *fake.OpenWrt, _ *platform.DoctorConfig) {
			o.Files[fake.SQMConfig] = "config queue 'w'\n\toption enabled '1'\n\toption interface 'wan'\n"
		}},
		{"wondershaper", true, "disable", func(o *fake.OpenWrt, _ *platform.DoctorConfig) {
			o.Tools["systemctl"] = fake.Tool{Run: func([]string, []byte) (string, error) { return "enabled\n", nil }}
		}},
		{"cpu", false, "tune", func(o *fake.OpenWrt, c *platform.DoctorConfig) {
			c.Down = 900 * unit.MbitPerSecond
			o.Files["/proc/cpuinfo"] = "system type\t: Atheros AR9344\nBogoMIPS\t\t: 278.93\n"
		}},
		{"clock", true, "ntpd", func(o *fake.OpenWrt, _ *platform.DoctorConfig) {
			o.Tools["date"] = fake.Tool{Run: func([]string, []byte) (string, error) { return "86400\n", nil }}
		}},
		{"clock", true, "ntpd", func(_ *fake.OpenWrt, c *platform.DoctorConfig) { c.Far, c.Now = true, c.Now.Add(time.Hour) }},
		{"clocksource", false, "tsc", func(o *fake.OpenWrt, _ *platform.DoctorConfig) {
			o.Files["/sys/devices/system/clocksource/clocksource0/current_clocksource"] = "hpet\n"
		}},
		{"classes-lost", true, "apply the plan again", func(_ *fake.OpenWrt, c *platform.DoctorConfig) {
			c.LostClasses = func(context.Context) []string { return []string{"table inet unbloat is missing"} }
		}},
		{"rehearsal", true, "do this", func(_ *fake.OpenWrt, c *platform.DoctorConfig) {
			c.Rehearse = func(context.Context) error {
				return &platform.PreconditionError{Doing: "shape wan", What: "something", Remedy: "do this", Err: errors.New("x")}
			}
		}},
	} {
		o := router()
		r := examine(t, o, func(cfg *platform.DoctorConfig) { c.spoil(o, cfg) })
		if len(r.Findings) != 1 || r.Findings[0].ID != c.id || r.Findings[0].Blocking != c.inWay || r.OK == c.inWay || !strings.Contains(r.Findings[0].Remedy, c.remedy) {
			t.Errorf("%s: %+v", c.id, r.Findings)
		}
		if len(o.Ran) > 0 {
			t.Errorf("%s: it ran %q", c.id, o.Ran)
		}
	}
}

// tc runs a tc(8) command on the fake.
func tc(t *testing.T, o *fake.OpenWrt, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if _, errOut, err := o.Run(t.Context(), strings.Fields(line), nil); err != nil {
			t.Fatalf("%s: %s", line, errOut)
		}
	}
	o.Ran = nil
}

func says(text string) fake.Tool {
	return fake.Tool{Run: func([]string, []byte) (string, error) { return text, nil }}
}

// htb returns the commands for HTB with fq_codel on the WAN, as a person would
// run them.
func htb(stab string) []string {
	return []string{
		"tc qdisc add dev wan root handle 1: " + stab + "htb default 10",
		"tc class add dev wan parent 1: classid 1:10 htb rate 5000kbit ceil 5000kbit burst 1749 cburst 1749",
		"tc qdisc add dev wan parent 1:10 handle 110: fq_codel limit 1001",
	}
}

// grepping is grep(1) -rlsE on the files of the fake.
func grepping(o *fake.OpenWrt) fake.Tool {
	return fake.Tool{Run: func(args []string, _ []byte) (string, error) {
		re, out := regexp.MustCompile("(?m)"+args[len(args)-2]), ""
		for path, text := range o.Files {
			if strings.HasPrefix(path, args[len(args)-1]) && re.MatchString(text) {
				out += path + "\n"
			}
		}
		if out == "" {
			return "", errors.New("")
		}
		return out, nil
	}}
}

// ingress makes tc(8) show these filters on the WAN's ingress.
func ingress(o *fake.OpenWrt, text string) {
	real := o.Tools["tc"]
	o.Tools["tc"] = fake.Tool{Changes: real.Changes, Run: func(args []string, in []byte) (string, error) {
		if strings.Join(args, " ") == "filter show dev wan ingress" {
			return text, nil
		}
		return real.Run(args, in)
	}}
}

const redirect = "filter protocol %[1]s pref 10 u32 chain 0 \nfilter protocol %[1]s pref 10 u32 chain 0 fh 800::800 order 2048 key ht 800 bkt 0 *flowid 1:1 not_in_hw \n  match 00000000/00000000 at 0\n\taction order 1: mirred (Egress Redirect to device ifb0) stolen\n"

// found returns the ids of all findings, blocking or not.
func found(r *platform.DoctorReport) string {
	var ids []string
	for _, f := range r.Findings {
		ids = append(ids, f.ID)
		if f.Why == "" || f.Remedy == "" {
			ids = append(ids, "(which says too little)")
		}
	}
	return strings.Join(ids, " ")
}

// TestTwins: for each problem there is a similar but harmless case, which must
// not be a finding.
func TestTwins(t *testing.T) {
	type spoil = func(o *fake.OpenWrt, c *platform.DoctorConfig)
	files := func(pairs ...string) spoil {
		return func(o *fake.OpenWrt, _ *platform.DoctorConfig) {
			o.Tools["grep"] = grepping(o)
			for i := 0; i < len(pairs); i += 2 {
				o.Files[pairs[i]] = pairs[i+1]
			}
		}
	}
	tool := func(name, text string) spoil {
		return func(o *fake.OpenWrt, _ *platform.DoctorConfig) { o.Tools[name] = says(text) }
	}
	mtus := func(wan, lan int, more ...spoil) spoil {
		return func(o *fake.OpenWrt, c *platform.DoctorConfig) {
			for _, d := range o.Kernel.Devices {
				d.MTU = map[string]int{"wan": wan, "lan": lan}[d.Name]
			}
			for _, m := range more {
				m(o, c)
			}
		}
	}
	shaped := func(layer plan.LinkLayer, lines ...string) spoil {
		return func(o *fake.OpenWrt, c *platform.DoctorConfig) { c.LinkLayer = layer; tc(t, o, lines...) }
	}
	arrives := func(text string) spoil {
		return func(o *fake.OpenWrt, _ *platform.DoctorConfig) { ingress(o, text) }
	}
	const nothing = ""
	ownCake := func(options string) string {
		return "tc qdisc add dev wan root handle b10a: cake bandwidth 5000kbit " + options
	}
	unable := func(name, text string) spoil { // and the kernel has no BPF filters
		return func(o *fake.OpenWrt, c *platform.DoctorConfig) {
			tool(name, text)(o, c)
			o.Kernel.Missing = []string{"bpf"}
		}
	}
	for _, c := range []struct {
		name, found, remedy string
		spoil               spoil
	}{
		{"flow offload", "flow-offload", "flow add", tool("nft", "table inet fw {\n chain forward {\n  ip protocol tcp flow add @ft\n }\n}\n")},
		{"a flow table that no rule uses", nothing, "", tool("nft", "table inet fw {\n flowtable ft {\n  hook ingress priority 0\n  devices = { lan, wan }\n }\n}\n")},
		{"flow offload of OpenWrt", "flow-offload", "flow_offloading=0", func(o *fake.OpenWrt, _ *platform.DoctorConfig) {
			o.Files["/etc/os-release"] = "ID=\"openwrt\"\n"
			o.Tools["nft"] = says("flow add @ft")
		}},
		{"a flow table in software", "flow-offload", "--classes off", tool("nft", "table inet fw {\n flowtable ft {\n  devices = { lan, wan }\n }\n chain forward {\n  flow add @ft\n }\n}\n")},
		{"flow offload by iptables", "flow-offload", "flow_offloading=0", tool("iptables-save", "-A FORWARD -j FLOWOFFLOAD\n")},
		{"other rules of iptables", nothing, "", tool("iptables-save", "-A FORWARD -j ACCEPT\n")},
		{"marks of connections as wg-quick uses them, beside the BPF program", nothing, "", tool("nft", "table ip wg-quick-wg0 {\n chain premangle {\n  meta l4proto udp meta mark set ct mark\n }\n}\n")},
		{"marks of connections as wg-quick uses them", "no-bpf whole-marks", "mask", unable("nft", "table ip wg-quick-wg0 {\n chain premangle {\n  meta l4proto udp meta mark set ct mark\n }\n chain postmangle {\n  meta l4proto udp meta mark 0x0000ca6c ct mark set meta mark\n }\n}\n")},
		{"a connection's whole mark set", "no-bpf whole-marks", "mask", unable("nft", "table inet fw4 {\n chain mangle {\n  ct mark set 0x00000001\n }\n}\n")},
		{"marks with a mask, as pbr has them", "no-bpf", "cls_bpf", unable("nft", "table inet fw4 {\n chain pbr {\n  meta mark set meta mark & 0xff01ffff | 0x00010000\n  ct mark set ct mark & 0xffffff00 | 0x00000001\n }\n}\n")},
		{"our own marks", "no-bpf", "cls_bpf", unable("nft", "table inet unbloat {\n chain down_full {\n  ct mark set 0x05000000\n }\n}\n")},
		{"iptables saves whole marks", "no-bpf whole-marks", "CONNMARK", unable("iptables-save", "-A POSTROUTING -m mark --mark 0xca6c -j CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff\n")},
		{"iptables saves mwan3's marks", "no-bpf", "cls_bpf", unable("iptables-save", "-A mwan3_hook -j CONNMARK --restore-mark --nfmask 0x3f00 --ctmask 0x3f00\n-A mwan3_hook -j CONNMARK --save-mark --nfmask 0x3f00 --ctmask 0x3f00\n")},
		{"an engine in the kernel", "offload-engine", "rmmod", files("/proc/modules", "nf_nat 1 2 - Live 0x0\nqca_nss_ecm 1 2 - Live 0x0\n")},
		{"other modules", nothing, "", files("/proc/modules", "nf_nat 1 2 - Live 0x0\n")},
		{"sqm", "sqm", "enabled=0", files(fake.SQMConfig, "config queue 'w'\n\toption enabled '1'\n\toption interface 'wan'\n")},
		{"sqm elsewhere", nothing, "", files(fake.SQMConfig, "config queue 'w'\n\toption enabled '1'\n\toption interface 'eth7'\n")},
		{"the bandwidth manager", "clearos-bandwidth", "off", files("/etc/clearos/bandwidth.conf", "BANDWIDTH_QOS=\"on\"\n")},
		{"the bandwidth manager, off", nothing, "", files("/etc/clearos/bandwidth.conf", "BANDWIDTH_QOS=\"off\"\n")},
		{"wondershaper's service", "wondershaper", "disable", tool("systemctl", "enabled\n")},
		{"wondershaper's service, off", nothing, "", tool("systemctl", "disabled\n")},
		{"wondershaper of an interface", "wondershaper", "wondershaper clear", files("/etc/network/interfaces", "iface wan inet dhcp\n\tup /sbin/wondershaper wan 1000 100\n")},
		{"wondershaper in a comment", nothing, "", files("/etc/network/interfaces", "iface wan inet dhcp\n\t# up /sbin/wondershaper wan 1000 100\n")},
		{"NetworkManager", "networkmanager", "nmcli", files("/etc/NetworkManager/system-connections/w.nmconnection", "[connection]\nid=w\n[tc]\nqdisc.root=tbf rate 1mbit\n")},
		{"NetworkManager without queues", nothing, "", files("/etc/NetworkManager/system-connections/w.nmconnection", "[connection]\nid=w\n")},
		{"networkd", "networkd", "networkctl", files("/etc/systemd/network/w.network", "[CAKE]\nBandwidth=5M\n")},
		{"a qdisc that networkd is told of in general", "networkd", "networkctl", files("/etc/systemd/network/w.network.d/q.conf", "[QDisc]\nParent=clsact\n")},
		{"networkd, by what netplan wrote", "networkd", "netplan", files("/run/systemd/network/10-netplan-wan.network.d/cake.conf", "[CAKE]\nBandwidth=5M\n")},
		{"netplan for networkd without queues", nothing, "", files("/run/systemd/network/10-netplan-wan.network", "[Match]\nName=wan\n[Network]\nDHCP=yes\n")},
		{"NetworkManager, by what netplan wrote", "networkmanager", "passthrough", files("/run/NetworkManager/system-connections/netplan-wan.nmconnection", "[connection]\nid=netplan-wan\n[tc]\nqdisc.root=tbf rate 1mbit\n")},
		{"networkd without queues", nothing, "", files("/etc/systemd/network/w.network", "[Network]\nDHCP=yes\n")},
		{"unsynchronized", "ntp", "set-ntp", tool("timedatectl", "no\n")},
		{"synchronized", nothing, "", tool("timedatectl", "yes\n")},
		{"a small MTU", "mtu", "mtu 1500", mtus(1200, 1200)},
		{"IPv6's least MTU", nothing, "", mtus(1280, 1280)},
		{"segments too large", "mss", "maxseg", mtus(1492, 1500)},
		{"segments clamped", nothing, "", mtus(1492, 1500, tool("nft", "tcp option maxseg size set rt mtu"))},
		{"segments clamped by iptables", nothing, "", mtus(1492, 1500, tool("iptables-save", "-A FORWARD -j TCPMSS --clamp-mss-to-pmtu"))},
		{"DOCSIS not counted", "overhead", "link-layer", shaped(plan.DOCSIS, ownCake("overhead 14"))},
		{"DOCSIS counted", nothing, "", shaped(plan.DOCSIS, ownCake("overhead 18 noatm"))},
		{"ATM's cells not counted", "overhead", "link-layer atm", shaped(plan.ATM, ownCake("overhead 32 noatm"))},
		{"ATM counted", nothing, "", shaped(plan.ATM, ownCake("overhead 32 atm"))},
		{"VDSL2 not counted", "overhead", "link-layer", shaped(plan.PTM, ownCake("overhead 18"))},
		{"VDSL2 counted", nothing, "", shaped(plan.PTM, ownCake("overhead 30 ptm"))},
		{"a FIFO", "other-shaper no-isolation", "", shaped("", "tc qdisc add dev wan root handle 1: tbf rate 5mbit burst 5000 limit 30000")},
		{"one queue a flow", nothing, "", shaped("", ownCake(""))},
		{"a policer", "police", "unbloat apply", arrives("filter protocol all pref 50 u32 chain 0 \n police 0x1 rate 5Mbit burst 10Kb mtu 2Kb action drop overhead 0b\n")},
		{"IPv4 redirected alone", "ipv6-bypass", "protocol ipv6", arrives(fmt.Sprintf(redirect, "ip"))},
		{"both redirected", nothing, "", arrives(fmt.Sprintf(redirect, "ip") + fmt.Sprintf(redirect, "ipv6"))},
		{"all redirected", nothing, "", arrives(fmt.Sprintf(redirect, "all"))},
		{"CPU enough", nothing, "", func(_ *fake.OpenWrt, c *platform.DoctorConfig) { c.Down = 900 * unit.MbitPerSecond }},
		{"a clock that is a minute off", nothing, "", func(_ *fake.OpenWrt, c *platform.DoctorConfig) { c.Far, c.Now = true, c.Now.Add(time.Minute) }},
		{"our own clock that is off", nothing, "", func(_ *fake.OpenWrt, c *platform.DoctorConfig) { c.Now = c.Now.Add(time.Hour) }},
		{"a good clock source", nothing, "", files("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n")},
	} {
		o := router()
		r := examine(t, o, func(cfg *platform.DoctorConfig) { c.spoil(o, cfg) })
		if got := found(r); got != c.found {
			t.Errorf("%s: found %q, want %q: %+v", c.name, got, c.found, r.Findings)
		}
		if !slices.ContainsFunc(r.Findings, func(f platform.Finding) bool { return strings.Contains(f.Remedy, c.remedy) }) && c.remedy != "" {
			t.Errorf("%s: no remedy has %q: %+v", c.name, c.remedy, r.Findings)
		}
	}
}

// TestFlowTables: a hardware flow table prevents all shaping; a software one
// only prevents classes, if there are any.
func TestFlowTables(t *testing.T) {
	const (
		software = "table inet fw {\n flowtable ft {\n  devices = { lan, wan }\n }\n chain forward {\n  flow add @ft\n }\n}\n"
		hardware = "table inet fw {\n flowtable ft {\n  devices = { lan, wan }\n  flags offload\n }\n chain forward {\n  flow add @ft\n }\n}\n"
		classes  = "table inet unbloat {\n chain forwarded {\n }\n}\n"
	)
	for _, c := range []struct {
		name, ruleset, saved string
		inWay                bool
		says                 string
	}{
		{"software", software, "", false, "rates still apply"},
		{"software, and classes", software + classes, "", true, "rates still apply"},
		{"hardware", hardware, "", true, "no queue here limits"},
		{"hardware, and classes", hardware + classes, "", true, "no queue here limits"},
		{"iptables", "", "-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j FLOWOFFLOAD\n", false, "rates still apply"},
		{"iptables, and classes", classes, "-A FORWARD -j FLOWOFFLOAD\n", true, "rates still apply"},
		{"iptables, hardware", "", "-A FORWARD -j FLOWOFFLOAD --hw\n", true, "no queue here limits"},
	} {
		o := router()
		o.Tools["nft"], o.Tools["iptables-save"] = says(c.ruleset), says(c.saved)
		r := examine(t, o, nil)
		if found(r) != "flow-offload" || r.Findings[0].Blocking != c.inWay || !strings.Contains(r.Findings[0].Why, c.says) || r.OK == c.inWay {
			t.Errorf("%s: %+v", c.name, r.Findings)
		}
	}
}

// TestOwnDownload: unbloat's own setup for the download is not a finding: its
// ifb has TSO and GSO, but receives nothing that they could merge.
func TestOwnDownload(t *testing.T) {
	o := router()
	e := &apply.Engine{Backend: &linux.Backend{Runner: o}, Runner: o, Dir: t.TempDir(), Watchdog: noOne{}}
	facts, err := linux.Detect(t.Context(), o, "wan", "lan")
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Make(plan.Line{}, facts, plan.Preferences{AQM: plan.FQCoDel, Down: plan.RatePreference{Rate: 20 * unit.MbitPerSecond}, Up: plan.RatePreference{Rate: 4 * unit.MbitPerSecond}})
	if err != nil {
		t.Fatal(err)
	}
	tr, err := e.Begin(t.Context(), p, apply.Options{Confirm: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if err := tr.Commit(); err != nil {
		t.Fatal(err)
	}
	o.Kernel.Devices[len(o.Kernel.Devices)-1].Features = map[string]bool{"tx-tcp-segmentation": true, "generic-segmentation-offload": true}
	if d := o.Kernel.Devices[len(o.Kernel.Devices)-1]; d.Kind != "ifb" {
		t.Fatalf("the last device is %+v", d)
	}
	o.Ran = nil
	drifts := func(c *platform.DoctorConfig) {
		c.Drifts = func(ctx context.Context) ([]platform.Drift, error) {
			diffs, err := e.Drift(ctx, "wan")
			if len(diffs) == 0 {
				return nil, err
			}
			return []platform.Drift{{WAN: "wan", Differences: diffs, Mend: "apply it again"}}, err
		}
	}
	if r := examine(t, o, drifts); found(r) != "" {
		t.Errorf("found %+v", r.Findings)
	}
	o.Kernel.Devices[1].Features["generic-receive-offload"] = true // the WAN's: packets arrive merged at the ifb now
	if r := examine(t, o, drifts); found(r) != "drift offloads" || !strings.Contains(r.Findings[1].What, "wan merges packets (gro)") {
		t.Errorf("with GRO on the WAN: %+v", r.Findings)
	}
	o.Kernel.Devices[1].Features["generic-receive-offload"] = false
	tc(t, o, "tc qdisc del dev wan root")
	if r := examine(t, o, drifts); found(r) != "drift" || r.OK || !strings.Contains(r.Findings[0].What, "wan: qdisc htb b10a: is missing") || r.Findings[0].Remedy != "apply it again" {
		t.Errorf("without the upload's shaper: %+v", r.Findings)
	}
}

// nobody is a watchdog that never acts.
type noOne struct{}

func (noOne) Arm(context.Context, *apply.Journal) error   { return nil }
func (noOne) Renew(context.Context, *apply.Journal) error { return nil }
func (noOne) Alive(context.Context, *apply.Journal) bool  { return true }
func (noOne) Close(context.Context, *apply.Journal) error { return nil }

// off switches off the features of a device with these prefixes.
func off(o *fake.OpenWrt, dev string, names ...string) {
	for _, d := range o.Kernel.Devices {
		for feature := range d.Features {
			if d.Name == dev && slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(feature, n) }) {
				d.Features[feature] = false
			}
		}
	}
}

// TestHalfShaped: merged packets behind HTB, in both directions, and a shaper
// without the cable modem's overhead. After the remedy each finding is gone.
func TestHalfShaped(t *testing.T) {
	o := router()
	tc(t, o, htb("")...)
	docsis := func(c *platform.DoctorConfig) { c.LinkLayer = plan.DOCSIS }
	if got := found(examine(t, o, docsis)); got != "other-shaper offloads offloads overhead" {
		t.Errorf("found %s", got)
	}
	off(o, "wan", "tx-tcp", "generic-segmentation")
	if got := found(examine(t, o, docsis)); got != "other-shaper offloads overhead" {
		t.Errorf("with TSO and GSO off, found %s", got)
	}
	off(o, "lan", "generic-receive")
	if got := found(examine(t, o, docsis)); got != "other-shaper overhead" {
		t.Errorf("with GRO off, found %s", got)
	}
	o = router()
	off(o, "wan", "tx-tcp", "generic-segmentation")
	off(o, "lan", "generic-receive")
	tc(t, o, htb("stab overhead 4 linklayer ethernet ")...)
	if got := found(examine(t, o, docsis)); got != "other-shaper" {
		t.Errorf("with 4 bytes more, found %s", got)
	}
}

// TestBSD: the problems on FreeBSD and OpenBSD, and on routers with an API.
func TestBSD(t *testing.T) {
	type free = *fake.FreeBSD
	ifconfig := func(options string, mtu int) fake.Tool {
		return fake.Tool{Run: func(args []string, _ []byte) (string, error) {
			n := mtu
			if args[0] == "igb1" {
				n, options = 1500, ""
			}
			return fmt.Sprintf("%s: flags=1008843<UP,BROADCAST,RUNNING> metric 0 mtu %d\n\toptions=48505bb<RXCSUM%s>\n\tether 02:00:00:00:00:01\n", args[0], n, options), nil
		}}
	}
	for _, c := range []struct {
		name, found string
		spoil       func(f free, c *platform.DoctorConfig)
	}{
		{"in order", "", func(free, *platform.DoctorConfig) {}},
		{"no dummynet", "no-aqm", func(f free, _ *platform.DoctorConfig) { f.Modules = []string{"ipfw"} }},
		{"no ipfw", "no-aqm", func(f free, _ *platform.DoctorConfig) { f.Modules = []string{"dummynet"} }},
		{"LRO", "offloads", func(f free, _ *platform.DoctorConfig) { f.Tools["ifconfig"] = ifconfig(",TSO4,LRO", 1500) }},
		{"a small MTU", "mtu mss", func(f free, _ *platform.DoctorConfig) { f.Tools["ifconfig"] = ifconfig("", 1200) }},
		{"PPPoE's MTU", "mss", func(f free, _ *platform.DoctorConfig) { f.Tools["ifconfig"] = ifconfig("", 1492) }},
		{"PPPoE's MTU, clamped", "", func(f free, _ *platform.DoctorConfig) {
			f.Tools["ifconfig"], f.Tools["pfctl"] = ifconfig("", 1492), says("match on igb0 scrub (max-mss 1452)\n")
		}},
		{"VDSL2", "overhead", func(_ free, c *platform.DoctorConfig) { c.LinkLayer = plan.PTM }},
		{"Ethernet", "", func(_ free, c *platform.DoctorConfig) { c.LinkLayer = plan.Ethernet }},
		{"a slow core", "cpu", func(f free, c *platform.DoctorConfig) {
			f.Tools["sysctl"], c.Down = says("800\n"), 10*unit.GbitPerSecond
		}},
		{"a clock that is off", "clock", func(_ free, c *platform.DoctorConfig) { c.Now = c.Now.Add(time.Hour) }},
		{"somebody's pipe", "other-shaper", func(_ free, c *platform.DoctorConfig) {
			c.Shapers = func(context.Context) ([]platform.Shaped, error) {
				return []platform.Shaped{{Device: "igb0", Rate: unit.MbitPerSecond, Queue: "FQ-CoDel", Says: "igb0 is held"}}, nil
			}
		}},
		{"our FIFO", "no-isolation", func(_ free, c *platform.DoctorConfig) {
			c.Shapers = func(context.Context) ([]platform.Shaped, error) {
				return []platform.Shaped{{Device: "igb0", Ours: true, Rate: unit.MbitPerSecond, Queue: "a FIFO of 50 packets"}}, nil
			}
		}},
	} {
		f := fake.NewFreeBSD()
		f.Tools["date"], f.Tools["uname"], f.Tools["sysctl"], f.Tools["ifconfig"], f.Tools["pfctl"] = says("1795000000\n"), says("amd64\n"), says("2400\n"), ifconfig("", 1500), says("")
		cfg := platform.DoctorConfig{Runner: f, Driver: freebsd.Driver(), WAN: "igb0", LAN: "igb1", Down: 100 * unit.MbitPerSecond, Now: time.Unix(1795000010, 0), Far: true,
			Shapers: func(context.Context) ([]platform.Shaped, error) { return nil, nil }}
		c.spoil(f, &cfg)
		r, err := platform.Examine(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got := found(r); got != c.found {
			t.Errorf("%s: found %q, want %q: %+v", c.name, got, c.found, r.Findings)
		}
	}
	o := fake.NewOpenBSD(pfctl.Today)
	o.Pfctl.Disabled = true
	r, err := platform.Examine(t.Context(), platform.DoctorConfig{Runner: o, Driver: openbsd.Driver(), WAN: "em0", Shapers: func(context.Context) ([]platform.Shaped, error) { return nil, nil }})
	if err != nil || found(r) != "pf-off" || r.OK {
		t.Errorf("pf is off: %v, %+v", err, r)
	}
	fifo := []platform.Shaped{{Device: "em0", Rate: unit.MbitPerSecond, Queue: "HFSC with a FIFO of 9 packets"}}
	for name, want := range map[string]string{"openbsd": "shape with --aqm fq_codel", "openbsd-altq": "a shorter queue (--latency)"} {
		r, err = platform.Examine(t.Context(), platform.DoctorConfig{Runner: fake.NewOpenBSD(map[string]pfctl.Grammar{"openbsd": pfctl.Today, "openbsd-altq": pfctl.ALTQWithMatch}[name]), Driver: map[string]*platform.Driver{"openbsd": openbsd.Driver(), "openbsd-altq": openbsd.DriverAltq()}[name], WAN: "em0", LinkLayer: plan.ATM,
			Shapers: func(context.Context) ([]platform.Shaped, error) { return fifo, nil }})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.Findings {
			if f.ID == "no-isolation" && !strings.HasPrefix(f.Remedy, want) || f.ID == "overhead" && !strings.HasPrefix(f.What, "pf counts Ethernet frames") {
				t.Errorf("%s: %+v", name, f)
			}
		}
		if got := found(r); !strings.Contains(got, "no-isolation") || !strings.Contains(got, "overhead") {
			t.Errorf("%s: found %q", name, got)
		}
	}
	r, err = platform.Examine(t.Context(), platform.DoctorConfig{Driver: opnsense.Driver(), WAN: "wan", Far: true, Shapers: func(context.Context) ([]platform.Shaped, error) { return nil, nil }})
	if err != nil || found(r) != "" || !r.OK || len(r.Skipped) == 0 {
		t.Errorf("an API that doesn't tell: %v, %+v", err, r)
	}
}
