package linux

import (
	"strconv"
	"strings"

	"unbloat/internal/cure/platform"
)

// clockRate returns a core's highest clock in Hz, 0 if unknown.
func (e *examination) clockRate() int64 {
	if khz, err := strconv.ParseInt(strings.TrimSpace(e.Read("cat", "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")), 10, 64); err == nil {
		return khz * 1000
	}
	for line := range strings.Lines(e.Read("cat", "/proc/cpuinfo")) {
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

// clock checks the time of day and the kernel's clock source.
func (e *examination) clock() {
	e.TimeOfDay()
	if strings.TrimSpace(e.Read("timedatectl", "show", "-p", "NTPSynchronized", "--value")) == "no" {
		e.Find(platform.Finding{ID: "ntp", What: "the clock is not synchronized", Why: "results of different machines can't be put in order; latency itself is measured without it", Remedy: "timedatectl set-ntp true"})
	}
	source := strings.TrimSpace(e.Read("cat", "/sys/devices/system/clocksource/clocksource0/current_clocksource"))
	if source == "jiffies" || source == "acpi_pm" || source == "hpet" {
		e.Find(platform.Finding{ID: "clocksource", What: "the kernel takes its time from " + source, Why: "reading it is slow or coarse, and every packet is stamped with it", Remedy: "switch to tsc, if /sys/devices/system/clocksource/clocksource0/available_clocksource lists it"})
	}
}
