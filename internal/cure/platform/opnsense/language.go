package opnsense

import (
	"time"

	"unbloat/internal/cure/lang/dummynet"
	"unbloat/internal/cure/plan"
	"unbloat/reason"
)

// Name is the platform's name.
const Name = "opnsense"

// Language returns what the model of OPNsense's shaper supports.
func Language() *plan.Language {
	l := dummynet.Language(Name)
	l.WAN, l.LAN, l.OwnNames = "wan", "lan", true
	l.Interval = 10 * time.Second
	l.Rules.SCTP = reason.Of(reason.OPNsenseNoSCTP)
	l.Rules.UnnamedDSCP = reason.Of(reason.OPNsenseNamedDSCP)
	return l
}
