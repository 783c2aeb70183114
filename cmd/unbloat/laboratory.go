//go:build !omit_lab

package main

import "github.com/spf13/cobra"

// newLaboratoryCommands are those that need no line: all of them run in the lab
// or in the simulator.
func newLaboratoryCommands() []*cobra.Command {
	return append(newLabInsideCommands(), newDemoCommand(), newLabCommand(), newSimCommand())
}
