package clearos

import (
	mech "unbloat/internal/cure/lang/clearos"
	"unbloat/internal/cure/lang/tc"
	"unbloat/internal/cure/plan"
	"unbloat/reason"
	"unbloat/unit"
)

// Name is the platform's name.
const Name = "clearos"

// Language returns what ClearOS supports: rates in network.conf, and its own
// engine or ours, on kernel 3.10, which has no CAKE.
func Language() *plan.Language {
	l := tc.Language(Name)
	l.WAN = "ppp0"
	l.AQMs = []plan.AQM{plan.FQCoDel, plan.SFQ}
	l.Step = unit.KbitPerSecond
	l.Rates, l.RatesWhy = reason.Of(reason.WholeKbit), reason.Of(reason.ClearOSRatesWhy)
	l.Classes, l.BPF, l.ClassesAsked = false, false, plan.SFQ
	l.ClassesUnasked = reason.Of(reason.ClearOSClassesUnasked)
	l.ClassesLost = reason.Of(reason.ClearOSClassesLost)
	l.Engine = mech.OwnEngine()
	l.Rules = plan.RuleLimits{
		Domains:       reason.Of(reason.ClearOSNoDomains),
		DSCP:          reason.Of(reason.ClearOSNoDSCP),
		IPv6:          reason.Of(reason.ClearOSNoIPv6),
		HomeDown:      reason.Of(reason.ClearOSNoHomeDown),
		HomeDownAlone: reason.Of(reason.ClearOSHomeDownAlone),
	}
	// The article enters the speeds themselves.
	l.Article = plan.Article{Down: 1, Up: 1, AQM: plan.SFQ, NoQuantum: true}
	return l
}
