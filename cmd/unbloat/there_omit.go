//go:build !omit_measure && omit_daemon

package main

import (
	"github.com/spf13/cobra"

	"unbloat/internal/verdict"
)

// tuneThere does nothing: in this build the daemon waits while this program tunes.
func (f *tuneFlags) tuneThere(*cobra.Command) (done bool, err error) { return false, nil }

// testThere does nothing, as tuneThere.
func (o *testFlags) testThere(*cobra.Command) (test *verdict.Test, interrupted, done bool, err error) {
	return nil, false, false, nil
}
