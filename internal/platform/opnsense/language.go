package opnsense

import (
	"time"

	"unbloat/internal/lang/dummynet"
	"unbloat/internal/plan"
)

// Name is the platform's name.
const Name = "opnsense"

// Language returns what the model of OPNsense's shaper can say.
func Language() *plan.Language {
	l := dummynet.Language(Name)
	l.WAN, l.LAN, l.OwnNames = "wan", "lan", true
	l.Interval = 10 * time.Second
	l.Rules.SCTP = "has no rules for that protocol"
	l.Rules.UnnamedDSCP = "knows the marks be, ef, af11 to af43 and cs1 to cs7 alone"
	return l
}
