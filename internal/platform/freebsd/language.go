package freebsd

import (
	"unbloat/internal/lang/dummynet"
	"unbloat/internal/plan"
)

// Name is the platform's name.
const Name = "freebsd"

// Language returns what dnctl(8) and ipfw(8) support.
func Language() *plan.Language {
	l := dummynet.Language(Name)
	l.ClassesRead = true
	return l
}
