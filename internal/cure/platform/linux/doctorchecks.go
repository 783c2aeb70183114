package linux

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"unbloat/internal/cure/lang/clearos"
	"unbloat/internal/cure/lang/nft"
	"unbloat/internal/cure/lang/sqm"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/platform"
	"unbloat/unit"
)

// modules tests which qdiscs the kernel really has.
func (e *examination) modules() {
	kinds, err := Probe(e.Ctx, e.Runner, []string{"cake", "htb", "fq_codel", "ingress", "mirred"}, true)
	if err != nil {
		e.Skip("kernel modules", "they can't be tried: "+err.Error())
		return
	}
	e.kinds = kinds
	switch {
	case !kinds["cake"] && !(kinds["htb"] && kinds["fq_codel"]):
		e.Find(platform.Finding{ID: "no-aqm", Blocking: true, What: "the kernel has neither CAKE nor HTB with fq_codel", Why: "nothing here can hold a rate and keep the queue short", Remedy: e.modulePackage("sch_cake", "sch_htb", "sch_fq_codel")})
		return
	case !kinds["cake"]:
		e.Find(platform.Finding{ID: "no-cake", What: "the kernel has no CAKE", Why: "HTB with fq_codel is used instead: it isolates flows, but not machines of the home", Remedy: e.modulePackage("sch_cake")})
	}
	if !kinds["ifb"] || !kinds["ingress"] || !kinds["mirred"] {
		e.Find(platform.Finding{ID: "no-ifb", What: "the kernel lacks ifb, ingress or mirred", Why: "a download can then be shaped only where it leaves towards the LAN (--lan)", Remedy: e.modulePackage("ifb", "act_mirred", "sch_ingress", "cls_u32")})
	}
}

// modulePackage returns the distribution's command that installs kernel
// modules.
func (e *examination) modulePackage(modules ...string) string {
	return ModuleCommand(e.Ctx, e.Runner, modules...)
}

// engines returns the names in /proc/modules of modules that forward
// connections past the kernel's queues, in software or hardware.
func engines() []string {
	return []string{"shortcut_fe", "fast_classifier", "ecm", "qca_nss_ecm", "mtkhnat", "mtk_hnat", "hw_nat", "ctf"}
}

// flowOffload checks for offloaded connections, which bypass the queues.
func (e *examination) flowOffload() {
	out, err := platform.Output(e.Ctx, e.Runner, "nft", "list", "ruleset")
	var missing *platform.MissingToolError
	if err != nil && !errors.As(err, &missing) {
		e.Skip("flow offload by nftables", err.Error())
	}
	e.ruleset = withoutShortWay(string(out))
	remedy := "remove the rules with `flow add` (nft -a list ruleset shows their handles)"
	if Distro(e.Ctx, e.Runner) == openWrt {
		remedy = "uci set firewall.@defaults[0].flow_offloading=0; uci set firewall.@defaults[0].flow_offloading_hw=0; uci commit firewall; /etc/init.d/firewall restart"
	}
	if strings.Contains(e.ruleset, "flow add @") || strings.Contains(e.ruleset, "flow offload @") {
		e.shortCut("nftables", strings.Contains(e.ruleset, "flags offload"), remedy)
	}
	const why = "connections that it has taken over go past the shaper's queues, so no rate applies to them"
	for line := range strings.Lines(e.Read("cat", "/proc/modules")) {
		if name, _, _ := strings.Cut(line, " "); slices.Contains(engines(), name) {
			e.Find(platform.Finding{ID: "offload-engine", Blocking: true, What: "the module " + name + " carries connections past the kernel", Why: why, Remedy: "rmmod " + name + ", and keep it from being loaded at boot (on OpenWrt: opkg remove its package)"})
		}
	}
	for line := range strings.Lines(e.Read("iptables-save")) {
		if strings.Contains(line, "-j FLOWOFFLOAD") {
			e.shortCut("iptables", strings.Contains(line, "--hw"), "uci set firewall.@defaults[0].flow_offloading=0; uci commit firewall; /etc/init.d/firewall restart")
			break
		}
	}
}

// ownTables matches our tables among nftables' rules.
var ownTables = regexp.MustCompile(`(?ms)^table ` + nft.Family + " " + nft.Earlier + `(_\w+)? \{$.*?^\}\n`)

// withoutShortWay returns nftables' rules without our own tables that are a plan's flow
// table: such a plan has no classes.
func withoutShortWay(rules string) string {
	return ownTables.ReplaceAllStringFunc(rules, func(table string) string {
		if (nft.Table{Text: table}).IsShortWay() {
			return ""
		}
		return table
	})
}

// classed reports whether a table of our classes is there.
func (e *examination) classed() bool { return ownTables.MatchString(e.ruleset) }

// shortCut reports a flow table. One in software bypasses nftables' later
// rules, but not tc: the redirect to an ifb comes before it, and its packets
// pass the egress device's qdisc. So rates hold, but classes, which rules set,
// are lost.
func (e *examination) shortCut(whose string, hardware bool, remedy string) {
	f := platform.Finding{ID: "flow-offload", Remedy: remedy}
	switch {
	case hardware:
		f.Blocking = true
		f.What = whose + " offloads flows to hardware"
		f.Why = "the hardware carries their packets past the kernel, so no queue here limits, divides or counts them"
	case e.classed():
		f.Blocking = true
		f.What = whose + " carries flows past its own forward and postrouting rules (a flow table in software)"
		f.Why = "rates still apply, since tc's queues see every packet; but those rules give a packet its class, so these flows have classes only where they arrive through an ifb"
		f.Remedy += "; or shape without classes: --classes off"
	default:
		f.What = whose + " carries flows past its own forward and postrouting rules (a flow table in software)"
		f.Why = "rates still apply: tc's queues see every packet, and what is redirected to an ifb does not take the short cut; but classes would not see these flows leave"
		f.Remedy = "shape without classes (--classes off), and leave it; for classes: " + remedy
	}
	e.Find(f)
}

// otherShapers checks for shapers that are not ours, active or configured.
func (e *examination) otherShapers() {
	e.foreignShapers()
	if !e.own.SQM {
		sections, err := sqm.Parse(e.Read("cat", "/etc/config/sqm"))
		if err != nil {
			e.Skip("sqm-scripts' settings", err.Error())
		}
		for _, s := range sections {
			if s.Shapes(e.WAN) {
				e.Find(platform.Finding{ID: "sqm", Blocking: true, What: "sqm-scripts shapes " + e.WAN + " at every start", Why: "it takes away what unbloat sets", Remedy: s.SwitchOff() + "; or shape with it: without --own-tc"})
			}
		}
	}
	if set, err := clearos.Parse(e.Read("cat", clearos.BandwidthConf)); err == nil && slices.Contains([]string{"on", "yes", "1", "true"}, clearos.Get(set, "BANDWIDTH_QOS")) {
		e.Find(platform.Finding{ID: "clearos-bandwidth", Blocking: true, What: "ClearOS's old bandwidth manager is on", Why: "it sets its own queues at every start of the firewall", Remedy: `set BANDWIDTH_QOS="off" in ` + clearos.BandwidthConf + "; service firewall restart"})
	}
	if strings.TrimSpace(e.Read("systemctl", "is-enabled", "wondershaper.service")) == "enabled" {
		e.Find(platform.Finding{ID: "wondershaper", Blocking: true, What: "wondershaper starts at boot", Why: "it sets its own queues", Remedy: "systemctl disable --now wondershaper.service"})
	}
	for _, place := range []string{"/etc/network/interfaces", "/etc/network/interfaces.d", "/etc/network/if-up.d", "/etc/rc.local"} {
		if files := e.grep(`^[^#]*wondershaper`, place); files != "" {
			e.Find(platform.Finding{ID: "wondershaper", Blocking: true, What: "wondershaper is started by " + files, Why: "it sets its own queues whenever the interface comes up", Remedy: "remove that line, then: wondershaper clear " + e.WAN})
		}
	}
	e.networkPrograms()
}

// networkPrograms checks the configuration of programs that bring interfaces up
// for queues: files written by hand, and those that netplan and others generate
// at each start.
func (e *examination) networkPrograms() {
	const again = "it sets them again whenever the connection comes up"
	for _, dir := range []string{"/etc/NetworkManager/system-connections", "/run/NetworkManager/system-connections", "/usr/lib/NetworkManager/system-connections"} {
		files := e.grep(`^\[tc\]|^tc\.`, dir)
		if files == "" {
			continue
		}
		remedy := "nmcli connection modify NAME tc.qdiscs '' tc.tfilters ''"
		if strings.HasPrefix(dir, "/run/") {
			remedy += "; and where netplan writes that file, take tc.* out of its passthrough in /etc/netplan, then netplan apply"
		}
		e.Find(platform.Finding{ID: "networkmanager", Blocking: true, What: "NetworkManager sets queues: " + files, Why: again, Remedy: remedy})
	}
	sections := `^\[(` + strings.Join(networkdSections(), "|") + `)\]`
	for _, dir := range []string{"/etc/systemd/network", "/run/systemd/network", "/usr/local/lib/systemd/network", "/usr/lib/systemd/network"} {
		files := e.grep(sections, dir)
		if files == "" {
			continue
		}
		remedy := "remove these sections, then networkctl reload"
		if strings.HasPrefix(dir, "/run/") {
			remedy = "find what writes them (netplan, or a generator) and take the queues out there, then networkctl reload"
		}
		e.Find(platform.Finding{ID: "networkd", Blocking: true, What: "systemd-networkd sets queues: " + files, Why: "it sets them again whenever the interface comes up", Remedy: remedy})
	}
}

// networkdSections returns the sections of systemd.network(5) that set queues.
func networkdSections() []string {
	return []string{
		"QDisc", "BFIFO", "CAKE", "ClassfulMultiQueueing", "BandMultiQueueing", "ControlledDelay", "DeficitRoundRobinScheduler", "DeficitRoundRobinSchedulerClass",
		"EnhancedTransmissionSelection", "FairQueueing", "FairQueueingControlledDelay", "FlowQueuePIE", "GenericRandomEarlyDetection", "HeavyHitterFilter",
		"HierarchyTokenBucket", "HierarchyTokenBucketClass", "NetworkEmulator", "PFIFO", "PFIFOFast", "PFIFOHeadDrop", "PIE", "QuickFairQueueing", "QuickFairQueueingClass",
		"StochasticFairBlue", "StochasticFairnessQueueing", "TokenBucketFilter", "TrivialLinkEqualizer",
	}
}

// foreignShapers reports shapers on the WAN or the LAN that are not ours.
func (e *examination) foreignShapers() {
	ours := func(dev string) bool {
		return slices.ContainsFunc(e.Shapers, func(s platform.Shaped) bool { return s.Device == dev && s.Ours })
	}
	for _, s := range e.Shapers {
		in := len(s.IngressTo) > 0 && !s.OwnIngress && !slices.ContainsFunc(s.IngressTo, ours)
		if (s.Device == e.WAN || s.Device == e.LAN) && (!s.Ours && s.Rate > 0 || in) {
			remedy := "find what made it and stop it"
			if e.own.TakesOver && e.lasts(s) {
				remedy += ", or take over from it: unbloat apply --replace"
			}
			e.Find(platform.Finding{ID: "other-shaper", Blocking: true, What: s.Says, Why: "of two shapers in a row the slower one decides, and packets wait in the one that nobody tuned", Remedy: remedy})
		}
	}
}

// lasts reports whether a shaper could be made again, if it were taken over from.
func (e *examination) lasts(s platform.Shaped) bool {
	return !slices.ContainsFunc(append([]string{s.Device}, s.IngressTo...), func(dev string) bool {
		t, err := ReadTree(e.Ctx, e.Runner, dev)
		return err != nil || lasting(e.Ctx, e.Runner, t) != nil
	})
}

// grep returns the files below dir that have a matching line, joined on one
// line.
func (e *examination) grep(pattern, dir string) string {
	return strings.Join(strings.Fields(e.Read("grep", "-rlsE", pattern, dir)), " ")
}

// splitBelow is the rate below which merged packets (GSO) add noticeable delay;
// package plan uses the same limit.
const splitBelow = 100 * unit.MbitPerSecond

// offloads checks for merged packets at a shaper that does not split them. They
// are merged by the receiving device (GRO) or by this machine's own TCP (TSO,
// GSO).
func (e *examination) offloads() {
	for _, s := range e.Shapers {
		if s.Rate == 0 || s.Rate >= splitBelow || strings.HasPrefix(s.Queue, "cake") || strings.HasPrefix(s.Queue, "tbf") { // these split
			continue
		}
		for _, l := range e.feeders(s.Device) {
			on := mergesBy(l, s.Device, tc.SwitchableOffloads(tc.ParseFeatures([]byte(e.Read("ethtool", "-k", l.Name)))))
			if l.Name == s.Device { // what arrives there does not pass its shaper
				on = slices.DeleteFunc(on, func(f string) bool { return f == "gro" })
			}
			if len(on) > 0 {
				e.Find(platform.Finding{ID: "offloads", Blocking: true, What: fmt.Sprintf("%s merges packets (%s), and %s on %s does not split them", l.Name, strings.Join(on, ", "), s.Queue, s.Device),
					Why: fmt.Sprintf("a merged packet of 64 KB occupies %s for %s", s.Rate.Short(), s.Rate.Time(65536).Round(1e5)), Remedy: "ethtool -K " + l.Name + " " + strings.Join(on, " off ") + " off"})
			}
		}
	}
}

// feeders returns the devices whose offloads send merged packets to a shaper: itself, and
// the stacks of those that forward packets to it. An ifb merges nothing: no local
// connection sends through it, and it doesn't aggregate.
func (e *examination) feeders(dev string) (out []tc.Link) {
	if l, ok := e.link(dev); ok && l.Kind != "ifb" {
		out = append(out, l)
	}
	for _, s := range e.Shapers {
		if slices.Contains(s.IngressTo, dev) {
			out = append(out, tc.Stack(e.links, s.Device)...)
		}
	}
	switch {
	case dev == e.WAN && e.LAN != "":
		out = append(out, tc.Stack(e.links, e.LAN)...)
	case dev == e.LAN && e.WAN != "":
		out = append(out, tc.Stack(e.links, e.WAN)...)
	}
	return out
}

// isolation checks for queues in which control traffic waits behind a download:
// then neighbour discovery and DHCPv6 time out, and IPv6 fails under load.
func (e *examination) isolation() {
	fair := []string{"cake", "fq_codel", "fq_pie", "sfq", "fq", "drr", "sfb"}
	for _, s := range e.Shapers {
		words := strings.FieldsFunc(s.Queue, func(r rune) bool { return r == ' ' || r == '+' || r == ',' })
		if s.Rate == 0 || slices.ContainsFunc(words, func(w string) bool { return slices.Contains(fair, w) }) {
			continue
		}
		e.Find(platform.Finding{ID: "no-isolation", What: fmt.Sprintf("%s is held to %s by %s, which does not tell flows apart", s.Device, s.Rate, s.Queue),
			Why: "neighbour discovery and DHCPv6 wait behind a download like everything else: IPv6 may fail just when the line is full", Remedy: "shape with --aqm cake or fq_codel"})
	}
	filters := e.Read("tc", "filter", "show", "dev", e.WAN, "ingress")
	if strings.Contains(filters, "police ") {
		e.Find(platform.Finding{ID: "police", Blocking: true, What: "what arrives at " + e.WAN + " is policed", Why: "a policer drops without a queue, neighbour discovery and DHCPv6 too", Remedy: "tc qdisc del dev " + e.WAN + " ingress, then unbloat apply"})
	}
	redirects := func(protocol string) bool {
		on := false // a filter's protocol is on its first line, its action on a later one
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
		e.Find(platform.Finding{ID: "ipv6-bypass", Blocking: true, What: "what arrives at " + e.WAN + " over IPv6 is not shaped: the filter takes IPv4 alone", Why: "an IPv6 download then fills the provider's queue, and everything waits there, neighbour discovery and DHCPv6 among it",
			Remedy: "tc filter add dev " + e.WAN + " parent ffff: protocol ipv6 …, as for ip; or unbloat apply --replace"})
	}
}
