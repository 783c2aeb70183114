package freebsd

import (
	"unbloat/internal/cure/lang/dummynet"
	"unbloat/internal/cure/plan"
)

// Name is the platform's name.
const Name = "freebsd"

// Language returns what dnctl(8) and ipfw(8) support.
func Language() *plan.Language {
	return dummynet.Language(Name)
}
