//go:build !omit_lab

package main

import "github.com/spf13/cobra"

// newLaboratoryCommands returns the commands that need no line: they run in the
// lab or in the simulator.
func newLaboratoryCommands() []*cobra.Command {
	return append(newLabInsideCommands(), newDemoCommand(), newLabCommand(), newSimCommand())
}
