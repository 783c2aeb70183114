package openwrt

import (
	"unbloat/internal/lang/sqm"
	"unbloat/internal/plan"
	"unbloat/internal/platform/linux"
	"unbloat/internal/platform/render"
)

// Render writes the section of /etc/config/sqm and, for a plan with classes,
// the script.
func Render(p plan.Plan) ([]render.Part, []string, error) {
	s, notes, err := sqm.Render(p)
	if err != nil {
		return nil, nil, err
	}
	parts := []render.Part{{Where: "/etc/config/sqm: add this section. It needs the package sqm-scripts; with luci-app-sqm LuCI shows it. Where there is no room for them, `unbloat apply --own-tc` shapes with tc alone.", Text: s.String()}}
	if sqm.Classed(p) {
		commands, err := linux.UntouchedCommands(p)
		if err != nil {
			return nil, nil, err
		}
		at := sqm.ScriptDir + "/" + sqm.ScriptName(s.Name)
		parts = append(parts, render.Part{Where: "the script that the section names: the queues as `unbloat plan --for linux` has them, and the classes by nftables. " +
			"The download's take the package kmod-sched-ctinfo. Add it to /etc/sysupgrade.conf, so that it lasts over an upgrade.",
			Text: "cat > " + at + " <<'SCRIPT'\n" + sqm.Script(p, commands) + "SCRIPT\n"})
		if sqm.FeedPath(p) == "" {
			parts = append(parts, linux.ResolverPart(p, "/tmp/dnsmasq.d")...)
		}
	}
	return append(parts, render.Part{Where: "then:", Text: "service sqm restart\n"}), notes, nil
}
