package pfsense

import (
	"unbloat/internal/cure/lang/dummynet"
	"unbloat/internal/cure/plan"
	"unbloat/reason"
)

// Name is the platform's name.
const Name = "pfsense"

// Language returns what pfSense's limiters and floating rules support.
func Language() *plan.Language {
	l := dummynet.Language(Name)
	l.NotAlone = reason.Of(reason.PfSenseNotAlone)
	l.ClassesUnasked = reason.Of(reason.PfSenseClassesUnasked)
	l.ClassesLost = reason.Of(reason.PfSenseClassesLost)
	l.Rules.AcksFirst = false
	l.Rules.DSCP = reason.Of(reason.PfSenseNoDSCP)
	l.Rules.Direction = reason.Of(reason.PfSenseNoDirection)
	return l
}
