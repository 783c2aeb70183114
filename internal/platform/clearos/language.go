package clearos

import (
	mech "unbloat/internal/lang/clearos"
	"unbloat/internal/lang/tc"
	"unbloat/internal/plan"
	"unbloat/unit"
)

// Name is the platform's name.
const Name = "clearos"

// Language returns what ClearOS can be told: the rates in its network.conf, and
// its own engine or one of ours, on the kernel 3.10, which has no CAKE.
func Language() *plan.Language {
	l := tc.Language(Name)
	l.WAN = "ppp0"
	l.AQMs = []plan.AQM{plan.FQCoDel, plan.SFQ}
	l.Step = unit.KbitPerSecond
	l.Rates, l.RatesWhy = "whole kbit/s", "network.conf takes no others; what is wished is rounded down"
	l.Classes, l.ClassesAsked = false, plan.SFQ
	l.ClassesUnasked = "its kernel (3.10) cannot mark flows by how they behave; for traffic that a rule names ClearOS's own engine has classes with a part that is theirs, and no AQM: --aqm sfq"
	l.ClassesLost = "its kernel (3.10) cannot mark flows by how they behave: without a rule that names it a flow is normal, and only DNS and ping go first; ClearOS's engine marks IPv4 alone"
	l.Engine = mech.OwnEngine()
	l.Rules = plan.RuleLimits{
		Domains:       "knows addresses, not names; its dnsmasq (before 2.87) fills none of its rules",
		DSCP:          "has no rules for marks",
		IPv6:          "marks IPv4 alone",
		HomeDown:      "marks what arrives before NAT gives it to a machine",
		HomeDownAlone: "what arrives is marked before NAT gives it to a machine",
	}
	// The article enters the speeds themselves.
	l.Article = plan.Article{Down: 1, Up: 1, AQM: plan.SFQ, NoQuantum: true}
	return l
}
