package openbsd

import (
	"math"

	"unbloat/internal/cure/lang/pf"
	"unbloat/internal/cure/plan"
	"unbloat/reason"
)

// Names of the two platforms: pf with the queues of OpenBSD 6.2 and later, and
// pf with ALTQ, as it was before 5.5.
const (
	Name     = "openbsd"
	NameAltq = "openbsd-altq"
)

// Language returns what current pf.conf(5) supports.
func Language() *plan.Language { return pf.Language(Name) }

// LanguageAltq returns what pf.conf(5) with ALTQ supports.
func LanguageAltq() *plan.Language {
	l := pf.Language(NameAltq)
	l.AQMs, l.ClassesAsked = []plan.AQM{plan.FIFO}, plan.FIFO
	l.ClassesUnasked = reason.Of(reason.AltqClassesUnasked)
	l.ClassesLost = reason.Of(reason.AltqClassesLost)
	l.MaxRate = math.MaxUint32 // u_int32_t in struct pf_altq
	l.Rates, l.RatesWhy = reason.Of(reason.AltqRates), reason.Of(reason.AltqRatesWhy)
	l.Rules.Domains = reason.Of(reason.AltqNoDomains)
	// The article shapes 1.1 Mbit/s to 1, and calls 97 % typical.
	l.Article = plan.Article{Down: 0.97, Up: 1 / 1.1, AQM: plan.FIFO}
	return l
}
