package platform

import "strings"

// A RefusedError is the answer of a router's API that refused a change, with
// its messages by field.
type RefusedError struct {
	Result string         // "failed", "not found" …; "": none in the answer
	Fields []FieldRefusal // sorted by name; nil: no reason given
	Answer string         // the raw answer
}

// A FieldRefusal is an API's message about one field.
type FieldRefusal struct {
	Field string // "pipe.bandwidth"
	Says  []string
}

func (e *RefusedError) Error() string {
	var says []string
	for _, f := range e.Fields {
		says = append(says, f.Field+": "+strings.Join(f.Says, " "))
	}
	switch {
	case len(says) > 0:
		return "the router refused it: " + strings.Join(says, "; ")
	case e.Result != "":
		return "the router answered " + e.Result + " and gave no reason"
	}
	return "the router's answer does not say that it was done: " + e.Answer
}
