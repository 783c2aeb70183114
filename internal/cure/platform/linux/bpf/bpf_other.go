//go:build !linux

package bpf

import (
	"errors"

	"unbloat/internal/cure/lang/tc"
)

// Built says whether this build has the program.
const Built = false

var errNone = errors.New("this build has no BPF program")

// Known reports whether a program's tag is that of ours: this build has none.
func Known(what, tag string) bool { return false }

// Check says that this build has no program.
func Check(Wanted) error { return errNone }

// Altered is false: there is nothing to compare.
func Altered(Wanted, string) bool { return false }

// Load says that this build has no program.
func Load(w Wanted, key, root string) error { return errNone }

// Show says that this build has no program.
func Show(string) (Tables, error) { return Tables{}, errNone }

// Attach says that this build has no program.
func Attach(device, parent string, pref int, pin string, acts bool) error { return errNone }

// Attached says that this build has no program.
func Attached(device string) ([]tc.Attached, error) { return nil, errNone }

func object() []byte { return nil }
