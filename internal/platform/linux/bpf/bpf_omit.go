//go:build !linux || omit_bpf

package bpf

import "errors"

// Built says whether this build has the program.
const Built = false

var errNone = errors.New("this build has no BPF program")

// Known reports whether a program's tag is that of ours: this build has none.
func Known(what, tag string) bool { return false }

// Check says that this build has no program.
func Check(Wanted) error { return errNone }

// Load says that this build has no program.
func Load(Wanted, string) error { return errNone }

// Show says that this build has no program.
func Show(string) (Tables, error) { return Tables{}, errNone }

func object() []byte { return nil }
