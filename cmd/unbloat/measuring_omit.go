//go:build omit_measure

package main

import "github.com/spf13/cobra"

// registerLead does nothing: this build cannot measure.
func registerLead(*cobra.Command) {}

func newMeasuringCommands() []*cobra.Command {
	return leftOut("omit_measure", "the measuring build for routers has it, and so has the whole program on another machine",
		"test", "tune", "prove", "path", "report", "history", "compare", "export", "import")
}
