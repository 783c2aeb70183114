package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Exit codes of the contract.
const (
	Done         = 0
	Failed       = 1 // any change was undone
	Usage        = 2 // wrong usage or bad input
	NoBetter     = 3 // not better, so nothing was kept
	Invalid      = 4 // the measurement is invalid
	Precondition = 5 // a precondition is missing
)

// Error is an error that ends the program with its own exit code.
type Error struct {
	Code int
	Err  error // nil: what went wrong has been printed
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}
func (e *Error) Unwrap() error { return e.Err }

// Exit gives an error its exit code. Without an error, what went wrong has been
// printed.
func Exit(code int, err error) error { return &Error{Code: code, Err: err} }

// UsageError returns an error of usage.
func UsageError(format string, args ...any) error { return Exit(Usage, fmt.Errorf(format, args...)) }

// ExitCode returns an error's exit code. This is the only place where errors become
// exit codes.
func ExitCode(err error) int {
	if err == nil {
		return Done
	}
	var e *Error
	if errors.As(err, &e) && !errors.Is(err, ErrInterrupted) {
		return e.Code
	}
	return Failed
}

// Failure is what a command with --json prints instead of a result.
type Failure struct {
	Schema string `json:"schema"`
	Code   string `json:"code"` // failed, usage, no_better, invalid or precondition
	Exit   int    `json:"exit"` // the exit code
	Text   string `json:"text"`
}

// failureCode names an exit code.
func failureCode(code int) string {
	return map[int]string{Failed: "failed", Usage: "usage", NoBetter: "no_better", Invalid: "invalid", Precondition: "precondition"}[code]
}

// ErrorText returns what is printed to standard error, all of what went wrong together;
// "" if it has been printed.
func ErrorText(err error) string {
	switch e := err.(type) {
	case nil:
		return ""
	case *Error:
		return ErrorText(e.Err)
	case interface{ Unwrap() []error }:
		if all := e.Unwrap(); errors.Join(all...).Error() == err.Error() { // joined, not wrapped
			texts := make([]string, len(all))
			for i, x := range all {
				texts[i] = ErrorText(x)
			}
			return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), "\n")
		}
	}
	return err.Error()
}
