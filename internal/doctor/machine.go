package doctor

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"unbloat/unit"
)

// Cycles that forwarding and shaping a full packet cost a core, roughly, as
// people report of their routers: small in-order cores with NAT in software need
// several times what large ones do. They only tell "plenty" from "not enough".
const (
	cyclesSmallCore = 50_000
	cyclesLargeCore = 15_000
)

// cpu compares a core's clock with the wished rate: a shaper runs on one core.
func (e *examination) cpu() bool {
	wished := e.Down + e.Up
	hz := e.clockRate()
	switch {
	case wished == 0:
		return e.skip("CPU", "no rate is wished; give --down and --up")
	case hz == 0:
		return e.skip("CPU", "its clock is not known")
	}
	cycles := int64(cyclesLargeCore)
	if machine := strings.TrimSpace(e.read("uname", "-m")); strings.HasPrefix(machine, "mips") || strings.HasPrefix(machine, "armv") {
		cycles = cyclesSmallCore
	}
	most := unit.Rate(hz / cycles * 1514 * 8)
	if wished > most {
		e.find(Finding{"cpu", false, fmt.Sprintf("a core of %d MHz shapes about %s, and %s are wished", hz/1e6, most.Short(), wished.Short()),
			"when the core is busy, packets wait outside the queues that are kept short; the estimate is rough", "unbloat tune measures what this router can do; fq_codel needs less than cake"})
	}
	return true
}

// clockRate is a core's highest clock in Hz, 0 if it is not known.
func (e *examination) clockRate() int64 {
	if khz, err := strconv.ParseInt(strings.TrimSpace(e.read("cat", "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")), 10, 64); err == nil {
		return khz * 1000
	}
	for _, name := range []string{"hw.cpuspeed", "hw.clockrate"} { // OpenBSD, FreeBSD; in MHz
		if linuxLike(e.Platform) {
			break
		}
		if mhz, err := strconv.ParseInt(strings.TrimSpace(e.read("sysctl", "-n", name)), 10, 64); err == nil {
			return mhz * 1e6
		}
	}
	for line := range strings.Lines(e.read("cat", "/proc/cpuinfo")) {
		name, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(name) {
		case "cpu MHz", "BogoMIPS", "bogomips": // on small cores BogoMIPS is close to the clock
			if mhz, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil && mhz > 100 {
				return int64(mhz * 1e6)
			}
		}
	}
	return 0
}

// mostSkew is how far the clocks of two machines may be apart.
const mostSkew = 2 * time.Minute

// clock looks at the time of day, and at what the kernel takes it from.
func (e *examination) clock() bool {
	seconds, err := strconv.ParseInt(strings.TrimSpace(e.read("date", "+%s")), 10, 64)
	if err != nil {
		e.skip("clock", "the router does not tell the time")
	} else {
		at := time.Unix(seconds, 0)
		if skew := at.Sub(e.Now).Abs(); at.Year() < 2024 || e.Far && skew > mostSkew {
			e.find(Finding{"clock", true, "the clock says " + at.UTC().Format(time.RFC3339), "certificates are refused, and results can't be put in order", "ntpd -q -p pool.ntp.org, or chronyc makestep"})
		}
	}
	if strings.TrimSpace(e.read("timedatectl", "show", "-p", "NTPSynchronized", "--value")) == "no" {
		e.find(Finding{"ntp", false, "the clock is not synchronized", "results of different machines can't be put in order; latency itself is measured without it", "timedatectl set-ntp true"})
	}
	source := strings.TrimSpace(e.read("cat", "/sys/devices/system/clocksource/clocksource0/current_clocksource"))
	if source == "jiffies" || source == "acpi_pm" || source == "hpet" {
		e.find(Finding{"clocksource", false, "the kernel takes its time from " + source, "reading it is slow or coarse, and every packet is stamped with it", "look at /sys/devices/system/clocksource/clocksource0/available_clocksource for tsc"})
	}
	return true
}
