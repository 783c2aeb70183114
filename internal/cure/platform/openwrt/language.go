package openwrt

import (
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/internal/cure/platform/linux/bpf"
	"unbloat/reason"
	"unbloat/unit"
)

// Name is the platform's name.
const Name = "openwrt"

// Language returns what /etc/config/sqm supports.
func Language() *plan.Language {
	l := tc.Language(Name)
	l.WAN, l.LAN = "wan", "br-lan"
	l.AQMs, l.Sides = []plan.AQM{plan.CAKE, plan.FQCoDel}, []plan.Side{plan.SideIFB}
	l.FlowTable = false // only with tc by hand (--own-tc)
	l.BPFOmitted = !bpf.Built
	l.Step = unit.KbitPerSecond
	l.Rates, l.RatesWhy = reason.Of(reason.WholeKbit), reason.Of(reason.OpenWrtRatesWhy)
	return l
}
