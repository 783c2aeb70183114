package host

import (
	"context"
	"strconv"
	"strings"

	"unbloat/internal/plan"
)

// Platform asks a router which platform it is. What can't be asked is Linux.
func Platform(ctx context.Context, r Runner) string {
	has := func(path string) bool { _, err := Output(ctx, r, "ls", "-d", path); return err == nil }
	out, err := Output(ctx, r, "uname", "-sr")
	name, release, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	switch {
	case err != nil:
		return plan.Linux
	case name == "OpenBSD":
		if v, err := strconv.ParseFloat(release, 64); err == nil && v <= 5.5 {
			return plan.OpenBSDAltq
		}
		return plan.OpenBSD
	case name == "FreeBSD" && has("/usr/local/opnsense"):
		return plan.OPNsense
	case name == "FreeBSD" && has("/etc/pfSense-rc"):
		return plan.PfSense
	case name == "FreeBSD":
		return plan.FreeBSD
	case has("/etc/openwrt_release"):
		return plan.OpenWrt
	case has("/etc/clearos-release"):
		return plan.ClearOS
	}
	return plan.Linux
}
