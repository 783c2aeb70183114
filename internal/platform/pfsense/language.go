package pfsense

import (
	"unbloat/internal/lang/dummynet"
	"unbloat/internal/plan"
)

// Name is the platform's name.
const Name = "pfsense"

// Language returns what pfSense's limiters and floating rules can say.
func Language() *plan.Language {
	l := dummynet.Language(Name)
	l.NotAlone = "pfSense's rules take a limiter for the download only beside one for the upload"
	l.ClassesLost = dummynet.Lost("only DNS and ping go first; pf gives a connection its queues once, so acknowledgements are of its class")
	l.Rules.AcksFirst = false
	l.Rules.DSCP = "has words for marks that only some versions of its pf read"
	l.Rules.Direction = "has one rule for both directions of a connection"
	return l
}
