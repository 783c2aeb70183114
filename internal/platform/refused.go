package platform

import "strings"

// A RefusedError is the answer of a router's API to a change that was not made:
// what it says, field by field, as far as it says anything.
type RefusedError struct {
	Result string         // "failed", "not found" …; "": the answer has none
	Fields []FieldRefusal // in the order of their names; nil: it gives no reason
	Answer string         // as it came
}

// A FieldRefusal is what an API says of one field.
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
