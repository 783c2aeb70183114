package openbsd

import (
	"math"

	"unbloat/internal/lang/pfqueue"
	"unbloat/internal/plan"
)

// Names of the two platforms: pf with the queues of OpenBSD 6.2 and later, and
// pf with ALTQ, as it was before 5.5.
const (
	Name     = "openbsd"
	NameAltq = "openbsd-altq"
)

// Language returns what pf.conf(5) can say today.
func Language() *plan.Language { return pfqueue.Language(Name) }

// LanguageAltq returns what pf.conf(5) could say when it had ALTQ.
func LanguageAltq() *plan.Language {
	l := pfqueue.Language(NameAltq)
	l.AQMs, l.ClassesAsked = []plan.AQM{plan.FIFO}, plan.FIFO
	l.ClassesUnasked = "ALTQ has one short FIFO for everything here; its latency is what all traffic gets. pf does not know how a flow behaves, but a rule that names traffic (--rule, --classes) has a queue made for its class"
	l.ClassesLost += "; ALTQ has one FIFO for a class, so its flows and machines wait for each other"
	l.MaxRate = math.MaxUint32 // u_int32_t in struct pf_altq
	l.Rates, l.RatesWhy = "at most 4.29 Gbit/s", "ALTQ counts bit/s in 32 bits"
	l.Rules.Domains = "knows addresses, not names; no resolver of its time fills pf's tables"
	// The article has 1 of 1.1 Mbit/s, and "typical would be 97 %".
	l.Article = plan.Article{Down: 0.97, Up: 1 / 1.1, AQM: plan.FIFO}
	return l
}
