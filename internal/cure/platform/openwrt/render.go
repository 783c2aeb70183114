package openwrt

import (
	"unbloat/internal/cure/lang/sqm"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform"
	"unbloat/internal/cure/platform/linux"
)

// Render writes the section of /etc/config/sqm and, for a plan with classes,
// the script.
func Render(p plan.Plan) ([]platform.PlanPart, []string, error) {
	s, notes, err := sqm.Render(p)
	if err != nil {
		return nil, nil, err
	}
	parts := []platform.PlanPart{{Where: "/etc/config/sqm: add this section. It needs the package sqm-scripts; with luci-app-sqm LuCI shows it. Where there is no room for them, `unbloat apply --own-tc` shapes with tc alone.", Text: s.String()}}
	if sqm.Classed(p) {
		commands, err := linux.UntouchedCommands(p)
		if err != nil {
			return nil, nil, err
		}
		at := sqm.ScriptDir + "/" + sqm.ScriptName(s.Name)
		parts = append(parts, platform.PlanPart{Where: "the script that the section names: the queues as `unbloat plan --for linux` has them, and the classes by nftables. " +
			"The download's take the package kmod-sched-ctinfo. Add it to /etc/sysupgrade.conf, so that it lasts over an upgrade.",
			Text: "cat > " + at + " <<'SCRIPT'\n" + sqm.Script(p, linux.Programs(p), commands) + "SCRIPT\n"})
		if sqm.FeedPath(p) == "" {
			parts = append(parts, linux.ResolverPart(p, "/tmp/dnsmasq.d")...)
		}
	}
	return append(parts, platform.PlanPart{Where: "then:", Text: "service sqm restart\n"}), notes, nil
}
