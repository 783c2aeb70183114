package doctor

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"unbloat/internal/host/linux"
	"unbloat/internal/mechanism/clearos"
	"unbloat/internal/mechanism/sqm"
	"unbloat/internal/mechanism/tc"
	"unbloat/unit"
)

// modules tries which queues the kernel really has.
func (e *examination) modules() bool {
	kinds, err := linux.Probe(e.ctx, e.Runner, []string{"cake", "htb", "fq_codel", "ingress"}, true, true)
	if err != nil {
		return e.skip("kernel modules", "they can't be tried: "+err.Error())
	}
	e.kinds = kinds
	switch {
	case !kinds["cake"] && !(kinds["htb"] && kinds["fq_codel"]):
		return e.find(Finding{"no-aqm", true, "the kernel has neither CAKE nor HTB with fq_codel", "nothing here can hold a rate and keep the queue short", e.modulePackage("sch_cake sch_htb sch_fq_codel")})
	case !kinds["cake"]:
		e.find(Finding{"no-cake", false, "the kernel has no CAKE", "HTB with fq_codel is used instead: it isolates flows, but not machines of the home", e.modulePackage("sch_cake")})
	}
	if !kinds["ifb"] || !kinds["ingress"] || !kinds["mirred"] {
		e.find(Finding{"no-ifb", false, "the kernel lacks ifb, ingress or mirred", "a download can then be shaped only where it leaves towards the LAN (--lan)", e.modulePackage("ifb act_mirred sch_ingress cls_u32")})
	}
	return true
}

// modulePackage is the command that brings kernel modules, by distribution.
func (e *examination) modulePackage(modules string) string {
	load := "modprobe -a " + modules
	switch e.distro() {
	case "openwrt":
		return "opkg update && opkg install kmod-sched-cake kmod-sched-core kmod-ifb"
	case "ubuntu":
		return "apt-get install linux-modules-extra-$(uname -r) && " + load
	case "debian":
		return load + "; if that fails: apt-get install linux-image-$(dpkg --print-architecture), since cloud kernels have no shapers, and reboot"
	case "fedora", "rhel":
		return "dnf install kernel-modules-extra && " + load
	case "alpine":
		return "apk add linux-lts, since the virt kernel has no shapers, and reboot; then " + load
	}
	return load
}

var flowtable = regexp.MustCompile(`(?s)flowtable\s+(\S+)\s*\{(.*?)\}\s*\n\s*\}|flowtable\s+(\S+)\s*\{(.*?)\n\s*\}`)

// flowOffload looks for connections that go past the queues.
func (e *examination) flowOffload() bool {
	e.ruleset = e.read("nft", "list", "ruleset")
	used := strings.Contains(e.ruleset, "flow add @") || strings.Contains(e.ruleset, "flow offload @")
	hardware := false
	for _, m := range flowtable.FindAllString(e.ruleset, -1) {
		hardware = hardware || strings.Contains(m, "flags offload")
	}
	const why = "connections in the flow table go past the shaper's queues, so the rate is not held for them"
	if used {
		remedy := "remove the rules with `flow add` (nft -a list ruleset shows their handles)"
		if e.distro() == "openwrt" {
			remedy = "uci set firewall.@defaults[0].flow_offloading=0; uci set firewall.@defaults[0].flow_offloading_hw=0; uci commit firewall; /etc/init.d/firewall restart"
		}
		what := "nftables offloads flows"
		if hardware {
			what += ", and to hardware at that"
		}
		e.find(Finding{"flow-offload", true, what, why, remedy})
	}
	if strings.Contains(e.read("iptables-save"), "-j FLOWOFFLOAD") {
		e.find(Finding{"flow-offload", true, "iptables offloads flows (-j FLOWOFFLOAD)", why, "uci set firewall.@defaults[0].flow_offloading=0; uci commit firewall; /etc/init.d/firewall restart"})
	}
	return true
}

// otherShapers looks for shapers that are not ours, at work or about to be.
func (e *examination) otherShapers() bool {
	for _, s := range e.shapers {
		if (s.Device == e.WAN || s.Device == e.LAN) && !s.Ours && (s.Rate > 0 || len(s.IngressTo) > 0 && !s.OwnIngress) {
			e.find(Finding{"other-shaper", true, s.Says, "two shapers in a row hold to the slower, and the queue stands in the one that nobody tuned",
				"find what made it and stop it, or take over from it: unbloat apply --replace"})
		}
	}
	if sections, err := sqm.Parse(e.read("cat", "/etc/config/sqm")); err == nil && e.Platform != "openwrt" {
		for _, s := range sections {
			if s.Get("enabled") == "1" && s.Get("interface") == e.WAN {
				e.find(Finding{"sqm", true, "sqm-scripts shapes " + e.WAN + " at every start", "it takes away what unbloat sets", "uci set sqm." + s.Name + ".enabled=0; uci commit sqm; /etc/init.d/sqm restart; or shape with it: without --own-tc"})
			}
		}
	}
	if set, err := clearos.Parse(e.read("cat", clearos.BandwidthConf)); err == nil && slices.Contains([]string{"on", "yes", "1"}, clearos.Get(set, "BANDWIDTH_QOS")) {
		e.find(Finding{"clearos-bandwidth", true, "ClearOS's old bandwidth manager is on", "it sets its own queues at every start of the firewall", `set BANDWIDTH_QOS="off" in ` + clearos.BandwidthConf + "; service firewall restart"})
	}
	if strings.TrimSpace(e.read("systemctl", "is-enabled", "wondershaper.service")) == "enabled" {
		e.find(Finding{"wondershaper", true, "wondershaper starts at boot", "it sets its own queues", "systemctl disable --now wondershaper.service"})
	}
	if files := e.grep(`^\[tc\]|^tc\.`, "/etc/NetworkManager/system-connections"); files != "" {
		e.find(Finding{"networkmanager", true, "NetworkManager sets queues: " + files, "it sets them again whenever the connection comes up", "nmcli connection modify NAME tc.qdiscs '' tc.tfilters ''"})
	}
	if files := e.grep(`^\[(CAKE|HierarchyTokenBucket|HierarchyTokenBucketClass|FairQueueingControlledDelay|TokenBucketFilter|NetworkEmulator|PFIFO|BFIFO)\]`, "/etc/systemd/network"); files != "" {
		e.find(Finding{"networkd", true, "systemd-networkd sets queues: " + files, "it sets them again whenever the interface comes up", "remove these sections, then networkctl reload"})
	}
	return true
}

// grep returns the files below dir with a line that matches, on one line.
func (e *examination) grep(pattern, dir string) string {
	return strings.Join(strings.Fields(e.read("grep", "-rlsE", pattern, dir)), " ")
}

// splitBelow is where merged packets begin to hurt: plan makes the same cut.
const splitBelow = 100 * unit.MbitPerSecond

// offloads looks for merged packets behind a shaper that does not split them.
func (e *examination) offloads() bool {
	for _, s := range e.shapers {
		if s.Rate == 0 || s.Rate >= splitBelow || strings.HasPrefix(s.Queue, "cake") {
			continue
		}
		on := tc.SwitchableOffloads(tc.ParseFeatures([]byte(e.read("ethtool", "-k", s.Device))))
		on = slices.DeleteFunc(on, func(f string) bool { return f == "gro" })
		if len(on) > 0 {
			e.find(Finding{"offloads", true, fmt.Sprintf("%s merges packets (%s) behind %s, which does not split them", s.Device, strings.Join(on, ", "), s.Queue),
				fmt.Sprintf("one of 64 KB occupies %s for %s", s.Rate, s.Rate.Time(65536).Round(1e5)), "ethtool -K " + s.Device + " " + strings.Join(on, " off ") + " off"})
		}
	}
	return true
}

// isolation looks for queues in which control traffic waits behind a download:
// neighbour discovery and DHCPv6 time out, and IPv6 fails under load.
func (e *examination) isolation() bool {
	fair := []string{"cake", "fq_codel", "fq_pie", "sfq", "fq", "drr", "sfb"}
	for _, s := range e.shapers {
		words := strings.FieldsFunc(s.Queue, func(r rune) bool { return r == ' ' || r == '+' || r == ',' })
		if s.Rate == 0 || slices.ContainsFunc(words, func(w string) bool { return slices.Contains(fair, w) }) {
			continue
		}
		e.find(Finding{"no-isolation", false, fmt.Sprintf("%s is held to %s by %s, which does not tell flows apart", s.Device, s.Rate, s.Queue),
			"neighbour discovery and DHCPv6 wait behind a download like everything else: IPv6 may fail just when the line is full", "shape with --aqm cake or fq_codel"})
	}
	for _, dev := range []string{e.WAN} {
		if out := e.read("tc", "filter", "show", "dev", dev, "ingress"); strings.Contains(out, "police ") && !strings.Contains(out, "ipv6-icmp") {
			e.find(Finding{"police", true, "what arrives at " + dev + " is policed", "a policer drops without a queue, neighbour discovery too", "tc qdisc del dev " + dev + " ingress, then unbloat apply"})
		}
	}
	return true
}

// overhead compares what a shaper counts of a packet with what the line adds.
func (e *examination) overhead() bool {
	l, ok := e.link(e.WAN)
	if !ok {
		return false
	}
	pppoe := l.NoEthernet && (strings.HasPrefix(e.WAN, "ppp") || strings.HasPrefix(e.WAN, "pppoe"))
	least, why := 0, ""
	switch {
	case e.LinkLayer == "docsis":
		least, why = 18, "DOCSIS counts Ethernet frames with their check sequence"
	case e.LinkLayer == "atm":
		least, why = 8, "ATM carries packets in cells of 53 bytes, with 8 more at least"
	case e.LinkLayer == "ptm":
		least, why = 22, "VDSL2 frames packets (PTM)"
	case pppoe:
		least, why = 22, "PPPoE adds 8 bytes, and an Ethernet header of 14, which the kernel doesn't count on "+e.WAN
	}
	tree, err := linux.ReadTree(e.ctx, e.Runner, e.WAN)
	if err != nil || least == 0 {
		return err == nil
	}
	root, ok := tree.Root()
	if !ok || tree.Rate() == 0 {
		return true
	}
	counts := root.Stab["overhead"].Is
	if root.Kind == "cake" {
		counts = root.Options["overhead"].Is
	}
	n := 0
	fmt.Sscanf(counts, "%d", &n)
	if root.Kind != "cake" && !l.NoEthernet {
		n += 14 // which the kernel counts by itself
	}
	cells := e.LinkLayer != "atm" || strings.Contains(fmt.Sprint(root.Options, root.Stab), "atm") && !strings.Contains(fmt.Sprint(root.Options), "noatm")
	if n < least || !cells {
		return e.find(Finding{"overhead", true, fmt.Sprintf("the shaper on %s counts %d bytes of overhead, and the line adds %d or more", e.WAN, n, least),
			why + ": small packets are undercounted, so under many of them the queue is in the modem again", "unbloat plan --link-layer … and apply it; or tune with --link-layer"})
	}
	return true
}

// mtu looks at packet sizes on the way.
func (e *examination) mtu() bool {
	wan, ok := e.link(e.WAN)
	if !ok {
		return false
	}
	if wan.MTU < 1280 {
		e.find(Finding{"mtu", true, fmt.Sprintf("the MTU of %s is %d", e.WAN, wan.MTU), "IPv6 needs 1280 bytes (RFC 8200 §5)", "ip link set dev " + e.WAN + " mtu 1500, or what the provider says"})
	}
	lan, ok := e.link(e.LAN)
	if !ok || lan.MTU <= wan.MTU {
		return true
	}
	if !strings.Contains(e.ruleset, "maxseg size set") && !strings.Contains(e.read("iptables-save"), "TCPMSS") {
		e.find(Finding{"mss", false, fmt.Sprintf("%s has an MTU of %d, %s one of %d, and nothing clamps TCP's segments", e.LAN, lan.MTU, e.WAN, wan.MTU),
			"where messages of path MTU discovery are lost, connections hang", "nft add rule inet filter forward tcp flags syn tcp option maxseg size set rt mtu"})
	}
	return true
}
