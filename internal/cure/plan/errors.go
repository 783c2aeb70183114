package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"unbloat/unit"
)

// ErrNothingToShape is returned when neither direction has a rate.
var ErrNothingToShape = errors.New("no rate is known in either direction; measure the line, or give --down and --up")

// A FieldError says which field of a plan, line or preference is invalid, and why.
type FieldError struct {
	Field string // as in "up.target"
	Why   string
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Why }

// fieldError makes a FieldError.
func fieldError(field, format string, args ...any) error {
	return &FieldError{Field: field, Why: fmt.Sprintf(format, args...)}
}

// A SwappedError says that the rates asked for fit the line only if download and
// upload are swapped.
type SwappedError struct {
	MeasuredDown, MeasuredUp, PreferredDown, PreferredUp unit.Rate
}

func (e *SwappedError) Error() string {
	return fmt.Sprintf("download and upload look swapped: you asked for %s down and %s up, but the line measured %s down and %s up; swap them, or measure again",
		e.PreferredDown, e.PreferredUp, e.MeasuredDown, e.MeasuredUp)
}

// An AboveLineError says that a rate asked for is far above the measured one. The
// queue would then stay in the modem, out of the shaper's reach.
type AboveLineError struct {
	Direction       Direction
	Asked, Measured unit.Rate
}

func (e *AboveLineError) Error() string {
	return fmt.Sprintf("%s: %s is more than twice the %s that the line measured, so the modem would go on queueing; ask for less, or measure again",
		e.Direction, e.Asked, e.Measured)
}

// An UnsupportedAQMError says that the router lacks the queue discipline asked for.
type UnsupportedAQMError struct {
	AQM      AQM
	Platform string
	Have     []AQM
	Module   bool // it may be a kernel module that is not loaded
}

func (e *UnsupportedAQMError) Error() string {
	have := make([]string, len(e.Have))
	for i, a := range e.Have {
		have[i] = string(a)
	}
	if len(have) == 0 {
		have = []string{"nothing"}
	}
	remedy := "choose another"
	if e.Module {
		remedy = "load or install its kernel module, or choose another"
	}
	return fmt.Sprintf("%s: this %s router has no %s, only %s; %s", e.AQM, e.Platform, e.AQM, strings.Join(have, ", "), remedy)
}

// A NoAQMError says that the router has no AQM. A FIFO, which it may have, is used
// only on request.
type NoAQMError struct {
	Platform string
	Lacks    []AQM // any of these would be enough
	Have     []AQM
}

func (e *NoAQMError) Error() string {
	lacks := make([]string, len(e.Lacks))
	for i, a := range e.Lacks {
		lacks[i] = string(a)
	}
	msg := fmt.Sprintf("this %s router has no %s; load or install a kernel module", e.Platform, strings.Join(lacks, " and no "))
	if slices.Contains(e.Have, FIFO) {
		msg += ", or ask for a short FIFO (--aqm fifo), in which all flows wait for each other"
	}
	return msg
}

// A NoIngressError says that the download cannot be shaped on this side.
type NoIngressError struct {
	Platform string
	Side     Side
	Why      string
}

func (e *NoIngressError) Error() string {
	return fmt.Sprintf("download on side %q of this %s router: %s", e.Side, e.Platform, e.Why)
}
