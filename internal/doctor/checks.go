package doctor

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"unbloat/internal/host"
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
		return e.find(Finding{"no-aqm", true, "the kernel has neither CAKE nor HTB with fq_codel", "nothing here can hold a rate and keep the queue short", e.modulePackage("sch_cake", "sch_htb", "sch_fq_codel")})
	case !kinds["cake"]:
		e.find(Finding{"no-cake", false, "the kernel has no CAKE", "HTB with fq_codel is used instead: it isolates flows, but not machines of the home", e.modulePackage("sch_cake")})
	}
	if !kinds["ifb"] || !kinds["ingress"] || !kinds["mirred"] {
		e.find(Finding{"no-ifb", false, "the kernel lacks ifb, ingress or mirred", "a download can then be shaped only where it leaves towards the LAN (--lan)", e.modulePackage("ifb", "act_mirred", "sch_ingress", "cls_u32")})
	}
	return true
}

// modulePackage is the command that brings kernel modules, by distribution.
func (e *examination) modulePackage(modules ...string) string {
	return linux.ModuleCommand(e.ctx, e.Runner, modules...)
}

// engines are kernel modules that carry connections past the kernel's queues, in
// software or hardware, by their names in /proc/modules.
func engines() []string {
	return []string{"shortcut_fe", "fast_classifier", "ecm", "qca_nss_ecm", "mtkhnat", "mtk_hnat", "hw_nat", "ctf"}
}

// flowOffload looks for connections that go past the queues.
func (e *examination) flowOffload() bool {
	out, err := host.Output(e.ctx, e.Runner, "nft", "list", "ruleset")
	var missing *host.MissingToolError
	if err != nil && !errors.As(err, &missing) {
		e.skip("flow offload by nftables", err.Error())
	}
	e.ruleset = string(out)
	used := strings.Contains(e.ruleset, "flow add @") || strings.Contains(e.ruleset, "flow offload @")
	hardware := strings.Contains(e.ruleset, "flags offload")
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
	for line := range strings.Lines(e.read("cat", "/proc/modules")) {
		if name, _, _ := strings.Cut(line, " "); slices.Contains(engines(), name) {
			e.find(Finding{"offload-engine", true, "the module " + name + " carries connections past the kernel", why, "rmmod " + name + ", and keep it from being loaded at boot (on OpenWrt: opkg remove its package)"})
		}
	}
	if strings.Contains(e.read("iptables-save"), "-j FLOWOFFLOAD") {
		e.find(Finding{"flow-offload", true, "iptables offloads flows (-j FLOWOFFLOAD)", why, "uci set firewall.@defaults[0].flow_offloading=0; uci commit firewall; /etc/init.d/firewall restart"})
	}
	return true
}

// otherShapers looks for shapers that are not ours, at work or about to be.
func (e *examination) otherShapers() bool {
	e.foreignShapers()
	if sections, err := sqm.Parse(e.read("cat", "/etc/config/sqm")); err == nil && e.Platform != "openwrt" {
		for _, s := range sections {
			if s.Get("enabled") == "1" && s.Get("interface") == e.WAN {
				e.find(Finding{"sqm", true, "sqm-scripts shapes " + e.WAN + " at every start", "it takes away what unbloat sets", "uci set sqm." + s.Name + ".enabled=0; uci commit sqm; /etc/init.d/sqm restart; or shape with it: without --own-tc"})
			}
		}
	}
	if set, err := clearos.Parse(e.read("cat", clearos.BandwidthConf)); err == nil && slices.Contains([]string{"on", "yes", "1", "true"}, clearos.Get(set, "BANDWIDTH_QOS")) {
		e.find(Finding{"clearos-bandwidth", true, "ClearOS's old bandwidth manager is on", "it sets its own queues at every start of the firewall", `set BANDWIDTH_QOS="off" in ` + clearos.BandwidthConf + "; service firewall restart"})
	}
	if strings.TrimSpace(e.read("systemctl", "is-enabled", "wondershaper.service")) == "enabled" {
		e.find(Finding{"wondershaper", true, "wondershaper starts at boot", "it sets its own queues", "systemctl disable --now wondershaper.service"})
	}
	for _, place := range []string{"/etc/network/interfaces", "/etc/network/interfaces.d", "/etc/network/if-up.d", "/etc/rc.local"} {
		if files := e.grep(`^[^#]*wondershaper`, place); files != "" {
			e.find(Finding{"wondershaper", true, "wondershaper is started by " + files, "it sets its own queues whenever the interface comes up", "remove that line, then: wondershaper clear " + e.WAN})
		}
	}
	if files := e.grep(`^\[tc\]|^tc\.`, "/etc/NetworkManager/system-connections"); files != "" {
		e.find(Finding{"networkmanager", true, "NetworkManager sets queues: " + files, "it sets them again whenever the connection comes up", "nmcli connection modify NAME tc.qdiscs '' tc.tfilters ''"})
	}
	if files := e.grep(`^\[(CAKE|HierarchyTokenBucket|HierarchyTokenBucketClass|FairQueueingControlledDelay|TokenBucketFilter|NetworkEmulator|PFIFO|BFIFO)\]`, "/etc/systemd/network"); files != "" {
		e.find(Finding{"networkd", true, "systemd-networkd sets queues: " + files, "it sets them again whenever the interface comes up", "remove these sections, then networkctl reload"})
	}
	return true
}

// foreignShapers names what shapes the WAN or the LAN and is not ours.
func (e *examination) foreignShapers() {
	ours := func(dev string) bool {
		return slices.ContainsFunc(e.shapers, func(s host.Shaped) bool { return s.Device == dev && s.Ours })
	}
	for _, s := range e.shapers {
		in := len(s.IngressTo) > 0 && !s.OwnIngress && !slices.ContainsFunc(s.IngressTo, ours)
		if (s.Device == e.WAN || s.Device == e.LAN) && (!s.Ours && s.Rate > 0 || in) {
			remedy := "find what made it and stop it"
			if e.Platform == "linux" {
				remedy += ", or take over from it: unbloat apply --replace"
			}
			e.find(Finding{"other-shaper", true, s.Says, "two shapers in a row hold to the slower, and the queue stands in the one that nobody tuned", remedy})
		}
	}
}

// grep returns the files below dir with a line that matches, on one line.
func (e *examination) grep(pattern, dir string) string {
	return strings.Join(strings.Fields(e.read("grep", "-rlsE", pattern, dir)), " ")
}

// splitBelow is where merged packets begin to hurt: plan makes the same cut.
const splitBelow = 100 * unit.MbitPerSecond

// offloads looks for merged packets behind a shaper that does not split them: a
// packet is merged by the device that receives it (GRO) or by this machine's own
// TCP (TSO, GSO).
func (e *examination) offloads() bool {
	for _, s := range e.shapers {
		if s.Rate == 0 || s.Rate >= splitBelow || strings.HasPrefix(s.Queue, "cake") || strings.HasPrefix(s.Queue, "tbf") { // these split
			continue
		}
		for _, dev := range e.feeders(s.Device) {
			on := tc.SwitchableOffloads(tc.ParseFeatures([]byte(e.read("ethtool", "-k", dev))))
			on = slices.DeleteFunc(on, func(f string) bool { return (f == "gro") == (dev == s.Device) })
			if len(on) > 0 {
				e.find(Finding{"offloads", true, fmt.Sprintf("%s merges packets (%s), and %s on %s does not split them", dev, strings.Join(on, ", "), s.Queue, s.Device),
					fmt.Sprintf("one of 64 KB occupies %s for %s", s.Rate.Short(), s.Rate.Time(65536).Round(1e5)), "ethtool -K " + dev + " " + strings.Join(on, " off ") + " off"})
			}
		}
	}
	return true
}

// feeders are the devices whose offloads put merged packets before a shaper:
// itself, and those from which packets come to it.
func (e *examination) feeders(dev string) []string {
	out := []string{dev}
	for _, s := range e.shapers {
		if slices.Contains(s.IngressTo, dev) {
			out = append(out, s.Device)
		}
	}
	switch {
	case dev == e.WAN && e.LAN != "":
		out = append(out, e.LAN)
	case dev == e.LAN && e.WAN != "":
		out = append(out, e.WAN)
	}
	return out
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
	filters := e.read("tc", "filter", "show", "dev", e.WAN, "ingress")
	if strings.Contains(filters, "police ") {
		e.find(Finding{"police", true, "what arrives at " + e.WAN + " is policed", "a policer drops without a queue, neighbour discovery and DHCPv6 too", "tc qdisc del dev " + e.WAN + " ingress, then unbloat apply"})
	}
	redirects := func(protocol string) bool {
		on := false // a filter's first line has its protocol, a later one its action
		for line := range strings.Lines(filters) {
			if strings.HasPrefix(line, "filter ") {
				on = strings.Contains(line, " protocol "+protocol+" ")
			}
			if on && strings.Contains(line, "Redirect to") {
				return true
			}
		}
		return false
	}
	if redirects("ip") && !redirects("ipv6") && !redirects("all") {
		e.find(Finding{"ipv6-bypass", true, "what arrives at " + e.WAN + " over IPv6 is not shaped: the filter takes IPv4 alone", "an IPv6 download then fills the provider's queue, and everything waits there, neighbour discovery and DHCPv6 among it",
			"tc filter add dev " + e.WAN + " parent ffff: protocol ipv6 …, as for ip; or unbloat apply --replace"})
	}
	return true
}
