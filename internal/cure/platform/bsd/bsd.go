// Package bsd holds the doctor's checks shared by routers with pf or dummynet.
package bsd

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
)

// Own holds what differs between these platforms.
type Own struct {
	Modules  func(e *platform.Examination) // checks for the shaper's kernel modules
	Offloads func(e *platform.Examination) // checks for packets merged before the shaper
	Counts   string                        // the part of a packet that the shaper counts, as in CountsIP
	Isolated string                        // remedy for a single shared queue, as in WithFQCoDel
}

// CoDel is the one of FreeBSD's kernel and its heirs, as golden traces name it.
const CoDel = "freebsd"

// What shapers count of a packet, and remedies for missing flow isolation.
const (
	CountsIP       = "dummynet counts IP packets alone"
	CountsEthernet = "pf counts Ethernet frames"
	WithFQCoDel    = "shape with --aqm fq_codel"
)

// Checks returns a driver's Checks.
func Checks(own Own) func(e *platform.Examination) []platform.Check {
	return func(e *platform.Examination) []platform.Check {
		e.ReadShapers()
		return []platform.Check{
			{Name: "kernel modules", Run: func() { own.Modules(e) }},
			e.Applied(),
			{Name: "other shapers", Run: func() { shapers(e) }},
			{Name: "segmentation offloads", Run: func() { own.Offloads(e) }},
			Isolation(e, own.Isolated),
			Overhead(e, own.Counts),
			{Name: "MTU", Run: func() { mtu(e) }},
			e.CPU(func() int64 { return clockRate(e) }),
			{Name: "clock", Run: e.TimeOfDay},
		}
	}
}

// ForFreeBSD returns the values for FreeBSD's kernel.
func ForFreeBSD() Own {
	return Own{Modules: modules, Offloads: offloads, Counts: CountsIP, Isolated: WithFQCoDel}
}

// modules checks for ipfw and dummynet in FreeBSD's kernel.
func modules(e *platform.Examination) {
	for _, m := range []struct{ name, remedy string }{
		{"ipfw", "kenv net.inet.ip.fw.default_to_accept=1 && kldload -n ipfw (without the first, a newly loaded ipfw denies everything, your login too)"},
		{"dummynet", "kldload -n dummynet"},
	} {
		_, err := platform.Output(e.Ctx, e.Runner, "kldstat", "-q", "-m", m.name)
		var failed *platform.CommandError
		if errors.As(err, &failed) {
			e.Find(platform.Finding{ID: "no-aqm", Blocking: true, What: "the kernel module " + m.name + " is not loaded", Why: "nothing here can hold a rate and keep the queue short", Remedy: m.remedy})
		}
	}
}

// offloads checks for TSO and LRO with FreeBSD's ifconfig(8).
func offloads(e *platform.Examination) {
	options := regexp.MustCompile(`(?m)^\s*options=[0-9a-f]+<([^>]*)>`)
	for _, dev := range []string{e.WAN, e.LAN} {
		m := options.FindStringSubmatch(ifconfig(e, dev))
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
			e.Find(platform.Finding{ID: "offloads", Blocking: slices.Contains(on, "LRO"), What: dev + " merges packets (" + strings.Join(on, ", ") + ")",
				Why:    "a merged packet of 64 KB goes through the shaper as one; and a router must not merge what it forwards",
				Remedy: "ifconfig " + dev + " -tso -lro; for good: ifconfig_" + dev + "=\"… -tso -lro\" in /etc/rc.conf"})
		}
	}
}

// shapers reports shapers on the WAN or the LAN that are not ours.
func shapers(e *platform.Examination) {
	for _, s := range e.Shapers {
		if !s.Ours && s.Rate > 0 && (s.Device == e.WAN || s.Device == e.LAN) {
			e.Find(platform.Finding{ID: "other-shaper", Blocking: true, What: s.Says, Why: "of two shapers in a row the slower one decides, and packets wait in the one that nobody tuned",
				Remedy: "remove it from the configuration that makes it, and load that"})
		}
	}
}

// passes reports whether a pipe of ours lets control traffic past: only that one has no rate.
func passes(s platform.Shaped) bool { return s.Ours && s.Rate == 0 }

// Control describes the pipe that lets control traffic past the shaper; fed says by
// which rules.
func Control(x platform.Shaped, fed string) platform.Shaped {
	x.Rate, x.Queue = 0, "a pipe that holds nothing back"
	x.Says = "it lets control traffic past the shaper, so that IPv6 and the gateway's monitor live while the line is full (unbloat's): " + fed
	return x
}

// ifconfig returns ifconfig(8)'s output for a device; "" if there is no such
// device.
func ifconfig(e *platform.Examination, dev string) string {
	if dev == "" {
		return ""
	}
	return e.Read("ifconfig", dev)
}

// Isolation is the check for queues without flow isolation, in which control
// traffic waits too.
func Isolation(e *platform.Examination, remedy string) platform.Check {
	return platform.Check{Name: "queues without isolation", Run: func() {
		why := "neighbour discovery and DHCPv6 wait behind a download like everything else: IPv6 may fail just when the line is full"
		if slices.ContainsFunc(e.Shapers, passes) {
			why = "what sends little waits behind a download like everything else"
		}
		for _, s := range e.Shapers {
			if s.Rate > 0 && (strings.Contains(s.Queue, "FIFO") || strings.Contains(s.Queue, "WF2Q")) {
				e.Find(platform.Finding{ID: "no-isolation", What: fmt.Sprintf("%s is held to %s by %s, which does not tell flows apart", s.Device, s.Rate.Short(), s.Queue),
					Why: why, Remedy: remedy})
			}
		}
	}}
}

// Overhead is the check for per-packet overhead of the line, which pf and
// dummynet can't add; counts says what they count.
func Overhead(e *platform.Examination, counts string) platform.Check {
	const name = "packet overhead"
	return platform.Check{Name: name, Run: func() {
		pppoe := strings.HasPrefix(e.WAN, "pppoe") || strings.HasPrefix(e.WAN, "ng") || strings.HasPrefix(e.WAN, "tun")
		if e.LinkLayer == "" && !pppoe {
			e.Skip(name, "nobody said what the line is; give --link-layer")
			return
		}
		if e.LinkLayer == plan.ATM || e.LinkLayer == plan.PTM || pppoe {
			e.Find(platform.Finding{ID: "overhead", What: counts + " and cannot count more, and the line adds to each (" + strings.TrimSpace(string(e.LinkLayer)+" "+e.WAN) + ")",
				Why: "under many small packets the line is full before the shaper is, and the queue is in the modem again", Remedy: "leave more room in the rates, or let unbloat tune find them"})
		}
	}}
}

// mtu checks the MTUs of WAN and LAN.
func mtu(e *platform.Examination) {
	of := func(dev string) int {
		_, after, _ := strings.Cut(ifconfig(e, dev), " mtu ")
		n, _ := strconv.Atoi(strings.TrimSpace(strings.SplitN(after+"\n", "\n", 2)[0]))
		return n
	}
	wan, lan := of(e.WAN), of(e.LAN)
	if wan == 0 {
		e.Skip("MTU", "ifconfig doesn't tell that of "+e.WAN)
		return
	}
	e.LeastMTU(wan, "ifconfig "+e.WAN+" mtu 1500")
	scrubs := strings.Contains(e.Read("pfctl", "-sr"), "max-mss")
	if lan > wan && !scrubs {
		e.Unclamped(lan, wan, "match on "+e.WAN+" scrub (max-mss "+strconv.Itoa(wan-40)+") in pf.conf")
	}
}

// clockRate returns a core's clock in Hz from sysctl(8), 0 if unknown.
func clockRate(e *platform.Examination) int64 {
	for _, name := range []string{"hw.cpuspeed", "hw.clockrate"} { // OpenBSD, FreeBSD; in MHz
		if mhz, err := strconv.ParseInt(strings.TrimSpace(e.Read("sysctl", "-n", name)), 10, 64); err == nil {
			return mhz * 1e6
		}
	}
	return 0
}
