package linux

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
)

// openWrt is the ID in OpenWrt's /etc/os-release.
const openWrt = "openwrt"

// Distro returns the family of the router's distribution, as in "debian"; "" if
// unknown.
func Distro(ctx context.Context, r platform.Runner) string {
	out, _ := platform.Output(ctx, r, "cat", "/etc/os-release")
	words := ""
	for line := range strings.Lines(string(out)) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), "="); name == "ID" || name == "ID_LIKE" {
			words += " " + strings.Trim(value, `"'`)
		}
	}
	for _, known := range []string{openWrt, "ubuntu", "debian", "fedora", "rhel", "arch", "alpine", "suse"} {
		if strings.Contains(words, known) {
			return known
		}
	}
	return ""
}

// InstallCommand returns the distribution's command that installs a package;
// openwrt is its name on OpenWrt, "" if it is the same.
func InstallCommand(ctx context.Context, r platform.Runner, name, openwrt string) string {
	switch Distro(ctx, r) {
	case openWrt:
		if openwrt != "" {
			name = openwrt
		}
		return opkg(ctx, r, name)
	case "debian", "ubuntu":
		return "apt-get install " + name
	case "fedora", "rhel":
		return "dnf install " + strings.Replace(name, "iproute2", "iproute iproute-tc", 1)
	case "arch":
		return "pacman -S " + name
	case "alpine":
		return "apk add " + name
	case "suse":
		return "zypper install " + name
	}
	return "install the package " + name
}

// opkg returns the command that installs OpenWrt packages: opkg, or apk since
// 25.12.
func opkg(ctx context.Context, r platform.Runner, names string) string {
	if out, err := platform.Output(ctx, r, "apk", "--version"); err == nil && len(out) > 0 {
		return "apk update && apk add " + names
	}
	return "opkg update && opkg install " + names
}

// ModuleCommand returns the distribution's command that makes kernel modules
// for shaping available: loads them, or installs their package.
func ModuleCommand(ctx context.Context, r platform.Runner, modules ...string) string {
	load := "modprobe -a " + strings.Join(modules, " ")
	switch Distro(ctx, r) {
	case openWrt:
		if slices.Contains(modules, "cls_bpf") {
			return opkg(ctx, r, "kmod-sched-bpf")
		}
		return opkg(ctx, r, "kmod-sched-cake kmod-sched-core kmod-ifb")
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

// Lacking adds to an error of plan.Make about a missing kernel feature the
// modules and the command that installs them. It returns other errors
// unchanged.
func Lacking(ctx context.Context, r platform.Runner, wan string, err error) error {
	var none *plan.NoAQMError
	var one *plan.UnsupportedAQMError
	var lacks []plan.AQM
	have := []plan.AQM{}
	switch {
	case errors.As(err, &none):
		lacks, have = none.Lacks, none.Have
	case errors.As(err, &one):
		lacks, have = []plan.AQM{one.AQM}, one.Have
	}
	var what, modules []string
	for _, a := range lacks {
		mine := modulesOf(a)
		if mine == nil {
			return err
		}
		if len(have) == 0 && a != plan.CAKE { // not even a FIFO, which needs only HTB
			mine = append([]string{"sch_htb"}, mine...)
		}
		what = append(what, fmt.Sprintf("no %s (module %s)", a, strings.Join(mine, " ")))
		modules = append(modules, mine...)
	}
	if len(what) == 0 {
		return err
	}
	remedy := ModuleCommand(ctx, r, modules...)
	for _, other := range []plan.AQM{plan.CAKE, plan.FQCoDel} {
		if slices.Contains(have, other) {
			remedy += "; or take what is there: --aqm " + string(other)
			break
		}
	}
	if none != nil && slices.Contains(have, plan.FIFO) {
		remedy += "; or ask for a short FIFO, in which everybody waits for everybody: --aqm fifo"
	}
	return &platform.PreconditionError{Doing: "shape " + wan, What: "the kernel has " + strings.Join(what, " and "), Remedy: remedy, Err: err}
}

// modulesOf returns the kernel modules of an AQM; nil if unknown.
func modulesOf(a plan.AQM) []string {
	switch a {
	case plan.CAKE:
		return []string{"sch_cake"}
	case plan.FQCoDel:
		return []string{"sch_fq_codel"}
	}
	return nil
}
