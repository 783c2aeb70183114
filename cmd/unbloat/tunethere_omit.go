//go:build !omit_measure && omit_daemon

package main

import "github.com/spf13/cobra"

// tuneThere does nothing: in this build the daemon waits while this program tunes.
func (f *tuneFlags) tuneThere(*cobra.Command) (done bool, err error) { return false, nil }
