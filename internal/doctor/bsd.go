package doctor

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"unbloat/internal/host"
	"unbloat/internal/plan"
)

// bsd runs the checks of a router with pf or dummynet.
func (e *examination) bsd() {
	e.readShapers()
	e.each([]check{
		{"kernel modules", e.bsdModules}, {"what was applied", e.applied}, {"other shapers", e.bsdShapers}, {"segmentation offloads", e.bsdOffloads},
		{"queues without isolation", e.bsdIsolation}, {"packet overhead", e.bsdOverhead}, {"MTU", e.bsdMTU}, {"CPU", e.cpu}, {"clock", e.clock},
	})
}

// api runs the checks of a router of which only the shaper's API is known.
func (e *examination) api() {
	e.readShapers()
	e.each([]check{{"what was applied", e.applied}, {"queues without isolation", e.bsdIsolation}, {"packet overhead", e.bsdOverhead}})
	e.skip("offloads, MTU, CPU and clock", "the API of the traffic shaper doesn't tell; look at Interfaces: Settings (hardware offloading is to be off), and at the dashboard")
}

// bsdModules looks for what shapes.
func (e *examination) bsdModules() bool {
	if e.Platform == "openbsd" || e.Platform == "openbsd-altq" {
		out, err := host.Output(e.ctx, e.Runner, "pfctl", "-si")
		switch {
		case err != nil:
			e.skip("pf", err.Error())
		case strings.Contains(string(out), "Status: Disabled"):
			e.find(Finding{"pf-off", true, "pf is off", "its queues are, too", "pfctl -e, and remove pf=NO from /etc/rc.conf.local"})
		}
		return true
	}
	for _, m := range []struct{ name, remedy string }{
		{"ipfw", "kenv net.inet.ip.fw.default_to_accept=1 && kldload -n ipfw (without the first, a newly loaded ipfw denies everything, your login too)"},
		{"dummynet", "kldload -n dummynet"},
	} {
		_, err := host.Output(e.ctx, e.Runner, "kldstat", "-q", "-m", m.name)
		var failed *host.CommandError
		if errors.As(err, &failed) {
			e.find(Finding{"no-aqm", true, "the kernel module " + m.name + " is not loaded", "nothing here can hold a rate and keep the queue short", m.remedy})
		}
	}
	return true
}

// bsdShapers names what shapes the WAN or the LAN and is not ours.
func (e *examination) bsdShapers() bool {
	for _, s := range e.shapers {
		if !s.Ours && s.Rate > 0 && (s.Device == e.WAN || s.Device == e.LAN) {
			e.find(Finding{"other-shaper", true, s.Says, "two shapers in a row hold to the slower, and the queue stands in the one that nobody tuned", "remove it from the configuration that makes it, and load that"})
		}
	}
	return true
}

// ifconfig is what ifconfig(8) says of a device; "" if it is not there.
func (e *examination) ifconfig(dev string) string {
	if dev == "" {
		return ""
	}
	return e.read("ifconfig", dev)
}

// bsdOffloads looks for packets that are merged before a shaper sees them, as
// FreeBSD shows it.
func (e *examination) bsdOffloads() bool {
	if e.Platform == "openbsd" || e.Platform == "openbsd-altq" {
		return e.skip("segmentation offloads", "they are not looked at on OpenBSD; `ifconfig "+e.WAN+" -tcplro` switches merging off")
	}
	options := regexp.MustCompile(`(?m)^\s*options=[0-9a-f]+<([^>]*)>`)
	for _, dev := range []string{e.WAN, e.LAN} {
		m := options.FindStringSubmatch(e.ifconfig(dev))
		if m == nil {
			continue
		}
		var on []string
		for _, x := range strings.Split(m[1], ",") {
			if x == "LRO" || x == "TSO4" || x == "TSO6" {
				on = append(on, x)
			}
		}
		if len(on) > 0 {
			e.find(Finding{"offloads", slices.Contains(on, "LRO"), dev + " merges packets (" + strings.Join(on, ", ") + ")",
				"a merged packet of 64 KB goes through the shaper as one; and a router must not merge what it forwards", "ifconfig " + dev + " -tso -lro; for good: ifconfig_" + dev + "=\"… -tso -lro\" in /etc/rc.conf"})
		}
	}
	return true
}

// bsdIsolation looks for queues in which control traffic waits like everything.
func (e *examination) bsdIsolation() bool {
	for _, s := range e.shapers {
		if s.Rate > 0 && (strings.Contains(s.Queue, "FIFO") || strings.Contains(s.Queue, "WF2Q")) {
			e.find(Finding{"no-isolation", false, fmt.Sprintf("%s is held to %s by %s, which does not tell flows apart", s.Device, s.Rate.Short(), s.Queue),
				"neighbour discovery and DHCPv6 wait behind a download like everything else: IPv6 may fail just when the line is full", e.bsdIsolated()})
		}
	}
	return true
}

// bsdIsolated is what to do about a queue that is one for all.
func (e *examination) bsdIsolated() string {
	if e.Platform == "openbsd-altq" {
		return "a shorter queue (--latency); ALTQ has none that tells flows apart, OpenBSD from 6.2 has"
	}
	return "shape with --aqm fq_codel"
}

// bsdOverhead says what pf and dummynet can't count.
func (e *examination) bsdOverhead() bool {
	pppoe := strings.HasPrefix(e.WAN, "pppoe") || strings.HasPrefix(e.WAN, "ng") || strings.HasPrefix(e.WAN, "tun")
	if e.LinkLayer == "" && !pppoe {
		return e.skip("packet overhead", "nobody said what the line is; give --link-layer")
	}
	if e.LinkLayer == plan.ATM || e.LinkLayer == plan.PTM || pppoe {
		counts := "dummynet counts IP packets alone"
		if e.Platform == "openbsd" || e.Platform == "openbsd-altq" {
			counts = "pf counts Ethernet frames"
		}
		e.find(Finding{"overhead", false, counts + " and cannot be told of more, and the line adds to each (" + strings.TrimSpace(string(e.LinkLayer)+" "+e.WAN) + ")",
			"under many small packets the line is full before the shaper is, and the queue is in the modem again", "leave more room in the rates, or let unbloat tune find them"})
	}
	return true
}

// bsdMTU looks at packet sizes on the way.
func (e *examination) bsdMTU() bool {
	mtu := func(dev string) int {
		_, after, _ := strings.Cut(e.ifconfig(dev), " mtu ")
		n, _ := strconv.Atoi(strings.TrimSpace(strings.SplitN(after+"\n", "\n", 2)[0]))
		return n
	}
	wan, lan := mtu(e.WAN), mtu(e.LAN)
	if wan == 0 {
		return e.skip("MTU", "ifconfig doesn't tell that of "+e.WAN)
	}
	if wan < leastIPv6 {
		e.find(lowMTU(e.WAN, wan, "ifconfig "+e.WAN+" mtu 1500, or what the provider says"))
	}
	scrubs := strings.Contains(e.read("pfctl", "-sr"), "max-mss")
	if lan > wan && !scrubs {
		e.find(clampMSS(e.LAN, lan, e.WAN, wan, "match on "+e.WAN+" scrub (max-mss "+strconv.Itoa(wan-40)+") in pf.conf"))
	}
	return true
}
